//! The dashboard's screen: draws a model. Pure: the same model and size give the same cells.
//!
//! Never: changes the model. Only visible rows are laid out. Start reading at [`draw`].

mod details;
mod lists;
mod palette;

pub use palette::Palette;

use super::model::{ControlPlaneFact, DashModel, DashScreen};
use crate::show::escape;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

/// Keys and their meaning.
const HELP: [(&str, &str); 20] = [
    ("Up Down j k", "move (PgUp, PgDn, Home, End, wheel)"),
    ("Enter Space", "open or close a row (Left, Right, click)"),
    ("/", "search; Esc ends it"),
    ("!", "show only rows with problems"),
    ("l", "logs, followed"),
    ("d", "describe"),
    ("y", "yaml"),
    ("w", "why it is not ready"),
    ("x", "exec: a shell in the container"),
    ("r", "restart the workload, replace the pod"),
    ("s", "scale"),
    ("D", "delete, after a question"),
    ("p", "plan: preview a manifest"),
    ("e", "events"),
    ("L", "loops and their queues"),
    ("Tab", "next screen"),
    ("n N", "in a text: next or previous match"),
    ("Left Right", "in a text: move it sideways"),
    ("?", "this help"),
    ("q", "back, or quit (Ctrl-C quits)"),
];

/// The keys of the last line; those at its end are left out where the screen is narrow.
const KEYS: &str = "? help  q quit  l logs  d describe  w why  e events  / search  r restart  s scale  D delete  x exec  y yaml  L loops";

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, model: &DashModel, palette: &Palette) {
    let areas = *model.areas();
    header(frame, areas.header, model, palette);
    match &model.pane {
        Some(pane) => {
            let (last, count) = pane.position();
            let running = if pane.is_running { ", running" } else { "" };
            let title = format!("{} ({last}/{count}{running})", escape::cell(&pane.title));
            frame.buffer_mut().set_stringn(0, 1, title, usize::from(areas.pane.width), palette.heading);
            let line = |text: &str| Line::raw(text.chars().skip(pane.left).collect::<String>());
            let lines: Vec<Line> = pane.visible().map(line).collect();
            frame.render_widget(Paragraph::new(lines), areas.pane);
        }
        None => {
            match model.screen {
                DashScreen::Objects => lists::objects(frame, model, palette),
                DashScreen::Events => lists::events(frame, model, palette),
                DashScreen::Loops => lists::loops(frame, model, palette),
            }
            details::draw(frame, areas.details, model, palette);
        }
    }
    footer(frame, areas.footer, model, palette);
    if model.shows_help {
        help(frame, palette);
    }
}

fn header(frame: &mut Frame<'_>, area: Rect, model: &DashModel, palette: &Palette) {
    let (ready, pods, troubled) = model.counts();
    let mut spans = vec![Span::styled(" kloop ", palette.title), Span::raw(" ")];
    let namespace = model.namespace.as_deref().unwrap_or("all namespaces");
    let state = match troubled {
        0 => Span::styled("all is right", palette.good),
        one => Span::styled(format!("{one} not right"), palette.bad),
    };
    spans.extend([state, Span::raw(format!("  {ready}/{pods} pods ready  "))]);
    spans.push(match model.facts.control_plane {
        ControlPlaneFact::Leads(pid) => Span::styled(format!("control plane {pid}"), palette.dim),
        ControlPlaneFact::AtServer => Span::styled("server", palette.dim),
        ControlPlaneFact::Stopped => Span::styled("no control plane runs", palette.bad),
    });
    spans.push(Span::styled(format!("  {namespace}  {}", escape::cell(&model.facts.cluster)), palette.dim));
    frame.render_widget(Line::from(spans), area);
}

fn footer(frame: &mut Frame<'_>, area: Rect, model: &DashModel, palette: &Palette) {
    if let Some(prompt) = &model.prompt {
        let text = format!("{}{}", prompt.label, prompt.text);
        let width = usize::from(area.width.saturating_sub(1));
        let hidden = text.chars().count().saturating_sub(width);
        let shown: String = text.chars().skip(hidden).collect();
        let column = Line::raw(shown.as_str()).width();
        frame.render_widget(Line::styled(escape::text(&shown), palette.heading), area);
        frame.set_cursor_position((area.x + column as u16, area.y));
        return;
    }
    let line = match (&model.notice, &model.pane) {
        (Some(notice), _) => {
            let style = if notice.is_error { palette.bad } else { palette.good };
            Line::styled(escape::cell(&notice.text), style)
        }
        (None, Some(_)) => keys("q back  / search  n next  PgDn move  ? help", area.width, palette),
        (None, None) if !model.search.is_empty() => {
            Line::styled(format!("search: {}  (Esc ends it)", escape::cell(&model.search)), palette.heading)
        }
        (None, None) => keys(KEYS, area.width, palette),
    };
    frame.render_widget(line, area);
}

fn keys<'a>(text: &'a str, width: u16, palette: &Palette) -> Line<'a> {
    let (mut spans, mut left) = (Vec::new(), usize::from(width));
    for (number, part) in text.split("  ").enumerate() {
        left = match left.checked_sub(part.len()) {
            Some(left) => left.saturating_sub(2),
            None => break,
        };
        let (key, meaning) = part.split_once(' ').unwrap_or((part, ""));
        let space = if number == 0 { "" } else { "  " };
        spans.extend([
            Span::raw(space),
            Span::styled(key, palette.heading),
            Span::styled(format!(" {meaning}"), palette.dim),
        ]);
    }
    Line::from(spans)
}

fn help(frame: &mut Frame<'_>, palette: &Palette) {
    let screen = frame.area();
    let (width, height) = (58.min(screen.width), (HELP.len() as u16 + 2).min(screen.height));
    let area = Rect::new((screen.width - width) / 2, (screen.height - height) / 2, width, height);
    let line = |(key, meaning): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!(" {key:12} "), palette.heading), Span::raw(*meaning)])
    };
    let lines: Vec<Line> = HELP.iter().map(line).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), area);
}

/// Writes a text into a column; a longer one is cut, with three dots at its end.
fn cell(frame: &mut Frame<'_>, (x, y): (u16, u16), width: u16, text: &str, style: Style) {
    let width = usize::from(width);
    if width == 0 {
        return;
    }
    let text = escape::cell(text);
    if Line::raw(text.as_str()).width() <= width {
        frame.buffer_mut().set_stringn(x, y, text, width, style);
        return;
    }
    let dots = ".".repeat(width.min(3));
    let (end, _) = frame.buffer_mut().set_stringn(x, y, text, width - dots.len(), style);
    frame.buffer_mut().set_stringn(end, y, dots, width, style);
}
