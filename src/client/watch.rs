//! Watches: streams of lines, each an event with an object.
//!
//! Knows: lines are read only as fast as the caller takes them; a watch without data for too long has lost its server.
//! Never: starts again after its end; [`super::reflector`] does. Start reading at [`ClientWatch`].

use super::connection::{ConnectionLease, ServerConnections};
use super::error::{ClientError, ClientResult};
use super::request::{OpenStream, open_stream, with_parameter};
use super::transfer::TransferThread;
use crate::object::Status;
use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

/// Time after which a watch without an event or bookmark is over. Servers send a bookmark every minute, and end watches after minutes.
const MAX_SILENCE: Duration = Duration::from_secs(15 * 60);
/// Maximum number of bytes of a line.
const MAX_LINE: usize = 32 << 20;
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
    let OpenStream { server, body, lease } = open_stream(connections, &path, "application/json").await?;
    Ok(OpenWatch { server, body, buffer: BytesMut::new(), searched: 0, _lease: lease })
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
