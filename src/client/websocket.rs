//! Parts of WebSocket that both ends of a connection need.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_sink::Sink;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::future::poll_fn;
use std::pin::Pin;
use tokio_websockets::{Error, Message, WebSocketStream};

/// The text that RFC 6455 adds to a key.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A WebSocket over a connection that was HTTP.
pub type UpgradedSocket = WebSocketStream<TokioIo<Upgraded>>;

/// Returns the answer to the key of a handshake.
pub fn accepted_key(key: &str) -> String {
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{KEY_SUFFIX}").as_bytes()))
}

/// Sends a message, and waits until the connection has taken it.
pub async fn send_message(socket: &mut UpgradedSocket, message: Message) -> Result<(), Error> {
    poll_fn(|context| Pin::new(&mut *socket).poll_ready(context)).await?;
    Pin::new(&mut *socket).start_send(message)?;
    poll_fn(|context| Pin::new(&mut *socket).poll_flush(context)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_accepted_as_the_rfc_says() {
        assert_eq!(accepted_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
