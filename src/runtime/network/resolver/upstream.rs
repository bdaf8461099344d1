//! Queries to the machine's own resolver, for all names outside of the cluster, over the protocol that the client used.
//!
//! Never: changes its answers, except for alias names. Start reading at [`query`].

use super::message::{self, ForwardedQuery};
use super::{MAX_MESSAGE_BYTES, routes};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Time limit for each server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Truncation flag in the third byte of a message.
const CUT: u8 = 0x02;

/// Returns the answer of the machine's servers; `None` when none answers. `own` is the address of the cluster's
/// resolver.
pub async fn query(forward: &ForwardedQuery, own: Ipv4Addr) -> Option<Vec<u8>> {
    if forward.aliases.is_empty() {
        return read_answer(&forward.asked, forward.is_stream, own).await;
    }
    let query = message::question_of_alias(forward)?;
    let mut answered = read_answer(&query, forward.is_stream, own).await;
    if answered.as_ref().is_some_and(|bytes| bytes.get(2).is_some_and(|flags| flags & CUT != 0)) {
        answered = read_answer(&query, true, own).await.or(answered);
    }
    message::aliased(forward, answered.as_deref())
}

async fn read_answer(question: &[u8], is_stream: bool, own: Ipv4Addr) -> Option<Vec<u8>> {
    for server in servers(own) {
        let place = SocketAddr::new(server, routes::DNS_PORT);
        let asked = async {
            match is_stream {
                true => on_connection(place, question).await,
                false => in_datagram(place, question).await,
            }
        };
        if let Ok(Ok(said)) = timeout(SERVER_TIMEOUT, asked).await {
            return Some(said);
        }
    }
    None
}

/// Returns the servers of the machine; never the cluster's own, which would query itself.
fn servers(own: Ipv4Addr) -> Vec<IpAddr> {
    let config = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let server = |line: &str| line.strip_prefix("nameserver")?.trim().parse().ok();
    config.lines().filter_map(server).filter(|server| *server != IpAddr::V4(own)).take(3).collect()
}

async fn in_datagram(place: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = if place.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(place).await?;
    socket.send(question).await?;
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    loop {
        let length = socket.recv(&mut bytes).await?;
        // A reply has the same id as the query.
        if length > 2 && bytes.get(..2) == question.get(..2) {
            bytes.truncate(length);
            return Ok(bytes);
        }
    }
}

async fn on_connection(place: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(place).await?;
    stream.write_all(&message::framed(question)).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; length.into()];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}
