//! The body of an answer, read in pieces: a container's log.
//!
//! Knows: pieces are read as far as their reader takes them. Never: ends a body on which nothing arrives, since a container may be silent
//! for hours. Start reading at [`ClientBody`].

use super::connection::ServerConnections;
use super::error::{ClientError, ClientResult};
use super::request::{OpenStream, open_stream};
use super::transfer::TransferThread;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, channel};

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
pub struct OpenBody(OpenStream);

/// Sends a GET request, and reads the head of its answer.
pub async fn open(connections: &ServerConnections, path: &str) -> ClientResult<OpenBody> {
    open_stream(connections, path, "text/plain, application/json, */*").await.map(OpenBody)
}

impl OpenBody {
    /// Reads on for a thread that waits for pieces.
    pub fn start(self, transfers: &Arc<TransferThread>) -> ClientBody {
        let OpenStream { server, mut body, lease } = self.0;
        let (sender, pieces) = channel(MAX_PIECES);
        transfers.spawn(async move {
            while let Some(frame) = body.frame().await {
                let piece = match frame {
                    Ok(frame) => Ok(frame.into_data().unwrap_or_default()),
                    Err(_) => {
                        Err(ClientError::Unreachable { server: server.clone(), why: "unexpected EOF".to_owned() })
                    }
                };
                let is_last = piece.is_err();
                if sender.send(piece).await.is_err() || is_last {
                    return;
                }
            }
            lease.give_back();
        });
        ClientBody { pieces: Arc::new(Mutex::new(pieces)), transfers: transfers.clone() }
    }
}
