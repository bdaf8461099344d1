//! Connections whose two sides have changed their protocol, as for WebSockets.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

/// Copies between both sides, once they have changed the protocol, until one of them ends the connection. A connection that breaks is
/// not an error of the process in between.
pub async fn relay_upgraded(client: OnUpgrade, server: OnUpgrade) {
    if let Ok((client, server)) = tokio::try_join!(client, server) {
        let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
    }
}
