//! The lists: objects, events, loops.
//!
//! Start reading at [`objects`].

use super::{Palette, cell};
use crate::cli::dash::model::{ControlPlaneFact, DashModel, TreeRow};
use crate::diagnosis::overview::EventLine;
use crate::kinds::view::age::age_since;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Columns that are left out on narrower screens.
const NARROW: u16 = 60;

/// Least and greatest width of READY, whose numbers have as many digits as a workload has pods.
const READY: (u16, u16) = (8, 16);
const RESTARTS: u16 = 9;
const AGE: u16 = 7;

/// Starts and widths of columns.
struct ObjectColumns {
    name: (u16, u16),
    ready: (u16, u16),
    status: (u16, u16),
    restarts: (u16, u16),
    age: (u16, u16),
}

impl ObjectColumns {
    /// `longest`: the length of the longest text below READY.
    fn for_width(area: Rect, longest: usize) -> ObjectColumns {
        let ready = u16::try_from(longest).unwrap_or(u16::MAX).saturating_add(1).clamp(READY.0, READY.1);
        let (restarts, age) = if area.width < NARROW { (0, 0) } else { (RESTARTS, AGE) };
        let rest = area.width.saturating_sub(ready + restarts + age);
        let name = rest * 3 / 5;
        let mut x = area.x;
        let mut column = |width: u16| {
            let at = x;
            x += width;
            // One column stays free before the next one.
            (at, width.saturating_sub(1))
        };
        ObjectColumns {
            name: column(name),
            ready: column(ready),
            status: column(rest - name),
            restarts: column(restarts),
            age: column(age),
        }
    }
}

/// Draws the objects.
pub fn objects(frame: &mut Frame<'_>, model: &DashModel, palette: &Palette) {
    let areas = model.areas();
    let longest = model.rows().iter().map(|row| model.node(row).ready.len()).max().unwrap_or_default();
    let columns = ObjectColumns::for_width(areas.body, longest);
    let headings = [
        (columns.name, "NAME"),
        (columns.ready, "READY"),
        (columns.status, "STATUS"),
        (columns.restarts, "RESTARTS"),
        (columns.age, "AGE"),
    ];
    for ((x, width), text) in headings {
        cell(frame, (x, areas.columns.y), width, text, palette.heading);
    }
    if model.rows().is_empty() {
        let text = match (model.search.is_empty(), model.only_problems) {
            (false, _) => "Nothing contains the searched text; Esc ends the search.",
            (true, true) => "All is right; ! shows everything.",
            (true, false) => "No workloads yet. Apply some: kloop apply -f FILE, or kloop up.",
        };
        cell(frame, (areas.body.x, areas.body.y), areas.body.width, text, palette.dim);
    }
    for (line, place) in model.list.visible().enumerate() {
        let y = areas.body.y + line as u16;
        object(frame, y, model, &model.rows()[place], &columns, palette);
        if place == model.list.selected {
            frame.buffer_mut().set_style(Rect::new(areas.body.x, y, areas.body.width, 1), palette.selected);
        }
    }
}

fn object(frame: &mut Frame<'_>, y: u16, model: &DashModel, row: &TreeRow, columns: &ObjectColumns, palette: &Palette) {
    let node = model.node(row);
    let mark = match row.is_open {
        Some(true) => "-",
        Some(false) => "+",
        None => " ",
    };
    let indent = "  ".repeat(row.depth);
    let mut put = |(x, width): (u16, u16), text: &str, style: Style| cell(frame, (x, y), width, text, style);
    if let Some(container) = &row.container {
        let pid = model.facts.processes.get(&model.id_of(row)).map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        let kind = if container.is_init { "init " } else { "" };
        put(columns.name, &format!("{indent}  {kind}{}{pid}", container.name), palette.dim);
        put(columns.ready, if container.is_ready { "ready" } else { "" }, palette.dim);
        put(columns.status, &container.state, if container.is_ready { palette.good } else { palette.waiting });
        put(columns.restarts, &count(container.restarts), Style::new());
        put(
            columns.age,
            &container.started.map(|at| age_since(Some(at), model.now())).unwrap_or_default(),
            palette.dim,
        );
        return;
    }
    let place = match (&*node.key.namespace, &model.namespace) {
        ("", _) | (_, Some(_)) => String::new(),
        (namespace, None) if row.depth == 0 && namespace != "default" => format!(" ({namespace})"),
        _ => String::new(),
    };
    put(columns.name, &format!("{indent}{mark} {}/{}{place}", node.kind, node.key.name), Style::new());
    put(columns.ready, &node.ready, Style::new());
    put(columns.status, &node.status, palette.stage(node.stage));
    put(columns.restarts, &count(node.restarts), if node.restarts > 0 { palette.waiting } else { palette.dim });
    put(columns.age, &age_since(node.created, model.now()), palette.dim);
}

fn count(number: i64) -> String {
    if number == 0 { String::new() } else { number.to_string() }
}

/// Draws the events, newest first.
pub fn events(frame: &mut Frame<'_>, model: &DashModel, palette: &Palette) {
    let areas = model.areas();
    let events = model.events();
    let width = areas.body.width;
    cell(frame, (areas.columns.x, areas.columns.y), width, "EVENTS, newest first", palette.heading);
    if events.is_empty() {
        cell(frame, (areas.body.x, areas.body.y), width, "No events.", palette.dim);
    }
    for (line, place) in model.side.visible().enumerate() {
        let Some(event) = events.get(place) else { continue };
        let y = areas.body.y + line as u16;
        event_line(frame, Rect::new(areas.body.x, y, width, 1), event, palette);
        if place == model.side.selected {
            frame.buffer_mut().set_style(Rect::new(areas.body.x, y, width, 1), palette.selected);
        }
    }
}

/// Draws one event in one line.
fn event_line(frame: &mut Frame<'_>, area: Rect, event: &EventLine, palette: &Palette) {
    let style = if event.is_warning { palette.bad } else { Style::new() };
    let (seen, about) = (6, (area.width / 3).clamp(10, 40));
    let age = event.seen.split(' ').next().unwrap_or_default();
    cell(frame, (area.x, area.y), seen - 1, age, palette.dim);
    cell(frame, (area.x + seen, area.y), (about - 1).min(area.width.saturating_sub(seen)), &event.about, Style::new());
    let text = format!("{}: {}", event.reason, event.message);
    cell(frame, (area.x + seen + about, area.y), area.width.saturating_sub(seen + about), &text, style);
}

/// Draws the loops and their queues.
pub fn loops(frame: &mut Frame<'_>, model: &DashModel, palette: &Palette) {
    let areas = model.areas();
    let ticks = match model.facts.ticks {
        Some((ticks, rows, seconds)) => format!("LOOPS: {ticks} ticks, {rows} rows written, {seconds:.1} s of work"),
        None if model.facts.control_plane == ControlPlaneFact::AtServer => {
            "LOOPS: a server does not tell about its queues".to_owned()
        }
        None => "LOOPS: no control plane has reported its queues yet".to_owned(),
    };
    cell(frame, (areas.columns.x, areas.columns.y), areas.columns.width, &ticks, palette.heading);
    for (line, place) in model.side.visible().enumerate() {
        let Some(each) = model.facts.loops.get(place) else { continue };
        let y = areas.body.y + line as u16;
        let style = if each.depth > 0 { palette.waiting } else { palette.dim };
        cell(frame, (areas.body.x, y), 36, &each.name, Style::new());
        cell(frame, (areas.body.x + 37, y), areas.body.width.saturating_sub(37), &waiting(each.depth), style);
        if place == model.side.selected {
            frame.buffer_mut().set_style(Rect::new(areas.body.x, y, areas.body.width, 1), palette.selected);
        }
    }
}

fn waiting(depth: usize) -> String {
    match depth {
        0 => "-".to_owned(),
        1 => "1 key waits".to_owned(),
        several => format!("{several} keys wait"),
    }
}
