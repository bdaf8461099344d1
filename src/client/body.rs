//! The body of an answer, read in pieces: a container's log.
//!
//! Knows: pieces are read as far as their reader takes them. Never: ends a body on which nothing arrives, since a container may be silent
//! for hours. Start reading at [`ClientBody`].

use super::connection::{ConnectionLease, ServerConnections};
use super::error::{ClientError, ClientResult};
use super::request::read_body;
use super::transfer::TransferThread;
use crate::object::Status;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::{Method, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

/// Time limit for the head of the answer.
const HEAD: Duration = Duration::from_secs(60);
/// Maximum number of bytes of an error.
const MAX_ERROR: usize = 1 << 20;
/// Maximum number of pieces that wait for their reader.
const MAX_PIECES: usize = 64;

/// The pieces of a body, which ends when it is dropped.
pub struct ClientBody {
    pieces: Arc<Mutex<Receiver<ClientResult<Bytes>>>>,
    transfers: Arc<TransferThread>,
}

impl Iterator for ClientBody {
    type Item = ClientResult<Bytes>;

    /// Waits for the next piece.
    fn next(&mut self) -> Option<ClientResult<Bytes>> {
        let pieces = self.pieces.clone();
        let received = self.transfers.wait(async move { pieces.lock().await.recv().await });
        received.unwrap_or_else(|error| Some(Err(error)))
    }
}

/// A body that was not read yet.
pub struct OpenBody {
    server: String,
    body: Incoming,
    lease: ConnectionLease,
}

/// Sends a GET request, and reads the head of its answer.
pub async fn open(connections: &ServerConnections, path: &str) -> ClientResult<OpenBody> {
    let head = Request::builder().method(Method::GET).header(ACCEPT, "text/plain, application/json, */*");
    let late = || ClientError::Late { server: connections.authority() };
    let opened = timeout(HEAD, connections.exchange(head, path, Bytes::new())).await;
    let (response, lease) = opened.map_err(|_| late())??;
    let code = response.status();
    if !code.is_success() {
        let body = timeout(HEAD, read_body(connections, response, MAX_ERROR)).await.map_err(|_| late())??;
        lease.give_back();
        return Err(Status::from_answer(code.as_u16(), &body).into());
    }
    Ok(OpenBody { server: connections.authority(), body: response.into_body(), lease })
}

impl OpenBody {
    /// Reads on for a thread that waits for pieces.
    pub fn start(mut self, transfers: &Arc<TransferThread>) -> ClientBody {
        let (sender, pieces) = channel(MAX_PIECES);
        transfers.spawn(async move {
            while let Some(frame) = self.body.frame().await {
                let piece = match frame {
                    Ok(frame) => Ok(frame.into_data().unwrap_or_default()),
                    Err(_) => {
                        Err(ClientError::Unreachable { server: self.server.clone(), why: "unexpected EOF".to_owned() })
                    }
                };
                let is_last = piece.is_err();
                if sender.send(piece).await.is_err() || is_last {
                    return;
                }
            }
            self.lease.give_back();
        });
        ClientBody { pieces: Arc::new(Mutex::new(pieces)), transfers: transfers.clone() }
    }
}
