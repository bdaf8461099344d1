//! A pane over the list: the output of a command, or a log that is followed.
//!
//! Never: keeps more than the last lines. Start reading at [`TextPane`].

use crate::show::escape;
use std::collections::VecDeque;

/// Most lines that are kept.
const MAX_LINES: usize = 10_000;

/// Most characters of a line.
const MAX_CHARACTERS: usize = 4_000;

/// Columns that one key moves the text sideways.
const SIDEWAYS: usize = 20;

/// The text.
#[derive(Debug, Default)]
pub struct TextPane {
    /// Its heading.
    pub title: String,
    /// Number of the first visible line.
    pub top: usize,
    /// Number of the first visible column.
    pub left: usize,
    /// Visible lines.
    pub height: usize,
    /// Whether it stays at its end as it grows.
    pub follows: bool,
    /// Whether the command still runs.
    pub is_running: bool,
    /// The text that is searched.
    pub search: String,
    lines: VecDeque<String>,
}

impl TextPane {
    /// Creates an empty text for the output of a command.
    pub fn new(title: String, follows: bool, height: usize) -> TextPane {
        TextPane { title, follows, height, is_running: true, ..TextPane::default() }
    }

    /// Adds lines at the end, without control characters.
    pub fn add(&mut self, text: &str) {
        for line in text.lines() {
            let line: String = line.chars().take(MAX_CHARACTERS).collect();
            self.lines.push_back(escape::text(&line.replace('\t', "    ")));
            if self.lines.len() > MAX_LINES {
                self.lines.pop_front();
                self.top = self.top.saturating_sub(1);
            }
        }
        if self.follows {
            self.top = self.last_top();
        }
    }

    /// The lines that are visible.
    pub fn visible(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().skip(self.top).take(self.height).map(String::as_str)
    }

    /// The number of the last visible line, and of all.
    pub fn position(&self) -> (usize, usize) {
        ((self.top + self.height).min(self.lines.len()), self.lines.len())
    }

    fn last_top(&self) -> usize {
        self.lines.len().saturating_sub(self.height)
    }

    /// Moves the visible part by a number of lines.
    pub fn scroll(&mut self, by: isize) {
        self.top = self.top.saturating_add_signed(by).min(self.last_top());
        // A pane at the end follows new lines; elsewhere it stays.
        self.follows = self.is_running && self.top == self.last_top();
    }

    /// Moves the visible part sideways.
    pub fn scroll_sideways(&mut self, is_right: bool) {
        self.left =
            if is_right { (self.left + SIDEWAYS).min(MAX_CHARACTERS) } else { self.left.saturating_sub(SIDEWAYS) };
    }

    /// Goes to the next line that contains the searched text, or to the previous one; false when there is none.
    pub fn find(&mut self, is_forward: bool) -> bool {
        let search = self.search.to_lowercase();
        let is_found = |line: &&String| line.to_lowercase().contains(&search);
        let found = match is_forward {
            true => self.lines.iter().skip(self.top + 1).position(|line| is_found(&line)).map(|at| at + self.top + 1),
            false => {
                self.lines.iter().take(self.top).rev().position(|line| is_found(&line)).map(|at| self.top - 1 - at)
            }
        };
        let found = found.or_else(|| self.lines.iter().position(|line| is_found(&line)));
        let Some(at) = found else { return false };
        self.follows = false;
        self.top = at.min(self.last_top());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_follows_its_end_until_it_is_scrolled() {
        let mut pane = TextPane::new("logs".into(), true, 2);
        pane.add("a\nb\nc\x1b[31m");
        assert_eq!(pane.visible().collect::<Vec<_>>(), ["b", "c^[[31m"]);
        pane.scroll(-1);
        pane.add("d");
        assert_eq!(pane.visible().collect::<Vec<_>>(), ["a", "b"]);
        pane.scroll(10);
        pane.add("e");
        assert_eq!(pane.visible().collect::<Vec<_>>(), ["d", "e"]);
    }

    #[test]
    fn text_is_bounded() {
        let mut pane = TextPane::new("logs".into(), false, 5);
        pane.add(&"line\n".repeat(MAX_LINES + 5));
        assert_eq!(pane.position(), (5, MAX_LINES));
    }

    #[test]
    fn search_goes_on_from_the_visible_part_and_begins_again() {
        let mut pane = TextPane::new("yaml".into(), false, 1);
        pane.add("one\ntwo\none more\nlast");
        pane.search = "ONE".into();
        for (is_forward, top) in [(true, 2), (true, 0), (true, 2), (false, 0)] {
            assert!(pane.find(is_forward));
            assert_eq!(pane.top, top);
        }
        pane.search = "none".into();
        assert!(!pane.find(true));
    }
}
