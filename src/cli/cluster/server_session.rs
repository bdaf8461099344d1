//! Sessions in containers of a cluster behind an API server: a command, or the container's own streams, over a WebSocket.
//!
//! Knows: the [`Channel`]s. Never: finds a pod. Start reading at [`run`].

use crate::apiserver::remote::{object_path, refusal};
use crate::cli::{CliResult, CommandContext};
use crate::client::{ApiClient, ChannelSocket, ClientRequest, SocketSender};
use crate::kinds;
use crate::object::Object;
use crate::runtime::session::{DetachKeys, SessionEnd, SessionStreams, Terminal, TerminalSize};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The protocols, the best one first.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Interval for checking the size of the terminal and signals.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A channel of a session; the value is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The input.
    Stdin = 0,
    /// The output.
    Stdout = 1,
    /// The output for errors.
    Stderr = 2,
    /// The Status at the end.
    Status = 3,
    /// The size of the terminal.
    Resize = 4,
    /// The end of the input, in version 5 of the protocol.
    Close = 255,
}

impl Channel {
    /// Returns the channel of a message from the server.
    pub fn from_number(number: u8) -> Option<Channel> {
        [Channel::Stdout, Channel::Stderr, Channel::Status].into_iter().find(|channel| *channel as u8 == number)
    }
}

/// Bytes of the input that are read at once.
const INPUT_BYTES: usize = 32 << 10;

/// A session in a container.
pub struct ServerSession<'a> {
    /// The pod.
    pub pod: &'a Object,
    /// The container.
    pub container: &'a str,
    /// `exec` or `attach`.
    pub subresource: &'a str,
    /// The command with its arguments, for `exec`.
    pub command: &'a [String],
    /// The streams.
    pub streams: SessionStreams,
    /// The keys that end the session, in a terminal.
    pub detach: Option<DetachKeys>,
}

impl ServerSession<'_> {
    fn path(&self) -> String {
        let place = (self.pod.namespace(), self.pod.name());
        let request = ClientRequest::get(object_path(&kinds::pod::KIND, "v1", place, self.subresource));
        let text = |is_set: bool| if is_set { "true" } else { "false" };
        let terminal = self.streams.terminal;
        let request = request.query("container", self.container).query("stdin", text(self.streams.stdin));
        // A terminal has one output.
        let request = request.query("stdout", "true").query("stderr", text(!terminal)).query("tty", text(terminal));
        self.command.iter().fold(request, |request, word| request.query("command", word)).path
    }

    /// Opens the session.
    pub fn open(&self, client: &ApiClient) -> CliResult<ChannelSocket> {
        client.open_socket(&self.path(), &PROTOCOLS).map_err(|error| refusal(client, error).into())
    }
}

/// Opens a session and copies its streams until it ends. Calls `ready` once it is open. `None` where the cluster is a state file.
pub fn run(
    context: &CommandContext,
    session: &ServerSession<'_>,
    ready: impl FnOnce(),
) -> Option<CliResult<SessionEnd>> {
    let client = context.client()?;
    Some(session.open(client).and_then(|socket| {
        ready();
        copy_streams(client, &socket, session.streams, session.detach)
    }))
}

/// Sends standard input, and prints the outputs, until the server ends the session.
fn copy_streams(
    client: &ApiClient,
    socket: &ChannelSocket,
    streams: SessionStreams,
    detach: Option<DetachKeys>,
) -> CliResult<SessionEnd> {
    let is_detached = Arc::new(AtomicBool::new(false));
    let terminal = streams.terminal.then(Terminal::raw).transpose()?;
    let sender = socket.sender();
    if streams.stdin {
        let (sender, can_close) = (socket.sender(), socket.protocol == PROTOCOLS[0]);
        let (keys, is_detached) = (detach.filter(|_| streams.terminal), is_detached.clone());
        std::thread::Builder::new()
            .name("stdin".into())
            .spawn(move || is_detached.store(send_input(&sender, can_close, keys), Ordering::Relaxed))?;
    }
    let mut shown = TerminalSize::default();
    let mut end = None;
    loop {
        if is_detached.load(Ordering::Relaxed) {
            return Ok(SessionEnd::Detached);
        }
        if let Some(terminal) = &terminal {
            if let Some(signal) = terminal.take_end_signal() {
                return Ok(SessionEnd::Signaled(signal));
            }
            let size = Terminal::size();
            if size != shown {
                shown = size;
                let size = json!({"Width": size.columns, "Height": size.rows});
                sender.send(Channel::Resize as u8, size.to_string().as_bytes());
            }
        }
        match socket.receive(POLL_INTERVAL) {
            Ok(None) => {}
            Ok(Some(message)) => match Channel::from_number(message.channel) {
                Some(Channel::Stdout) => print(std::io::stdout(), &message.bytes)?,
                Some(Channel::Stderr) => print(std::io::stderr(), &message.bytes)?,
                Some(Channel::Status) => end = Some(read_end(&message.bytes)),
                _ => {}
            },
            Err(None) => return Ok(end.unwrap_or(SessionEnd::Detached)),
            // A server may close the connection without a farewell after the Status.
            Err(Some(error)) => return end.map_or_else(|| Err(refusal(client, error).into()), Ok),
        }
    }
}

fn print(mut output: impl Write, bytes: &[u8]) -> CliResult {
    output.write_all(bytes)?;
    Ok(output.flush()?)
}

/// Sends standard input to its end, or to the keys that end the session; returns whether these were typed.
fn send_input(sender: &SocketSender, can_close: bool, mut keys: Option<DetachKeys>) -> bool {
    let mut buffer = vec![0; INPUT_BYTES];
    let mut input = std::io::stdin().lock();
    while let Ok(read) = input.read(&mut buffer) {
        if read == 0 {
            if can_close {
                sender.send(Channel::Close as u8, &[Channel::Stdin as u8]);
            }
            return false;
        }
        let (bytes, is_detached) = match &mut keys {
            Some(keys) => keys.scan(&buffer[..read]),
            None => (buffer[..read].to_vec(), false),
        };
        if is_detached || !bytes.is_empty() && !sender.send(Channel::Stdin as u8, &bytes) {
            return is_detached;
        }
    }
    false
}

/// Reads the Status at the end of a session.
pub fn read_end(bytes: &[u8]) -> SessionEnd {
    let status: Value = serde_json::from_slice(bytes).unwrap_or_default();
    if status["status"] == "Success" {
        return SessionEnd::Exited(0);
    }
    let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let code = causes.iter().find(|cause| cause["reason"] == "ExitCode");
    match code.and_then(|cause| cause["message"].as_str()?.parse().ok()) {
        Some(code) => SessionEnd::Exited(code),
        None => SessionEnd::Failed(status["message"].as_str().unwrap_or("the server gave no reason").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_at_the_end_has_the_exit_code() {
        let failed = json!({"status": "Failure", "message": "command terminated with non-zero exit code",
            "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}});
        for (status, expected) in [
            (json!({"status": "Success"}), SessionEnd::Exited(0)),
            (failed, SessionEnd::Exited(3)),
            (json!({"status": "Failure", "message": "no such program"}), SessionEnd::Failed("no such program".into())),
        ] {
            assert_eq!(read_end(status.to_string().as_bytes()), expected);
        }
    }
}
