//! The log of a container as WebSocket messages (`apimachinery/pkg/util/httpstream/wsstream`: Reader).

use super::socket::MessageSocket;
use crate::runtime::logs::LogReader;
use crate::serve::http::stream::{self, AnswerStream};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use std::time::Duration;
use tokio::select;
use tokio::time::interval;

/// The protocols of plain bytes, which is also the default, and of text in base64.
pub const PROTOCOLS: [&str; 2] = ["binary.k8s.io", "base64.binary.k8s.io"];
/// Interval of pings to the client.
const PING: Duration = Duration::from_secs(10);

/// Sends a log until it ends or its client disconnects. The first message is empty, which shows that the log was found.
pub async fn serve(logs: Option<LogReader>, mut socket: MessageSocket, protocol: &str) {
    let is_base64 = protocol == PROTOCOLS[1];
    let mut pieces = match logs.map(stream::log) {
        Some(AnswerStream::Pieces(pieces)) => Some(pieces),
        _ => None,
    };
    let mut pings = interval(PING);
    let mut next = Some(Bytes::new());
    while let Some(piece) = next {
        let sent = match is_base64 {
            true => socket.send_text(BASE64_STANDARD.encode(piece)).await,
            false => socket.send(piece).await,
        };
        if sent.is_err() {
            return;
        }
        next = match &mut pieces {
            None => None,
            Some(pieces) => loop {
                select! {
                    piece = pieces.recv() => match piece.transpose() {
                        Ok(piece) => break piece.map(Bytes::from),
                        // Without a close message the client does not take the log for complete.
                        Err(_) => return,
                    },
                    message = socket.receive() => if message.is_none() { return },
                    _ = pings.tick() => if socket.ping().await.is_err() { return },
                }
            },
        };
    }
    socket.close().await;
}
