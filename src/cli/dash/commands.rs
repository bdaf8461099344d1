//! Commands of kloop that the dashboard runs, each as a process of its own, as if the user had typed it.
//!
//! Start reading at [`DashCommand::start`].

use super::waker::Waker;
use crate::runtime;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

/// Lines that wait to be shown; a faster command waits.
const MAX_WAITING_LINES: usize = 1000;

/// Longest line that is read in one piece, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// A command whose output is read.
pub struct DashCommand {
    child: Child,
    lines: Receiver<String>,
    is_read: bool,
}

/// Returns the command with the flags that name the cluster.
pub fn command(cluster: &[OsString], arguments: &[String]) -> Command {
    let mut command = Command::new(runtime::THIS);
    command.arg0("kloop").args(cluster);
    command.args(arguments);
    command
}

impl DashCommand {
    /// Starts a command; `waker` is called at each piece of output, and at its end.
    pub fn start(mut command: Command, waker: &Waker) -> std::io::Result<DashCommand> {
        // A process group of its own, so that Ctrl-C of a later command does not reach it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("NO_COLOR", "1").env("COLUMNS", "120");
        let mut child = command.spawn()?;
        let (send, lines) = sync_channel(MAX_WAITING_LINES);
        if let Some(output) = child.stdout.take() {
            read_lines(output, send.clone(), waker.clone());
        }
        if let Some(output) = child.stderr.take() {
            read_lines(output, send, waker.clone());
        }
        Ok(DashCommand { child, lines, is_read: false })
    }

    /// Takes the lines that were received.
    pub fn take_lines(&mut self) -> Vec<String> {
        let mut taken = Vec::new();
        while taken.len() < MAX_WAITING_LINES {
            match self.lines.try_recv() {
                Ok(line) => taken.push(line),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.is_read = true;
                    break;
                }
            }
        }
        taken
    }

    /// The exit status, once it has ended and all its output is read.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.is_read { self.child.wait().ok() } else { None }
    }
}

impl Drop for DashCommand {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn read_lines(output: impl Read + Send + 'static, send: SyncSender<String>, waker: Waker) {
    thread::spawn(move || {
        let mut reader = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            match reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            if send.send(text).is_err() {
                break;
            }
            waker.wake();
        }
        drop(send);
        waker.wake();
    });
}
