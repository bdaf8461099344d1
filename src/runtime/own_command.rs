//! Commands of kloop that another part of the program runs for their output, with a limited time and output.
//!
//! Start reading at [`run`].

use crate::object::IgnorePoison;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Limits of a command.
pub struct CommandLimits {
    /// Longest run.
    pub time: Duration,
    /// Most bytes of its output and of its errors; the rest is dropped.
    pub bytes: u64,
}

/// Runs a command about a cluster; returns its output and its errors. It is ended when it takes too long.
pub fn run(state: &Path, arguments: &[String], input: &[u8], limits: &CommandLimits) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut command = Command::new(super::THIS);
    command.arg("--state").arg(state).args(arguments).env("NO_COLOR", "1");
    run_program(command, input, limits)
}

fn run_program(mut command: Command, input: &[u8], limits: &CommandLimits) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (pipe, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let child = Arc::new(Mutex::new(child));
    let (done, is_done) = channel::<()>();
    let (watched, longest, most) = (child.clone(), limits.time, limits.bytes);
    let guard = thread::spawn(move || {
        let is_late = is_done.recv_timeout(longest) == Err(RecvTimeoutError::Timeout);
        if is_late {
            drop(lock(&watched).kill());
        }
        is_late
    });
    let errors = thread::spawn(move || read(errors, most));
    let input = input.to_vec();
    let feeder = thread::spawn(move || pipe.map(|mut pipe| pipe.write_all(&input)));
    let output = read(output, most);
    // It has ended, or the rest of its output is not wanted.
    drop(lock(&child).kill());
    drop(lock(&child).wait());
    drop(done);
    drop(feeder.join());
    if guard.join().unwrap_or(false) {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok((output, errors.join().unwrap_or_default()))
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().ignore_poison()
}

fn read(pipe: Option<impl Read>, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // An error ends the text.
        drop(pipe.take(most).read_to_end(&mut bytes));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limits: &CommandLimits) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        run_program(command, b"input", limits)
    }

    #[test]
    fn output_and_time_are_limited() {
        let limits = CommandLimits { time: Duration::from_secs(60), bytes: 100 };
        assert_eq!(shell("cat; echo no >&2", &limits).unwrap(), (b"input".to_vec(), b"no\n".to_vec()));
        assert_eq!(shell("while :; do echo long; done", &limits).unwrap().0.len(), 100);
        let short = CommandLimits { time: Duration::from_millis(20), bytes: 100 };
        assert_eq!(shell("exec sleep 600", &short).unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
