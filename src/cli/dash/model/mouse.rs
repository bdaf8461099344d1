//! The mouse: a click selects a row, a click on the selected row opens it, and the wheel scrolls.

use super::{DashModel, DashScreen};
use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

/// Lines for one step of the wheel.
const WHEEL: isize = 3;

impl DashModel {
    /// Handles the mouse.
    pub fn handle_mouse(&mut self, mouse: MouseEvent) {
        let by = match mouse.kind {
            MouseEventKind::ScrollUp => -WHEEL,
            MouseEventKind::ScrollDown => WHEEL,
            MouseEventKind::Down(MouseButton::Left) => return self.click(Position::new(mouse.column, mouse.row)),
            _ => return,
        };
        match (&mut self.pane, self.screen) {
            (Some(pane), _) => pane.scroll(by),
            (None, DashScreen::Objects) => {
                self.list.step(by);
                self.note_selected();
            }
            (None, _) => self.side.step(by),
        }
    }

    fn click(&mut self, at: Position) {
        let body = self.areas().body;
        if self.pane.is_some() || self.prompt.is_some() || !body.contains(at) {
            return;
        }
        let line = usize::from(at.y - body.y);
        if self.screen != DashScreen::Objects {
            return self.side.select(self.side.top + line);
        }
        let place = self.list.top + line;
        if place >= self.rows().len() {
            return;
        }
        if place == self.list.selected {
            return self.fold(None);
        }
        self.list.select(place);
        self.note_selected();
    }
}
