//! Carries TCP connections from one place to another, for clients that are no pods: both ways, half-closed when one side is.
//!
//! Knows: where each connection goes is asked for at that moment, so that it never goes to whoever was there before.
//! Never: looks into a byte.

use std::future::Future;
use std::net::SocketAddr;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

/// Serves a listener until it is dropped: each connection goes to the first place that takes it. Give it to a `LocalSet`.
pub async fn serve<F>(listener: TcpListener, mut places: impl FnMut(SocketAddr) -> F)
where
    F: Future<Output = Vec<SocketAddr>> + 'static,
{
    loop {
        // Out of descriptors, mostly: the client that waits is taken when there is one again.
        let Ok((client, from)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let places = places(from);
        spawn_local(async move { carry(client, places.await).await });
    }
}

/// A client for whom nobody is there is hung up on.
async fn carry(mut client: TcpStream, places: Vec<SocketAddr>) {
    for place in places {
        let Ok(mut server) = TcpStream::connect(place).await else { continue };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let _ = copy_bidirectional(&mut client, &mut server).await;
        return;
    }
}
