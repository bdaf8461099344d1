//! The log of a control plane on standard output.
//!
//! Never: waits for its reader ([`LogWriter`]). Start reading at [`log_sink`].

use super::Args;
use crate::cli::command_line::globals;
use crate::cli::output::log_writer::LogWriter;
use crate::object::Time;
use crate::reconcile::{Idle, LogLevel, LogLine};
use colored::Colorize;

/// Prints a line of the log about another part of the process.
pub fn print_by(by: &'static str, text: &str) {
    let line = LogLine { at: Time::now(), by, about: None, text: text.to_owned(), level: LogLevel::Action };
    log_sink(Some(LogLevel::Action))(&line);
}

/// The least important level that is shown; `None` when nothing is.
pub fn shown_level(args: &Args) -> Option<LogLevel> {
    match (args.quiet, args.problems, globals::is_verbose(args.v.as_deref())) {
        (true, _, _) => None,
        (_, true, _) => Some(LogLevel::Problem),
        (_, _, true) => Some(LogLevel::Detail),
        _ => Some(LogLevel::Action),
    }
}

/// Returns a function that prints log lines.
pub fn log_sink(shown: Option<LogLevel>) -> impl FnMut(&LogLine) {
    move |line: &LogLine| {
        if shown.is_none_or(|shown| line.level > shown) {
            return;
        }
        let about = line.about.as_ref().map(|key| format!(" {}", key.path())).unwrap_or_default();
        let at = line.at.to_string();
        let clock = at.get(11..19).unwrap_or_default();
        let text = crate::show::escape::text(&line.text).to_string();
        write(format!("{} {}{about}: {text}", clock.dimmed(), line.by.cyan()));
    }
}

/// Queues a line of the log without blocking.
fn write(line: String) {
    if let Some(sink) = LogWriter::for_stdout() {
        sink.write(line);
    }
}

/// Prints that nothing is left to do.
pub fn print_idle(idle: Idle) {
    let pause = idle.next.map_or(-1, |next| next.duration_since(Time::now()).as_millis().max(0));
    write(format!("idle {} {pause}", idle.revision));
}

/// Prints a line about the control plane itself.
pub fn print_line(log_sink: &mut dyn FnMut(&LogLine), text: String) {
    log_sink(&LogLine::own_action(Time::now(), text));
}

/// Waits until all lines are written.
pub fn flush() {
    LogWriter::for_stdout().into_iter().for_each(LogWriter::flush);
}
