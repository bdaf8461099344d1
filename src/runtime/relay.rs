//! Carries TCP connections from one place to another, for clients that are no pods: both ways, half-closed when one side is.
//!
//! Knows: where each connection goes is asked for at that moment, so that it never goes to whoever was there before.
//! Never: looks into a byte.

use std::future::Future;
use std::net::SocketAddr;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

/// So much is read at once.
const AT_ONCE: usize = 64 << 10;

/// Serves a listener until it is dropped: each connection goes to the first place that takes it, and `failed` is told why when none
/// does. Give it to a `LocalSet`.
pub async fn serve<F>(
    listener: TcpListener,
    mut places: impl FnMut(SocketAddr) -> F,
    failed: impl Fn(&str) + Clone + 'static,
) where
    F: Future<Output = Vec<SocketAddr>> + 'static,
{
    loop {
        // Out of descriptors, mostly: the client that waits is taken when there is one again.
        let Ok((client, from)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let (places, failed) = (places(from), failed.clone());
        spawn_local(async move {
            if let Err(why) = carry(client, places.await).await {
                failed(&why);
            }
        });
    }
}

/// A client for whom nobody is there is hung up on.
async fn carry(mut client: TcpStream, places: Vec<SocketAddr>) -> Result<(), String> {
    let mut why = "nobody is there".to_owned();
    for place in places {
        match TcpStream::connect(place).await {
            Ok(mut server) => {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let _ = copy_bidirectional_with_sizes(&mut client, &mut server, AT_ONCE, AT_ONCE).await;
                return Ok(());
            }
            Err(error) => why = format!("dial tcp {place}: {error}"),
        }
    }
    let _ = client.set_zero_linger();
    Err(why)
}
