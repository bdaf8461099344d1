//! A session in a container, between its client and the shim of the pod.

use super::channels::SessionChannels;
use super::client_message::{ClientMessage, STDOUT};
use crate::object::{Reason, Status, io_error_text};
use crate::runtime::session::{self, RemoteSession, SessionEnd, SessionStream};
use crate::serve::target::ContainerTarget;
use bytes::{Buf, BytesMut};
use serde_json::{Value, json};
use std::future::pending;
use std::io;
use std::time::Duration;
use tokio::select;
use tokio::sync::oneshot;
use tokio::time::{Instant, interval, sleep_until};

/// Maximum bytes per read of an output.
const AT_ONCE: usize = 32 << 10;
/// Maximum buffered input for a command that does not read it.
const MAX_INPUT: usize = 1 << 20;
/// Interval of pings to the client, which detect a lost connection.
const PING: Duration = Duration::from_secs(10);
/// Idle time after which a session is ended (kubelet: `streamingConnectionIdleTimeout`).
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// Serves a session until its command has ended or its client has disconnected, which ends the command.
pub async fn serve(target: ContainerTarget, mut channels: SessionChannels) {
    let verb = if target.command.is_some() { "executing command in" } else { "attaching to" };
    let command = target.command.clone().unwrap_or_default();
    let container = target.container.clone();
    let end = match open(target).await {
        Ok(Ok(session)) => match copy(session, &mut channels).await {
            Ok(end) => end,
            // The client has disconnected.
            Err(_) => return,
        },
        Ok(Err(end)) => end,
        Err(error) => SessionEnd::Failed(io_error_text(error)),
    };
    let internal = |why: String| {
        let status = Status::new(Reason::InternalError, format!("Internal error occurred: {why}"));
        status.to_value()
    };
    let status = match end {
        SessionEnd::Exited(0) | SessionEnd::Detached | SessionEnd::Signaled(_) => {
            json!({"metadata": {}, "status": "Success"})
        }
        SessionEnd::Exited(code) => non_zero_exit(&command, code),
        SessionEnd::Missing => internal(session::session_not_possible(&container)),
        SessionEnd::Failed(why) => internal(format!("error {verb} container: {why}")),
    };
    channels.finish(&status).await;
}

fn non_zero_exit(command: &[String], code: i32) -> Value {
    let why = format!("error executing command [{}], exit code {code}", command.join(" "));
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: {why}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

/// Opens the session on a separate thread, because a stopped shim blocks it.
async fn open(target: ContainerTarget) -> io::Result<Result<RemoteSession, SessionEnd>> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        let ContainerTarget { home, uid, container, command, streams } = target;
        let opened = match command {
            Some(command) => session::open_command(&home, &uid, &container, command, streams),
            None => session::open_attachment(&home, &uid, &container, streams),
        };
        drop(tell.send(opened));
    };
    std::thread::Builder::new().name("session".into()).spawn(work)?;
    match told.await.map_err(io::Error::other)?? {
        Ok(opened) => RemoteSession::new(opened).map(Ok),
        Err(end) => Ok(Err(end)),
    }
}

/// Copies between the client and the session; an error when the client has disconnected.
async fn copy(session: RemoteSession, channels: &mut SessionChannels) -> io::Result<SessionEnd> {
    let RemoteSession { mut input, outputs: [mut output, mut error], mut control } = session;
    let (mut block, mut error_block) = (vec![0; AT_ONCE], vec![0; AT_ONCE]);
    let (mut pending, mut input_has_ended) = (BytesMut::new(), false);
    let mut pings = interval(PING);
    let mut idle_until = Instant::now() + IDLE;
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    let end = loop {
        let mut is_active = true;
        select! {
            end = control.wait_for_end() => break end,
            message = channels.receive(), if pending.len() < MAX_INPUT => match message.ok_or_else(gone)? {
                ClientMessage::Input(bytes) if input.is_some() && !input_has_ended => pending.extend_from_slice(&bytes),
                ClientMessage::InputEnd => input_has_ended = true,
                ClientMessage::Resize(size) => control.resize(size)?,
                _ => {}
            },
            written = write_some(input.as_ref(), &pending), if !pending.is_empty() => match written {
                Ok(written) => pending.advance(written),
                Err(_) => (input, pending) = (None, BytesMut::new()),
            },
            read = read_some(output.as_ref(), &mut block) => match read {
                0 => output = None,
                read => channels.send(STDOUT, &block[..read]).await?,
            },
            read = read_some(error.as_ref(), &mut error_block) => match read {
                0 => error = None,
                read => channels.send(STDOUT + 1, &error_block[..read]).await?,
            },
            _ = pings.tick() => {
                is_active = false;
                channels.ping().await?;
            }
            () = sleep_until(idle_until) => return Err(io::ErrorKind::TimedOut.into()),
        }
        if is_active {
            idle_until = Instant::now() + IDLE;
        }
        if input_has_ended && pending.is_empty() {
            input = None;
        }
    };
    // All output of the command is buffered by now; other processes that keep the outputs open are not waited for.
    for (channel, stream) in (STDOUT..).zip([output, error]) {
        let Some(stream) = stream else { continue };
        loop {
            match stream.read_available(&mut block) {
                0 => break,
                read => channels.send(channel, &block[..read]).await?,
            }
        }
    }
    Ok(end)
}

/// Reads a stream; waits forever when it was not requested.
async fn read_some(stream: Option<&SessionStream>, block: &mut [u8]) -> usize {
    match stream {
        Some(stream) => stream.read(block).await,
        None => pending().await,
    }
}

async fn write_some(stream: Option<&SessionStream>, bytes: &[u8]) -> io::Result<usize> {
    match stream {
        Some(stream) => stream.write(bytes).await,
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
