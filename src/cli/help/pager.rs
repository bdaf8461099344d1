//! Shows a long text in the user's pager when standard output is a terminal.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

/// The pager without `$PAGER`: it exits immediately if the text fits on the screen, and leaves the
/// text there.
const DEFAULT: &str = "less -FRX";

/// Shows `text` in a pager. Returns false if standard output is not a terminal, or no pager can run.
pub fn show(text: &str) -> bool {
    if !std::io::stdout().is_terminal() {
        return false;
    }
    let requested = std::env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
    run(requested.as_deref().unwrap_or(DEFAULT), text)
}

/// Runs a pager's command line in a shell, with `text` as input. The shell's exit codes above 125
/// mean that it found no such program.
fn run(pager: &str, text: &str) -> bool {
    let Ok(mut child) = Command::new("sh").args(["-c", pager]).stdin(Stdio::piped()).spawn() else { return false };
    // A user who quits early closes the pipe, which is not a failure.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    child.wait().is_ok_and(|status| status.code().is_some_and(|code| code < 126))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pager_that_cannot_run_shows_nothing() {
        assert!(run("cat > /dev/null", "text"));
        assert!(run("true", &"longer than a pipe holds\n".repeat(10_000)));
        assert!(!run("/nowhere/pager 2> /dev/null", "text"));
    }
}
