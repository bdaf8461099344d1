//! Problems of the server's own work, for which no client waits: each is logged once, and again when it has changed.
//!
//! Start reading at [`ProblemLog::note`].

use crate::object::IgnorePoison;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Mutex;

/// Receives a line for the log.
pub type LogText = fn(&str);

/// The log, and the problems that last.
pub struct ProblemLog {
    log: LogText,
    /// The present problem of each task.
    present: Mutex<BTreeMap<&'static str, String>>,
}

impl ProblemLog {
    /// Makes a log that writes its lines with this function.
    pub fn new(log: LogText) -> ProblemLog {
        ProblemLog { log, present: Mutex::default() }
    }

    /// Takes the outcome of a task: logs an error that the task did not have the last time. Returns the value of a success.
    pub fn note<T>(&self, task: &'static str, outcome: Result<T, impl Display>) -> Option<T> {
        let mut present = self.present.lock().ignore_poison();
        let error = match outcome {
            Ok(value) => {
                present.remove(task);
                return Some(value);
            }
            Err(error) => error.to_string(),
        };
        if present.get(task) != Some(&error) {
            (self.log)(&format!("cannot {task}: {error}"));
            present.insert(task, error);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn problem_is_logged_once_until_it_changes() {
        let problems = ProblemLog::new(|text| LINES.lock().unwrap().push(text.to_owned()));
        for outcome in [Err("full"), Err("full"), Err("busy"), Ok(1), Err("busy")] {
            assert_eq!(problems.note("compact the log", outcome), outcome.ok());
        }
        let expected = ["cannot compact the log: full", "cannot compact the log: busy", "cannot compact the log: busy"];
        assert_eq!(*LINES.lock().unwrap(), expected);
    }
}
