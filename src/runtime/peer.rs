//! The user at the other end of a TCP connection, as reported by the kernel (`sock_diag(7)`).
//!
//! All users of a machine share its loopback address. Start reading at [`Peers::find`].

use super::socket_diag::{Protocol, SocketDiag};
use std::net::{IpAddr, SocketAddr};

/// Origin of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A user of this machine.
    User(u32),
    /// Another machine, or an unknown user.
    Address(IpAddr),
}

/// Finds the users of connections.
pub struct Peers {
    sockets: SocketDiag,
}

impl Peers {
    /// Prepares for the questions. Where the kernel answers none, peers are distinguished by address only.
    pub fn open() -> Peers {
        Peers { sockets: SocketDiag::open() }
    }

    /// Returns the origin of a connection between these two addresses.
    pub fn find(&self, client: SocketAddr, server: SocketAddr) -> Peer {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let (client, server) = (canonical(client), canonical(server));
        // No socket: the client is not on this machine.
        let found = self.sockets.find(Protocol::Tcp, client, server).ok().flatten();
        found.map_or(Peer::Address(client.ip()), |socket| Peer::User(socket.user))
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
    }
}
