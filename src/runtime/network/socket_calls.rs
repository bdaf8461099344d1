//! Binding, connecting and sending for a caller, on a duplicate of its socket.

use super::super::low_ports;
use super::super::socket_diag::{DiagUnavailable, FoundSocket, Protocol, SocketDiag};
use super::address::{self, for_family};
use super::decide::{self, SocketCall};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrV4 as Address, SocketType};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Time limit for connecting here. On loopback a connection succeeds or fails at once, unless the listener's queue is full.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(2);

/// Result of a call: its value or error; `None` when the kernel should continue the call.
pub type CallResult = Option<Result<i64, Errno>>;

/// Duplicate of a caller's socket.
pub struct CallerSocket {
    fd: OwnedFd,
    /// Whether it is a TCP socket.
    pub is_stream: bool,
    /// Whether the call is `connect`, which sends nothing on a datagram socket.
    pub connects: bool,
    v6: bool,
}

impl CallerSocket {
    /// Describes a socket that was called with this address. When their families differ, the kernel refuses the call, and so does ours.
    /// Only IPv6 datagram sockets accept IPv4 addresses (`udpv6_sendmsg`, `__ip6_datagram_connect`); their source must still be of the
    /// socket's own family.
    pub fn new(fd: OwnedFd, call: SocketCall, asked: SocketAddr) -> CallerSocket {
        let is_stream = sockopt::socket_type(&fd).is_ok_and(|kind| kind == SocketType::STREAM);
        let takes_both = || {
            let is_v6 = || sockopt::socket_domain(&fd).is_ok_and(|domain| domain == AddressFamily::INET6);
            !is_stream && call != SocketCall::Bind && is_v6()
        };
        let v6 = asked.is_ipv6() || takes_both();
        CallerSocket { fd, is_stream, connects: call == SocketCall::Connect, v6 }
    }

    /// Whether it is bound to a port at every address, so that each datagram chooses its source address.
    pub fn is_everywhere(&self) -> bool {
        self.bound().is_some_and(|address| address.port() != 0 && address.ip().to_canonical().is_unspecified())
    }

    /// Whether it takes no IPv4 connections (`IPV6_V6ONLY`).
    pub fn is_v6_only(&self) -> bool {
        self.v6 && sockopt::ipv6_v6only(&self.fd).unwrap_or(false)
    }

    /// Returns the port that it is bound to; 0 before it is bound.
    pub fn port(&self) -> Option<u16> {
        self.bound().map(|address| address.port())
    }

    /// Returns the address to report for `getsockname` when it differs from the kernel's: a low port of the pod with this address.
    pub fn name(fd: &OwnedFd, own: Ipv4Addr) -> Option<Vec<u8>> {
        let bound = net::getsockname(fd).ok().and_then(|address| SocketAddr::try_from(address).ok())?;
        let place = decide::v4(bound).filter(|place| *place.ip() == own)?;
        let port = Some(low_ports::requested_port(own, place.port())).filter(|port| *port != place.port())?;
        Some(address::write(SocketAddr::new(bound.ip(), port)))
    }

    fn bound(&self) -> Option<SocketAddr> {
        net::getsockname(&self.fd).ok().and_then(|address| SocketAddr::try_from(address).ok())
    }
}

/// Whether a UDP socket that is bound to exactly this address, and not to every one, would receive a datagram from `sender`.
pub fn receives_here(own: Ipv4Addr, port: u16, sender: SocketAddrV4) -> bool {
    let local = low_ports::moved_address(SocketAddrV4::new(own, port));
    let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"];
    find(Protocol::Udp, local, sender).map_or_else(
        |DiagUnavailable| is_in_table(tables, local, |_| true),
        |found| found.is_some_and(|socket| socket.local == local.into()),
    )
}

/// Whether a UDP socket that is bound to exactly this address would receive a datagram from an unspecified sender.
pub fn is_bound_here(own: Ipv4Addr, port: u16) -> bool {
    receives_here(own, port, ANY_SENDER)
}

/// Whether a TCP socket listens at exactly this address; a listener on every address does not count.
pub fn listens_here(own: Ipv4Addr, port: u16) -> bool {
    let local = low_ports::moved_address(SocketAddrV4::new(own, port));
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    find(Protocol::Tcp, local, ANY_SENDER).map_or_else(
        |DiagUnavailable| is_in_table(tables, local, |state| state == LISTENS),
        |found| found.is_some_and(|socket| socket.listens && socket.local == local.into()),
    )
}

/// Asks the kernel for a socket. Errors if the kernel does not support the query, so that a missing answer is not read as a missing socket.
fn find(protocol: Protocol, local: SocketAddrV4, remote: SocketAddrV4) -> Result<Option<FoundSocket>, DiagUnavailable> {
    let diag = SocketDiag::open();
    let found = diag.find(protocol, local.into(), remote.into())?;
    if found.is_some() || diag.answers(protocol) { Ok(found) } else { Err(DiagUnavailable) }
}

const ANY_SENDER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// The state of a listening socket in the kernel's tables.
const LISTENS: &str = "0A";

/// Number of readings of a table. One reading may miss a socket while others close.
const READINGS: usize = 3;

/// Whether the kernel's tables contain a socket that is bound to this address and has this state. Only for machines that do not answer
/// questions about one socket.
fn is_in_table(tables: [&str; 2], at: SocketAddrV4, is_state: impl Fn(&str) -> bool) -> bool {
    let wanted = format!("{:08X}:{:04X}", u32::from_ne_bytes(at.ip().octets()), at.port());
    // Mapped addresses end like IPv4 addresses.
    let mut readings = std::iter::repeat_n(tables, READINGS).flat_map(|tables| tables.into_iter().zip([0, 24]));
    readings.any(|(file, at)| {
        let table = std::fs::read_to_string(file).unwrap_or_default();
        table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let is_here = fields.next().is_some_and(|local| local[at.min(local.len())..] == wanted);
            is_here && fields.nth(1).is_some_and(&is_state)
        })
    })
}

/// Binds the pod's own address.
pub fn bind(socket: &CallerSocket, own: Ipv4Addr, port: u16) -> Result<i64, Errno> {
    let (v6, is_v6_only, socket) = (socket.v6, socket.is_v6_only(), &socket.fd);
    if is_v6_only {
        // Pods have no IPv6 addresses, as in an IPv4 cluster. A bind to IPv6 alone gets an unreachable address, so that the port stays free
        // for the IPv4 socket.
        return net::bind(socket, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0)).map(|()| 0);
    }
    net::bind(socket, &for_family(low_ports::moved_address(SocketAddrV4::new(own, port)), v6)).map(|()| 0)
}

/// Connects, from this source address where the socket allows it. A slow connection is left in progress: the kernel continues the call,
/// waits as usual, can be interrupted by signals, and does not read the address again.
pub fn connect(socket: &CallerSocket, from: Ipv4Addr, to: SocketAddrV4) -> CallResult {
    if to.ip().is_loopback() {
        set_source(socket, from);
    }
    let to = for_family(low_ports::moved_address(to), socket.v6);
    let (is_stream, socket) = (socket.is_stream, &socket.fd);
    if !is_stream {
        return Some(net::connect(socket, &to).map(|()| 0));
    }
    let blocks = fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
    let connected = if blocks { connect_blocking(socket, &to) } else { connect_nonblocking(socket, &to) };
    match connected {
        Err(Errno::INPROGRESS | Errno::ALREADY | Errno::AGAIN) if blocks => None,
        connected => Some(connected.map(|()| 0)),
    }
}

/// Connects for a blocking caller: waits a short time.
fn connect_blocking(socket: &OwnedFd, to: &SocketAddr) -> Result<(), Errno> {
    let patience = sockopt::socket_timeout(socket, sockopt::Timeout::Send).unwrap_or(None);
    let _ = sockopt::set_socket_timeout(socket, sockopt::Timeout::Send, Some(CONNECT_TIMEOUT));
    let connected = net::connect(socket, to);
    let _ = sockopt::set_socket_timeout(socket, sockopt::Timeout::Send, patience);
    connected
}

/// Connects for a nonblocking caller: an immediate result, above all a refusal, is returned.
fn connect_nonblocking(socket: &OwnedFd, to: &SocketAddr) -> Result<(), Errno> {
    match net::connect(socket, to) {
        Err(Errno::INPROGRESS) => {}
        other => return other,
    }
    let timeout = Timespec { tv_sec: 0, tv_nsec: CONNECT_TIMEOUT.subsec_nanos().into() };
    let _ = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout));
    match net::connect(socket, to) {
        Err(Errno::ALREADY) => Err(Errno::INPROGRESS),
        other => other,
    }
}

/// Sends a datagram, from this source address where the socket allows it.
pub fn send(socket: &CallerSocket, from: Ipv4Addr, to: SocketAddrV4, message: &[u8], flags: i32) -> Result<i64, Errno> {
    let (flags, is_near) = (flags | libc::MSG_DONTWAIT, to.ip().is_loopback());
    let to = for_family(low_ports::moved_address(to), socket.v6);
    if is_near && socket.is_everywhere() {
        return send_from(&socket.fd, from, &to, message, flags);
    }
    if is_near {
        set_source(socket, from);
    }
    let flags = SendFlags::from_bits_retain(flags as u32);
    net::sendto(&socket.fd, message, flags, &to).map(|sent| sent as i64)
}

/// The source address of a datagram, as the kernel reads it (ip(7), `IP_PKTINFO`; IPv6 sockets accept it for mapped
/// addresses).
#[repr(C)]
struct DatagramSource {
    header: libc::cmsghdr,
    info: libc::in_pktinfo,
}

/// Sends one datagram from an address, without binding the socket.
fn send_from(socket: &OwnedFd, from: Ipv4Addr, to: &SocketAddr, message: &[u8], flags: i32) -> Result<i64, Errno> {
    let none = libc::in_addr { s_addr: 0 };
    let from = libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
    let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: from, ipi_addr: none };
    let length = size_of::<libc::cmsghdr>() + size_of::<libc::in_pktinfo>();
    // SAFETY: all zeroes is a valid value of these structures.
    let (mut header, mut whole) = unsafe { (std::mem::zeroed::<libc::cmsghdr>(), std::mem::zeroed::<libc::msghdr>()) };
    (header.cmsg_len, header.cmsg_level, header.cmsg_type) = (length as _, libc::IPPROTO_IP, libc::IP_PKTINFO);
    let mut source = DatagramSource { header, info };
    let mut bytes = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    (whole.msg_iov, whole.msg_iovlen) = (&raw mut bytes, 1);
    (whole.msg_control, whole.msg_controllen) = ((&raw mut source).cast(), size_of::<DatagramSource>() as _);
    // SAFETY: the pointers are valid during the call; the kernel reads the address, the message and the source, and keeps no pointer.
    let sent = unsafe {
        to.with_sockaddr(|address, length| {
            (whole.msg_name, whole.msg_namelen) = (address.cast_mut().cast(), length);
            libc::sendmsg(socket.as_raw_fd(), &whole, flags)
        })
    };
    if sent < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    Ok(sent as i64)
}

/// Sets the source address. A socket that is bound to an address keeps it. A datagram socket with only a port keeps that port.
pub fn set_source(socket: &CallerSocket, from: Ipv4Addr) {
    let port = match socket.bound() {
        Some(address) if address.port() == 0 && address.ip().to_canonical().is_unspecified() => 0,
        // Disconnecting releases a port that the kernel chose (`__udp_disconnect`), so the socket is bound to it again.
        Some(address) if !socket.is_stream && socket.is_everywhere() => {
            let _ = net::connect_unspec(&socket.fd);
            address.port()
        }
        _ => return,
    };
    let bind = |port| net::bind(&socket.fd, &for_family(Address::new(from, port), socket.v6));
    if port == 0 || bind(port).is_err() {
        // The kernel chooses the port on connect, so that connections to different addresses can share one.
        let _ = no_port_yet(&socket.fd);
        let _ = bind(0);
    }
}

fn no_port_yet(socket: &OwnedFd) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    let (level, name, size) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, size_of_val(&on) as libc::socklen_t);
    // SAFETY: reads a live integer of the given size.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), size) } {
        0 => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::RecvFlags;
    use std::net::UdpSocket;

    const OWN: Ipv4Addr = Ipv4Addr::new(127, 9, 1, 4);

    fn socket(family: AddressFamily, kind: SocketType, call: SocketCall, asked: SocketAddr) -> Option<CallerSocket> {
        let made = net::socket(family, kind, None);
        if matches!(made, Err(Errno::AFNOSUPPORT)) {
            skip!("this machine has no {family:?}");
            return None;
        }
        Some(CallerSocket::new(made.unwrap(), call, asked))
    }

    #[test]
    fn datagrams_leave_from_the_pod_in_all_families() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(to) = server.local_addr().unwrap() else { unreachable!() };
        let mapped = for_family(to, true);
        let table =
            [(AddressFamily::INET, to.into()), (AddressFamily::INET6, to.into()), (AddressFamily::INET6, mapped)];
        for (family, asked) in table {
            for call in [SocketCall::Send, SocketCall::Connect] {
                let Some(socket) = socket(family, SocketType::DGRAM, call, asked) else { continue };
                if call == SocketCall::Send {
                    send(&socket, OWN, to, b"hello", 0).unwrap();
                } else {
                    connect(&socket, OWN, to).unwrap().unwrap();
                    net::send(&socket.fd, b"hello", SendFlags::empty()).unwrap();
                }
                let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
                assert_eq!(from.ip(), OWN, "{family:?} {call:?} {asked}");
            }
        }
    }

    #[test]
    fn socket_bound_to_a_port_only_gets_a_source_address() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(to) = server.local_addr().unwrap() else { unreachable!() };
        for (family, everywhere) in [(AddressFamily::INET, "0.0.0.0:0"), (AddressFamily::INET6, "[::]:0")] {
            for call in [SocketCall::Send, SocketCall::Connect] {
                let asked = for_family(to, family == AddressFamily::INET6);
                let Some(socket) = socket(family, SocketType::DGRAM, call, asked) else { continue };
                net::bind(&socket.fd, &everywhere.parse::<SocketAddr>().unwrap()).unwrap();
                let port = socket.port().unwrap();
                if call == SocketCall::Send {
                    send(&socket, OWN, to, b"hello", 0).unwrap();
                    assert!(socket.is_everywhere(), "it still receives from every address");
                } else {
                    connect(&socket, OWN, to).unwrap().unwrap();
                    net::send(&socket.fd, b"hello", SendFlags::empty()).unwrap();
                }
                let mut bytes = [0; 8];
                let (length, from) = server.recv_from(&mut bytes).unwrap();
                assert_eq!((&bytes[..length], from), (&b"hello"[..], (OWN, port).into()), "{family:?} {call:?}");
                server.send_to(b"answer", from).unwrap();
                let mut answer = [0; 8];
                assert_eq!(net::recv(&socket.fd, &mut answer, RecvFlags::empty()).unwrap().0, 6);
            }
        }
    }

    #[test]
    fn listener_on_every_address_does_not_count_as_specific() {
        for (place, expected) in [("0.0.0.0:0", false), ("127.0.0.1:0", true), ("[::ffff:127.0.0.1]:0", true)] {
            let Ok(listener) = std::net::TcpListener::bind(place) else { continue };
            let port = listener.local_addr().unwrap().port();
            assert_eq!(listens_here(Ipv4Addr::LOCALHOST, port), expected, "{place}");
            let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
            assert_eq!(is_in_table(tables, at, |state| state == LISTENS), expected, "{place}");
        }
    }

    #[test]
    fn datagram_socket_at_every_address_does_not_count_as_specific() {
        for (place, expected) in [("0.0.0.0:0", false), ("127.0.0.1:0", true), ("[::ffff:127.0.0.1]:0", true)] {
            let Ok(socket) = UdpSocket::bind(place) else { continue };
            let port = socket.local_addr().unwrap().port();
            assert_eq!(is_bound_here(Ipv4Addr::LOCALHOST, port), expected, "{place}");
            let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            assert_eq!(is_in_table(["/proc/self/net/udp", "/proc/self/net/udp6"], at, |_| true), expected, "{place}");
        }
    }

    #[test]
    fn connected_socket_receives_from_its_peer_only() {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let (SocketAddr::V4(at), SocketAddr::V4(peer)) = (one.local_addr().unwrap(), other.local_addr().unwrap())
        else {
            unreachable!()
        };
        one.connect(peer).unwrap();
        assert!(receives_here(*at.ip(), at.port(), peer));
        if !SocketDiag::open().answers(Protocol::Udp) {
            skip!("this kernel does not answer questions about sockets");
            return;
        }
        assert!(!is_bound_here(*at.ip(), at.port()));
    }

    #[test]
    fn bound_socket_is_found_while_others_close() {
        let stays = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = stays.local_addr().unwrap().port();
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let open = || UdpSocket::bind("127.0.0.1:0").unwrap();
                // More than fit into the kernel's page of the table.
                let mut others: std::collections::VecDeque<_> = (0..100).map(|_| open()).collect();
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    others.push_back(open());
                    others.pop_front();
                }
            });
            let missed = (0..20_000).filter(|_| !is_bound_here(Ipv4Addr::LOCALHOST, port)).count();
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    fn errors_of_the_kernel_are_passed_on() {
        let (v4, v6): (SocketAddr, SocketAddr) = ("127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap());
        let table = [
            (AddressFamily::INET6, SocketType::DGRAM, v4),
            (AddressFamily::INET6, SocketType::STREAM, v4),
            (AddressFamily::INET, SocketType::DGRAM, v6),
        ];
        for (family, kind, asked) in table {
            let Some(socket) = socket(family, kind, SocketCall::Bind, asked) else { continue };
            assert!(bind(&socket, OWN, 0).is_err(), "{family:?} {kind:?} {asked}");
        }
    }
}
