//! Progress on the screen: a block that is drawn again on a terminal, or a line for each change elsewhere.
//!
//! Never: computes progress. Start reading at [`ProgressView::show`].

use crate::cli::{CliResult, CommandContext};
use crate::diagnosis::progress::{Stage, WorkloadProgress};
use crate::object::{Key, format_count};
use crate::show::escape;
use colored::{ColoredString, Colorize};
use rustix::stdio::stdout;
use rustix::termios::tcgetwinsize;
use std::collections::HashMap;
use std::time::Duration;

/// Width for other outputs than a terminal.
const COLUMNS: usize = 80;

/// Fewest columns that lines are made for.
const FEWEST: usize = 40;

/// Fewest lines of the block, however small the terminal.
const FEWEST_LINES: usize = 4;

/// Progress as it was shown last.
pub struct ProgressView {
    is_terminal: bool,
    /// Text before each line of a change.
    prefix: &'static str,
    /// Lines of the block on the terminal.
    drawn: Vec<String>,
    /// The last line of each workload.
    shown: HashMap<Key, String>,
}

impl ProgressView {
    /// Creates the view; a block on a terminal.
    pub fn new(is_terminal: bool) -> ProgressView {
        ProgressView { is_terminal, prefix: "", drawn: Vec::new(), shown: HashMap::new() }
    }

    /// Creates a view that prints a line with this prefix for each change.
    pub fn for_changes(prefix: &'static str) -> ProgressView {
        ProgressView { prefix, ..ProgressView::new(false) }
    }

    /// Records progress as shown.
    pub fn mark_shown(&mut self, all: &[WorkloadProgress], namespace: &str) {
        self.shown = all.iter().map(|one| (one.key.clone(), self.changed_line(one, namespace))).collect();
    }

    fn changed_line(&self, progress: &WorkloadProgress, namespace: &str) -> String {
        format!("{}{}", self.prefix, format_line(progress, COLUMNS - self.prefix.len(), namespace))
    }

    /// Shows progress: draws the block again, or prints the lines that have changed.
    pub fn show(
        &mut self,
        context: &mut CommandContext,
        all: &[WorkloadProgress],
        elapsed: Duration,
        namespace: &str,
    ) -> CliResult {
        if self.is_terminal {
            // An output without a size reads as zero.
            let size = tcgetwinsize(stdout()).map_or((0, 0), |size| (size.ws_row, size.ws_col));
            let (rows, columns) = (usize::from(size.0), usize::from(size.1));
            let columns = if columns == 0 { COLUMNS } else { columns.max(FEWEST) };
            let most = if rows == 0 { usize::MAX } else { rows.saturating_sub(2).max(FEWEST_LINES) };
            let lines = block(all, most, columns, elapsed, namespace);
            return self.draw(context, lines);
        }
        for progress in all {
            let text = self.changed_line(progress, namespace);
            if self.shown.get(&progress.key) != Some(&text) {
                context.print_styled(&format!("{text}\n"))?;
                self.shown.insert(progress.key.clone(), text);
            }
        }
        Ok(())
    }

    /// Prints text above the block. Callers have escaped control sequences.
    pub fn print_above(&mut self, context: &mut CommandContext, text: &str) -> CliResult {
        let lines = std::mem::take(&mut self.drawn);
        context.print_styled(&format!("{}{text}{}", erase(lines.len()), join_lines(&lines)))?;
        self.drawn = lines;
        Ok(())
    }

    /// Removes the block, before another part of the program prints.
    pub fn clear(&mut self, context: &mut CommandContext) -> CliResult {
        self.draw(context, Vec::new())
    }

    /// Leaves the block on the screen as it is; the next one is drawn below.
    pub fn keep(&mut self) {
        self.drawn.clear();
    }

    fn draw(&mut self, context: &mut CommandContext, lines: Vec<String>) -> CliResult {
        if lines != self.drawn {
            context.print_styled(&format!("{}{}", erase(self.drawn.len()), join_lines(&lines)))?;
            self.drawn = lines;
        }
        Ok(())
    }
}

/// Returns the control sequence that removes the last lines.
fn erase(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r\x1b[J") }
}

fn join_lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns the lines of the block: at most `most`, those first that are not ready, and a summary.
fn block(all: &[WorkloadProgress], most: usize, columns: usize, elapsed: Duration, namespace: &str) -> Vec<String> {
    let mut shown: Vec<&WorkloadProgress> = all.iter().collect();
    if shown.len() + 1 > most {
        shown.sort_by_key(|progress| progress.stage);
    }
    let left_out = (shown.len() + 1).saturating_sub(most);
    shown.truncate(shown.len() - left_out.min(shown.len()));
    let mut lines: Vec<String> = shown.into_iter().map(|progress| format_line(progress, columns, namespace)).collect();
    let settled = all.iter().filter(|progress| progress.stage.is_settled()).count();
    let more = if left_out > 0 { format!(", {left_out} not shown") } else { String::new() };
    let seconds = elapsed.as_secs();
    lines.push(format!("{settled} of {} ready{more} ({seconds}s)", all.len()).dimmed().to_string());
    lines
}

/// Formats one workload in one line of at most `columns` columns.
pub fn format_line(progress: &WorkloadProgress, columns: usize, namespace: &str) -> String {
    let counts = match progress.wanted {
        0 => String::new(),
        wanted => format!("{}/{wanted}", progress.ready),
    };
    let place = match &*progress.key.namespace {
        "" => String::new(),
        own if own == namespace => String::new(),
        other => format!(" ({other})"),
    };
    let restarts = match progress.restarts {
        0 => String::new(),
        count => format_count(count, "restart"),
    };
    let detail = [progress.reason.as_str(), &restarts]
        .iter()
        .filter(|text| !text.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    let width = (columns * 2 / 5).clamp(16, 44);
    let name = fit_width(&escape::cell(&format!("{}{place}", progress.name)), width);
    let rest = columns.saturating_sub(width + 19);
    let detail = truncate_width(&escape::cell(&detail), rest);
    let stage = colour_stage(progress.stage, &format!("{:9}", progress.stage.word()));
    format!("{name} {counts:>7} {stage} {detail}").trim_end().to_owned()
}

fn colour_stage(stage: Stage, text: &str) -> ColoredString {
    match stage {
        Stage::Failing => text.red(),
        Stage::Pending | Stage::Building | Stage::Starting => text.yellow(),
        Stage::Started => text.cyan(),
        Stage::Ready | Stage::Done => text.green(),
    }
}

/// Shortens or pads a text to a width.
fn fit_width(text: &str, width: usize) -> String {
    format!("{:width$}", truncate_width(text, width))
}

/// Shortens a text to a width, with three dots at its end.
fn truncate_width(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{kept}...")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;

    fn progress(name: &str, stage: Stage, ready: i64, reason: &str) -> WorkloadProgress {
        WorkloadProgress {
            key: Key::new(Resource("deployments.apps"), "default", name),
            name: format!("deployment/{name}"),
            stage,
            ready,
            wanted: 2,
            restarts: 0,
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn line_names_workload_counts_stage_and_reason() {
        colored::control::set_override(false);
        let mut failing = progress("web", Stage::Failing, 1, "CrashLoopBackOff");
        failing.restarts = 3;
        let text = format_line(&failing, 80, "default");
        assert_eq!(text, "deployment/web                       1/2 failing   CrashLoopBackOff, 3 restarts");
        assert_eq!(
            format_line(&progress("web", Stage::Ready, 2, ""), 80, "shop"),
            "deployment/web (default)             2/2 ready"
        );
    }

    #[test]
    fn line_fits_the_columns() {
        colored::control::set_override(false);
        for columns in [40, 60, 80, 120] {
            let long = progress(&"x".repeat(90), Stage::Failing, 2, &"Reason".repeat(20));
            let text = format_line(&long, columns, "default");
            assert!(text.chars().count() <= columns, "{columns}: {text}");
            assert!(text.contains("..."), "{text}");
        }
    }

    #[test]
    fn block_fits_the_screen_and_shows_trouble_first() {
        colored::control::set_override(false);
        let mut all: Vec<WorkloadProgress> =
            (0..10).map(|number| progress(&format!("w{number}"), Stage::Ready, 2, "")).collect();
        all[9].stage = Stage::Failing;
        let lines = block(&all, 4, 80, Duration::from_secs(3), "default");
        assert_eq!(lines.len(), 4);
        assert!(lines[0].contains("w9"), "{lines:?}");
        assert_eq!(lines[3], "9 of 10 ready, 7 not shown (3s)");
    }
}
