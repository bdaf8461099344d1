//! Colours by meaning. Without colours, bold and reversed text remain.

use crate::diagnosis::progress::Stage;
use ratatui::style::{Color, Modifier, Style};

/// Styles by meaning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Palette {
    /// Name of the program.
    pub title: Style,
    /// Headings and keys.
    pub heading: Style,
    /// Less important text.
    pub dim: Style,
    /// Things that are right.
    pub good: Style,
    /// Failures.
    pub bad: Style,
    /// Things on their way.
    pub waiting: Style,
    /// The selected row.
    pub selected: Style,
}

impl Palette {
    /// Creates the styles, with or without colours.
    pub fn new(has_colours: bool) -> Palette {
        let colour = |colour: Color| if has_colours { Style::new().fg(colour) } else { Style::new() };
        Palette {
            title: Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
            heading: Style::new().add_modifier(Modifier::BOLD),
            dim: Style::new().add_modifier(Modifier::DIM),
            good: colour(Color::Green),
            bad: colour(Color::Red).add_modifier(Modifier::BOLD),
            waiting: colour(Color::Yellow),
            selected: Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// The style of a stage.
    pub fn stage(&self, stage: Stage) -> Style {
        match stage {
            Stage::Failing => self.bad,
            Stage::Pending | Stage::Building | Stage::Starting | Stage::Started => self.waiting,
            Stage::Ready => self.good,
            Stage::Done => self.dim,
        }
    }
}
