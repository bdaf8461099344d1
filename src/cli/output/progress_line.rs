//! A line on standard error with the progress of long work. It is drawn on a terminal only, after half a second, and erased
//! before anything else is printed.
//!
//! Never: computes progress, or writes to anything but a terminal. Start reading at [`ProgressLine::show`].

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time without a line. Short work shows none.
const SILENT_TIME: Duration = Duration::from_millis(500);

/// Shortest time between two drawings.
const MIN_DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Longest line, so that it stays one line on a terminal of 80 columns.
const WIDTH: usize = 79;

/// Control sequence that erases the line.
const ERASE: &str = "\r\x1b[K";

/// The line, and the time of its drawings.
pub struct ProgressLine {
    is_terminal: bool,
    started: Option<Instant>,
    drawn: Option<Instant>,
    is_shown: bool,
    /// The text that was drawn last.
    text: String,
}

impl ProgressLine {
    /// Creates a line that is not shown.
    pub fn new() -> ProgressLine {
        let is_terminal = std::io::stderr().is_terminal();
        ProgressLine { is_terminal, started: None, drawn: None, is_shown: false, text: String::new() }
    }

    /// Draws the line, unless the work began a moment ago or the line was drawn a moment ago.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if self.is_terminal
            && let Some(frame) = self.frame(Instant::now(), text)
        {
            write(&frame);
        }
    }

    /// Erases the line. It is drawn again with the next progress.
    pub fn erase(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            write(ERASE);
        }
    }

    /// Whether the line is on the terminal.
    pub fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Draws the line again below lines that were printed after [`ProgressLine::erase`].
    pub fn redraw(&mut self) {
        self.is_shown = true;
        write(&self.text);
    }

    /// Erases the line at the end of the work.
    pub fn end(&mut self) {
        self.erase();
        self.started = None;
    }

    /// Returns the text to write at a time, if the line is due.
    fn frame(&mut self, now: Instant, text: impl FnOnce() -> String) -> Option<String> {
        let started = *self.started.get_or_insert(now);
        let is_due = self.drawn.is_none_or(|drawn| now.duration_since(drawn) >= MIN_DRAW_INTERVAL);
        if now.duration_since(started) < SILENT_TIME || !is_due {
            return None;
        }
        (self.drawn, self.is_shown) = (Some(now), true);
        self.text = text().chars().take(WIDTH).collect();
        Some(format!("{ERASE}{}", self.text))
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.erase();
    }
}

/// Writes to standard error. Progress that cannot be written is lost.
fn write(text: &str) {
    let mut err = std::io::stderr().lock();
    drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_drawn_after_half_a_second_and_then_at_intervals() {
        let mut line = ProgressLine::new();
        let start = Instant::now();
        let mut frame = |millis: u64| line.frame(start + Duration::from_millis(millis), || format!("{millis} ms"));
        assert_eq!((frame(0), frame(499)), (None, None));
        assert_eq!(frame(500).as_deref(), Some("\r\x1b[K500 ms"));
        assert_eq!(frame(599), None);
        assert_eq!(frame(600).as_deref(), Some("\r\x1b[K600 ms"));
        assert!(std::mem::take(&mut line.is_shown), "so that it is erased");
    }

    #[test]
    fn line_is_never_wider_than_a_terminal() {
        let mut line = ProgressLine::new();
        line.started = Instant::now().checked_sub(SILENT_TIME);
        let text = line.frame(Instant::now(), || "x".repeat(200)).unwrap();
        line.is_shown = false;
        assert_eq!(text.len(), ERASE.len() + WIDTH);
    }
}
