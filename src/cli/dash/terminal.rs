//! The terminal: raw, with the alternate screen and the mouse while the dashboard runs, and as it was before afterwards, also after a
//! panic.
//!
//! Start reading at [`DashTerminal::open`].

use super::model::DashModel;
use super::view::{self, Palette};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, Stdout, stdout};
use std::panic;

/// The terminal while the dashboard has it.
pub struct DashTerminal {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    palette: Palette,
}

impl DashTerminal {
    /// Takes the terminal.
    pub fn open(palette: Palette) -> io::Result<DashTerminal> {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // The message of a panic would be lost on the alternate screen.
            if std::thread::current().name() == Some("main") {
                leave();
            }
            usual(panic);
        }));
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(DashTerminal { terminal, palette })
    }

    /// Draws a model; only changed cells are written.
    pub fn draw(&mut self, model: &mut DashModel) -> io::Result<()> {
        self.terminal.autoresize()?;
        let size = self.terminal.size()?;
        model.resize(size.width, size.height);
        self.terminal.draw(|frame| view::draw(frame, model, &self.palette))?;
        Ok(())
    }

    /// Leaves raw mode and the alternate screen while `work` runs.
    pub fn suspend_during<T>(&mut self, work: impl FnOnce() -> T) -> io::Result<T> {
        leave();
        let result = work();
        enter()?;
        // Makes a new `Terminal`: clearing the old one would ask the terminal for its cursor, and a slow terminal answers late.
        execute!(stdout(), Clear(ClearType::All))?;
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(result)
    }
}

impl Drop for DashTerminal {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableMouseCapture)
}

/// Gives the terminal back. Errors are those of a terminal that is gone.
fn leave() {
    drop(disable_raw_mode());
    drop(execute!(stdout(), DisableMouseCapture, LeaveAlternateScreen, ratatui::crossterm::cursor::Show));
}
