//! Parts of the screen, and the visible part of a list.
//!
//! Start reading at [`Areas::for_size`].

use ratatui::layout::Rect;

/// Minimum number of columns to show details next to the list.
const WIDE: u16 = 110;

/// Fewest lines at which details stand below the list.
const TALL: u16 = 18;

/// Lines of details below the list, with their border.
const DETAILS: u16 = 7;

/// The parts of the screen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Areas {
    /// Name of the cluster and counts.
    pub header: Rect,
    /// Headings of columns.
    pub columns: Rect,
    /// The list.
    pub body: Rect,
    /// Details of the selected row; empty on small screens.
    pub details: Rect,
    /// Keys, a prompt, or a message.
    pub footer: Rect,
    /// A text over the list.
    pub pane: Rect,
}

impl Areas {
    /// Divides a screen.
    pub fn for_size(columns: u16, rows: u16) -> Areas {
        let middle = rows.saturating_sub(3);
        let is_wide = columns >= WIDE;
        let below = if !is_wide && rows >= TALL { DETAILS.min(middle / 2) } else { 0 };
        let left = if is_wide { columns * 3 / 5 } else { columns };
        let details = match is_wide {
            true => Rect::new(left, 1, columns - left, middle + 1),
            false => Rect::new(0, 2 + middle - below, columns, below),
        };
        let line = |y, width| Rect::new(0, y, width, 1.min(rows.saturating_sub(y)));
        Areas {
            header: line(0, columns),
            columns: line(1, left),
            body: Rect::new(0, 2.min(rows), left, middle - below),
            details,
            footer: line(rows.saturating_sub(1), columns),
            pane: Rect::new(0, 2.min(rows), columns, middle),
        }
    }
}

/// The visible part of a list, and the selected place.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListWindow {
    /// The first visible place.
    pub top: usize,
    /// The selected place.
    pub selected: usize,
    /// Visible lines.
    pub height: usize,
    count: usize,
}

impl ListWindow {
    /// Sets the length of the list.
    pub fn set_count(&mut self, count: usize) {
        self.count = count;
        self.select(self.selected);
    }

    /// Selects a place, and makes it visible.
    pub fn select(&mut self, place: usize) {
        self.selected = place.min(self.count.saturating_sub(1));
        let height = self.height.max(1);
        let lowest = (self.selected + 1).saturating_sub(height);
        self.top = self.top.clamp(lowest, self.selected.max(lowest)).min(self.count.saturating_sub(height).max(lowest));
    }

    /// Moves the selection by a number of places.
    pub fn step(&mut self, by: isize) {
        self.select(self.selected.saturating_add_signed(by));
    }

    /// The visible places.
    pub fn visible(&self) -> std::ops::Range<usize> {
        self.top.min(self.count)..(self.top + self.height).min(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_place_is_always_visible() {
        let mut list = ListWindow { height: 5, ..ListWindow::default() };
        list.set_count(100);
        for (place, top) in [(3, 0), (7, 3), (4, 3), (2, 2), (99, 95), (500, 95), (0, 0)] {
            list.select(place);
            assert_eq!(list.top, top, "{place}");
            assert!(list.visible().contains(&list.selected));
        }
        list.step(-3);
        assert_eq!(list.selected, 0);
        list.set_count(0);
        assert!(list.visible().is_empty());
    }

    #[test]
    fn parts_fit_every_screen() {
        for (columns, rows) in [(0, 0), (1, 1), (20, 3), (40, 12), (80, 24), (120, 40), (300, 100)] {
            let areas = Areas::for_size(columns, rows);
            let screen = Rect::new(0, 0, columns, rows);
            for area in [areas.header, areas.columns, areas.body, areas.details, areas.footer, areas.pane] {
                assert!(area.is_empty() || screen.intersection(area) == area, "{columns}x{rows}: {area:?}");
            }
        }
    }
}
