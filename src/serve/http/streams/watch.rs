//! A watch as WebSocket messages, one for each event (`apiserver/pkg/endpoints/handlers`: WatchServer).

use super::socket::MessageSocket;
use crate::serve::http::stream::AnswerStream;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::io;
use std::time::Duration;
use tokio::select;
use tokio::time::interval;

/// Interval of pings to the client.
const PING: Duration = Duration::from_secs(10);

/// Number of bytes before each event of a protobuf stream, which say how long it is.
const LENGTH: usize = 4;

/// Sends the events of a watch until it ends or its client disconnects.
pub async fn serve(mut events: AnswerStream, is_protobuf: bool, mut socket: MessageSocket) {
    let mut pings = interval(PING);
    loop {
        let sent = select! {
            frame = events.frame() => match frame {
                Some(Ok(frame)) => send_events(frame.into_data().unwrap_or_default(), is_protobuf, &mut socket).await,
                _ => break,
            },
            message = socket.receive() => if message.is_none() { return } else { Ok(()) },
            _ = pings.tick() => socket.ping().await,
        };
        if sent.is_err() {
            return;
        }
    }
    socket.close().await;
}

async fn send_events(mut events: Bytes, is_protobuf: bool, socket: &mut MessageSocket) -> io::Result<()> {
    while let Some(event) = split_event(&mut events, is_protobuf) {
        match is_protobuf {
            true => socket.send(event).await?,
            false => socket.send_text(String::from_utf8_lossy(&event).into_owned()).await?,
        }
    }
    Ok(())
}

/// Takes the first event: a line of JSON, or the bytes after a length.
fn split_event(events: &mut Bytes, is_protobuf: bool) -> Option<Bytes> {
    if !is_protobuf {
        let end = events.iter().position(|byte| *byte == b'\n').map_or(events.len(), |end| end + 1);
        return (end > 0).then(|| events.split_to(end));
    }
    let length = u32::from_be_bytes(*events.first_chunk::<LENGTH>()?) as usize;
    drop(events.split_to(LENGTH));
    (length <= events.len()).then(|| events.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(events: &'static [u8], is_protobuf: bool) -> Vec<Bytes> {
        let mut events = Bytes::from_static(events);
        std::iter::from_fn(|| split_event(&mut events, is_protobuf)).collect()
    }

    #[test]
    fn each_event_is_a_message() {
        assert_eq!(split(b"{\"a\":1}\n{}\n", false), ["{\"a\":1}\n", "{}\n"]);
        assert_eq!(split(b"\0\0\0\x02ab\0\0\0\x01c", true), ["ab", "c"]);
        assert!(split(b"", false).is_empty() && split(b"", true).is_empty() && split(b"\0\0\0\x09a", true).is_empty());
    }
}
