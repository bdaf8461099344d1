//! Watches: streams of lines, each an event with an object.
//!
//! Knows: lines are read only as fast as the caller takes them; a watch without data for too long has lost its server.
//! Never: starts again after its end; [`super::reflector`] does. Start reading at [`ClientWatch`].

use super::connection::{ConnectionLease, ServerConnections};
use super::error::{ClientError, ClientResult};
use super::request::{read_body, with_parameter};
use super::transfer::TransferThread;
use crate::object::Status;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::{Method, Request};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

/// Time limit for the head of the answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which a watch without an event or bookmark is over. Servers send a bookmark every minute, and end watches after minutes.
const MAX_SILENCE: Duration = Duration::from_secs(15 * 60);
/// Maximum number of bytes of a line.
const MAX_LINE: usize = 32 << 20;
/// Maximum number of bytes of an error.
const MAX_ERROR: usize = 1 << 20;
/// Maximum number of lines that wait for their reader.
const MAX_LINES: usize = 64;

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchLine {
    /// `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`.
    pub event: String,
    /// The object.
    pub object: Value,
}

/// The result of waiting for an event.
type NextLine = Option<ClientResult<WatchLine>>;

/// A watch in progress, which ends when it is dropped.
pub struct ClientWatch {
    lines: Arc<Mutex<Receiver<ClientResult<WatchLine>>>>,
    transfers: Arc<TransferThread>,
}

impl ClientWatch {
    /// Waits for the next event; `None` when the time is over. `Err` with `None` inside is the end of the watch.
    pub fn next(&self, limit: Duration) -> Result<Option<WatchLine>, Option<ClientError>> {
        let lines = self.lines.clone();
        let received = self.transfers.wait(async move {
            let mut lines = lines.lock().await;
            timeout(limit, lines.recv()).await
        });
        match received.map_err(Some)? {
            Err(_) => Ok(None),
            Ok(None) => Err(None),
            Ok(Some(line)) => line.map(Some).map_err(Some),
        }
    }
}

/// A watch whose first line was not read yet.
pub struct OpenWatch {
    server: String,
    body: Incoming,
    buffer: BytesMut,
    /// The number of bytes of the buffer that were searched for the end of a line.
    searched: usize,
    _lease: ConnectionLease,
}

/// Starts a watch. `path` has the query of the watch, without `watch=true`.
pub async fn open(connections: &ServerConnections, path: &str) -> ClientResult<OpenWatch> {
    let path = with_parameter(path.to_owned(), "watch", "true");
    let head = Request::builder().method(Method::GET).header(ACCEPT, "application/json");
    let opened = timeout(HEAD_TIMEOUT, connections.exchange(head, &path, Bytes::new())).await;
    let (response, lease) = opened.map_err(|_| ClientError::Late { server: connections.authority() })??;
    let code = response.status();
    if !code.is_success() {
        let body = timeout(HEAD_TIMEOUT, read_body(connections, response, MAX_ERROR)).await;
        let body = body.map_err(|_| ClientError::Late { server: connections.authority() })??;
        lease.give_back();
        return Err(Status::from_answer(code.as_u16(), &body).into());
    }
    let server = connections.authority();
    Ok(OpenWatch { server, body: response.into_body(), buffer: BytesMut::new(), searched: 0, _lease: lease })
}

impl OpenWatch {
    /// Reads on for a thread that waits for lines.
    pub fn start(mut self, transfers: &Arc<TransferThread>) -> ClientWatch {
        let (sender, lines) = channel(MAX_LINES);
        transfers.spawn(async move {
            while let Some(line) = self.next().await {
                if sender.send(line).await.is_err() {
                    return;
                }
            }
        });
        ClientWatch { lines: Arc::new(Mutex::new(lines)), transfers: transfers.clone() }
    }

    /// Returns the next event; `None` at the end.
    pub async fn next(&mut self) -> NextLine {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + end + 1);
                self.searched = 0;
                return Some(self.parse(&line));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE {
                return Some(Err(self.malformed(format!("an event is longer than {MAX_LINE} bytes"))));
            }
            match timeout(MAX_SILENCE, self.body.frame()).await {
                Ok(Some(Ok(frame))) => self.buffer.extend(frame.into_data().unwrap_or_default()),
                Ok(None) => return None,
                Ok(Some(Err(_))) => {
                    let why = "unexpected EOF".to_owned();
                    return Some(Err(ClientError::Unreachable { server: self.server.clone(), why }));
                }
                Err(_) => return Some(Err(ClientError::Late { server: self.server.clone() })),
            }
        }
    }

    fn parse(&self, line: &[u8]) -> ClientResult<WatchLine> {
        let mut line: Value = serde_json::from_slice(line).map_err(|error| self.malformed(error.to_string()))?;
        let object = line["object"].take();
        match line["type"].as_str() {
            Some("ERROR") => {
                let unknown = || Status::from_answer(500, object.to_string().as_bytes());
                Err(Status::from_value(&object, 500).unwrap_or_else(unknown).into())
            }
            Some(event) if object.is_object() => Ok(WatchLine { event: event.to_owned(), object }),
            _ => Err(self.malformed("a line of a watch has no event with an object".to_owned())),
        }
    }

    fn malformed(&self, why: String) -> ClientError {
        ClientError::Malformed { server: self.server.clone(), why }
    }
}
