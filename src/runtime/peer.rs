//! The user at the other end of a TCP connection, as reported by the kernel (`sock_diag(7)`).
//!
//! All users of a machine share its loopback address. Start reading at [`Peers::find`].

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// Type of a request for one socket and of its answer (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// Flag of every request (linux/netlink.h).
const REQUEST: u16 = 1;
/// Protocol number of TCP.
const TCP: u8 = 6;
/// Length of a netlink header.
const HEADER: usize = 16;
/// Length of a request (linux/inet_diag.h: `inet_diag_req_v2`), its header included.
const LENGTH: usize = HEADER + 56;
/// Position of the user in an answer (`inet_diag_msg`).
const USER: usize = HEADER + 64;

/// Origin of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A user of this machine.
    User(u32),
    /// Another machine, or an unknown user.
    Address(IpAddr),
}

/// A netlink socket for queries about sockets.
pub struct Peers {
    kernel: Option<OwnedFd>,
}

impl Peers {
    /// Opens the socket. Where the kernel refuses, peers are distinguished by address only.
    pub fn open() -> Peers {
        let kind = (SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        Peers { kernel: socket_with(AddressFamily::NETLINK, kind.0, kind.1, Some(netlink::SOCK_DIAG)).ok() }
    }

    /// Returns the origin of a connection between these two addresses.
    pub fn find(&self, client: SocketAddr, server: SocketAddr) -> Peer {
        let (client_ip, server_ip) = (client.ip().to_canonical(), server.ip().to_canonical());
        let ends = (SocketAddr::new(client_ip, client.port()), SocketAddr::new(server_ip, server.port()));
        self.user(ends.0, ends.1).map_or(Peer::Address(client_ip), Peer::User)
    }

    /// Returns the user that owns the client's socket; `None` when it is not on this machine.
    fn user(&self, client: SocketAddr, server: SocketAddr) -> Option<u32> {
        let kernel = self.kernel.as_ref()?;
        send(kernel, &request(client, server), SendFlags::DONTWAIT).ok()?;
        // The kernel answers within the system call that sends the request.
        let mut answer = [0; 1024];
        let (length, _) = recv(kernel, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        let user = answer[..length].get(USER..USER + 4).filter(|_| kind == BY_FAMILY)?;
        user.try_into().ok().map(u32::from_ne_bytes)
    }
}

fn request(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let family = if client.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.extend((LENGTH as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family as u8, TCP, 0, 0]);
    // Connections in every state.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(client.port().to_be_bytes());
    bytes.extend(server.port().to_be_bytes());
    bytes.extend(octets(client.ip()));
    bytes.extend(octets(server.ip()));
    bytes.extend(0_u32.to_ne_bytes());
    // No cookie (`INET_DIAG_NOCOOKIE`).
    bytes.extend([0xff; 8]);
    bytes
}

/// Returns an address in the sixteen bytes of its field.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn peers_of_this_machine_are_identified_by_user() {
        let peers = Peers::open();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let place = listener.local_addr().unwrap();
            let client = TcpStream::connect(place).unwrap();
            let own = client.local_addr().unwrap();
            assert_eq!(peers.find(own, place), Peer::User(rustix::process::geteuid().as_raw()), "{address}");
            let stranger = SocketAddr::new(own.ip(), 1);
            assert_eq!(peers.find(stranger, place), Peer::Address(own.ip()), "{address}");
        }
        assert_eq!(request("[::1]:1".parse().unwrap(), "[::1]:2".parse().unwrap()).len(), LENGTH);
    }
}
