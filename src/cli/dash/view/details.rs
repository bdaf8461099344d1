//! Details of the selected object: its state in a sentence, and its newest events.

use super::Palette;
use crate::cli::dash::model::{DashModel, DashScreen};
use crate::show::escape;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

/// Draws the details.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &DashModel, palette: &Palette) {
    if area.is_empty() {
        return;
    }
    let is_beside = area.x > 0;
    let block = Block::new().borders(if is_beside { Borders::LEFT } else { Borders::TOP }).border_style(palette.dim);
    let lines = match model.screen {
        DashScreen::Objects => object_lines(model, palette),
        DashScreen::Events => event_lines(model),
        DashScreen::Loops => Vec::new(),
    };
    frame.render_widget(Paragraph::new(lines).block(block).wrap(Wrap { trim: true }), area);
}

fn object_lines<'a>(model: &DashModel, palette: &Palette) -> Vec<Line<'a>> {
    let Some(row) = model.selected_row() else { return Vec::new() };
    let node = model.node(row);
    let namespace = match &*node.key.namespace {
        "" => String::new(),
        namespace => format!("  namespace {namespace}"),
    };
    let mut lines = vec![Line::from(vec![
        Span::styled(escape::cell(&format!("{}/{}", node.kind, node.key.name)), palette.heading),
        Span::styled(escape::cell(&namespace), palette.dim),
    ])];
    if let Some(trouble) = model.trouble() {
        lines.push(Line::styled(escape::cell(&trouble), palette.bad));
    }
    if model.own_events().is_empty() {
        lines.push(Line::styled("no events", palette.dim));
    }
    for event in model.own_events() {
        let style = if event.is_warning { palette.bad } else { palette.heading };
        lines.push(Line::from(vec![
            Span::styled(format!("{} ", escape::cell(&event.seen)), palette.dim),
            Span::styled(format!("{} ", escape::cell(&event.reason)), style),
            Span::raw(escape::cell(&event.message)),
        ]));
    }
    lines
}

/// The selected event in full.
fn event_lines<'a>(model: &DashModel) -> Vec<Line<'a>> {
    let events = model.events();
    let Some(event) = events.get(model.side.selected) else { return Vec::new() };
    let heading = format!("{}  {}  {}", event.seen, event.reason, event.about);
    vec![Line::raw(escape::cell(&heading)), Line::raw(escape::text(&event.message).replace('\n', " "))]
}
