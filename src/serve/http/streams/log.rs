//! The log of a container as WebSocket messages (`apimachinery/pkg/util/httpstream/wsstream`: Reader).

use super::socket::MessageSocket;
use crate::runtime::logs::LogReader;
use crate::serve::http::stream::{self, AnswerStream};
use bytes::Bytes;
use std::time::Duration;
use tokio::select;
use tokio::time::interval;

/// The protocol of plain bytes, which is also the default.
pub const BINARY: &str = "binary.k8s.io";
/// Interval of pings to the client.
const PING: Duration = Duration::from_secs(10);

/// Sends a log until it ends or its client disconnects. The first message is empty, which shows that the log was found.
pub async fn serve(logs: Option<LogReader>, mut socket: MessageSocket) {
    let mut pieces = match logs.map(stream::log) {
        Some(AnswerStream::Log(pieces)) => Some(pieces),
        _ => None,
    };
    let mut pings = interval(PING);
    let mut next = Some(Bytes::new());
    while let Some(piece) = next {
        if socket.send(piece).await.is_err() {
            return;
        }
        next = match &mut pieces {
            None => None,
            Some(pieces) => loop {
                select! {
                    piece = pieces.recv() => break piece.map(Bytes::from),
                    message = socket.receive() => if message.is_none() { return },
                    _ = pings.tick() => if socket.ping().await.is_err() { return },
                }
            },
        };
    }
    socket.close().await;
}
