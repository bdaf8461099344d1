//! Asks the kernel for one socket of this machine by its addresses (`sock_diag(7)`).
//!
//! Never: reads the tables of `/proc/net`, which are long, and from which a socket may be missing while another one closes. Start reading
//! at [`SocketDiag::find`].

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

/// Type of a request for one socket and of its answer (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// Type of an answer that is an error (linux/netlink.h).
const ERROR: u16 = 2;
/// Flag of every request (linux/netlink.h).
const REQUEST: u16 = 1;
/// Length of a netlink header.
const HEADER: usize = 16;
/// Length of a request (linux/inet_diag.h: `inet_diag_req_v2`), its header included.
const LENGTH: usize = HEADER + 56;
/// Length of the first part of an answer (`inet_diag_msg`), its header included.
const ANSWER: usize = HEADER + 72;
/// Index of the loopback device, in every network namespace (linux/netdevice.h: `LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;
/// The state of a listening socket (linux/tcp_states.h).
const LISTEN: u8 = 10;

/// Protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}

/// A socket as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSocket {
    /// The address that it is bound to; IPv4 addresses of IPv6 sockets in their IPv4 form.
    pub local: SocketAddr,
    /// Whether it is a TCP socket that listens.
    pub listens: bool,
    /// Its user.
    pub user: u32,
}

/// A netlink socket for such questions.
pub struct SocketDiag(Option<OwnedFd>);

/// The kernel, or a sandbox, does not answer such questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagUnavailable;

impl SocketDiag {
    /// Opens the netlink socket.
    pub fn open() -> SocketDiag {
        let kind = (SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        SocketDiag(socket_with(AddressFamily::NETLINK, kind.0, kind.1, Some(netlink::SOCK_DIAG)).ok())
    }

    /// Returns the socket that would receive data from `remote` to `local`: the connection between both, or else the listener or the UDP
    /// socket at `local` or at every address. A kernel without sock_diag for this protocol finds none, see [`SocketDiag::answers`].
    pub fn find(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Option<FoundSocket>, DiagUnavailable> {
        let kernel = self.0.as_ref().ok_or(DiagUnavailable)?;
        send(kernel, &request(protocol, local, remote), SendFlags::DONTWAIT).map_err(|_| DiagUnavailable)?;
        // The kernel answers within the system call that sends the request.
        let mut answer = [0; 1024];
        let (length, _) = recv(kernel, &mut answer[..], RecvFlags::DONTWAIT).map_err(|_| DiagUnavailable)?;
        read_answer(&answer[..length])
    }

    /// Whether this kernel answers questions about a protocol: asks about a socket that exists.
    pub fn answers(&self, protocol: Protocol) -> bool {
        let finds = |local: std::io::Result<SocketAddr>| {
            local.is_ok_and(|local| matches!(self.find(protocol, local, UNSPECIFIED), Ok(Some(_))))
        };
        let place = (Ipv4Addr::LOCALHOST, 0);
        match protocol {
            Protocol::Tcp => TcpListener::bind(place).is_ok_and(|socket| finds(socket.local_addr())),
            Protocol::Udp => UdpSocket::bind(place).is_ok_and(|socket| finds(socket.local_addr())),
        }
    }
}

/// No sender in particular.
const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn request(protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // The kernel takes the ends of a UDP socket in the other order (`udp_dump_one`).
    let (number, first, second) = match protocol {
        Protocol::Tcp => (libc::IPPROTO_TCP, local, remote),
        Protocol::Udp => (libc::IPPROTO_UDP, remote, local),
    };
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.extend((LENGTH as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family as u8, number as u8, 0, 0]);
    // Sockets in every state.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(first.port().to_be_bytes());
    bytes.extend(second.port().to_be_bytes());
    bytes.extend(octets(first.ip()));
    bytes.extend(octets(second.ip()));
    // With the device, sockets that are bound to it are found as well.
    let device = if local.ip().is_loopback() { LOOPBACK } else { 0 };
    bytes.extend(device.to_ne_bytes());
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

fn read_answer(answer: &[u8]) -> Result<Option<FoundSocket>, DiagUnavailable> {
    let word = |at: usize| answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    let kind = answer.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    let no_socket = -libc::ENOENT;
    if kind == Some(ERROR) && word(HEADER) == Some(no_socket as u32) {
        return Ok(None);
    }
    if kind != Some(BY_FAMILY) || answer.len() < ANSWER {
        return Err(DiagUnavailable);
    }
    let message = &answer[HEADER..];
    let [a, b, c, d] = [message[8], message[9], message[10], message[11]];
    let ip = match i32::from(message[0]) {
        libc::AF_INET => IpAddr::from([a, b, c, d]),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(&message[8..24]).map_err(|_| DiagUnavailable)?).to_canonical(),
    };
    Ok(Some(FoundSocket {
        local: SocketAddr::new(ip, u16::from_be_bytes([message[4], message[5]])),
        listens: message[1] == LISTEN,
        user: word(HEADER + 64).ok_or(DiagUnavailable)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::fd::AsRawFd;

    const NONE: &str = "0.0.0.0:0";

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn sockets_are_found_by_their_addresses() {
        let diag = SocketDiag::open();
        if !(diag.answers(Protocol::Tcp) && diag.answers(Protocol::Udp)) {
            skip!("this kernel does not answer questions about sockets");
            return;
        }
        let user = rustix::process::geteuid().as_raw();
        for place in ["127.0.0.1:0", "[::ffff:127.0.0.1]:0", "[::1]:0"] {
            let (Ok(listener), Ok(datagrams)) = (TcpListener::bind(place), UdpSocket::bind(place)) else { continue };
            let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            let ends = [
                (Protocol::Tcp, canonical(listener.local_addr().unwrap()), true),
                (Protocol::Udp, canonical(datagrams.local_addr().unwrap()), false),
            ];
            for (protocol, local, listens) in ends {
                let nobody = if local.is_ipv4() { address(NONE) } else { address("[::]:0") };
                let found = FoundSocket { local, listens, user };
                assert_eq!(diag.find(protocol, local, nobody), Ok(Some(found)), "{protocol:?} {place}");
            }
            let client = TcpStream::connect(ends[0].1).unwrap();
            let local = client.local_addr().unwrap();
            let found = FoundSocket { local, listens: false, user };
            assert_eq!(diag.find(Protocol::Tcp, local, ends[0].1), Ok(Some(found)), "{place}");
        }
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(diag.find(Protocol::Udp, free, address(NONE)), Ok(None));
    }

    #[test]
    fn socket_of_the_loopback_device_is_found() {
        let diag = SocketDiag::open();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (level, option, name) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo");
        // SAFETY: reads a live name of the given length.
        let bound = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, name.as_ptr().cast(), 2) };
        if !diag.answers(Protocol::Udp) || bound != 0 {
            skip!("this kernel does not answer questions about sockets, or permits no binding to a device");
            return;
        }
        let found = diag.find(Protocol::Udp, socket.local_addr().unwrap(), address(NONE));
        assert!(matches!(found, Ok(Some(_))), "{found:?}");
    }

    #[test]
    fn answers_that_are_cut_or_refused_are_no_answers() {
        let mut refused = [0; 36];
        refused[4] = ERROR as u8;
        refused[HEADER..HEADER + 4].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        let mut cut = [0; ANSWER - 1];
        cut[4] = BY_FAMILY as u8;
        for answer in [&refused[..], &cut, &[]] {
            assert_eq!(read_answer(answer), Err(DiagUnavailable));
        }
    }
}
