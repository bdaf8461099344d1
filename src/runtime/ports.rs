//! Finds the program that holds a port of the machine.

use procfs::net::{self, TcpState, UdpState};
use procfs::process::{self, FDTarget, Process};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A program that holds a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHolder {
    /// Its name.
    pub program: String,
    /// Its pid; `None` for a process of another user, which cannot be inspected.
    pub pid: Option<u32>,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.program)?;
        self.pid.map_or(Ok(()), |pid| write!(out, " (pid {pid})"))
    }
}

/// Returns the program that listens on a port on every address.
pub fn holder(port: u16) -> Option<PortHolder> {
    holder_at(Ipv4Addr::UNSPECIFIED, port)
}

/// Returns the program that listens on a port of this address or of every one.
pub fn holder_at(at: Ipv4Addr, port: u16) -> Option<PortHolder> {
    find(tcp_listeners(), port, |address| address == at).map(|(_, holder)| holder)
}

/// Returns the program that holds a TCP or UDP port, on every address or on a matching one, and the address.
pub fn holder_where(port: u16, is_meant: impl Fn(Ipv4Addr) -> bool) -> Option<(Ipv4Addr, PortHolder)> {
    find(tcp_listeners(), port, &is_meant).or_else(|| find(udp_sockets(), port, &is_meant))
}

/// Returns the addresses and ports of this machine at which programs listen over TCP, IPv4 only.
pub fn listeners() -> Vec<(Ipv4Addr, u16)> {
    let at = |(address, _): (SocketAddr, u64)| match address.ip().to_canonical() {
        IpAddr::V4(ip) => Some((ip, address.port())),
        IpAddr::V6(_) => None,
    };
    tcp_listeners().filter_map(at).collect()
}

/// The addresses and inodes of the sockets that listen over TCP.
fn tcp_listeners() -> impl Iterator<Item = (SocketAddr, u64)> {
    let all = [net::tcp(), net::tcp6()].into_iter().flatten().flatten();
    all.filter(|entry| entry.state == TcpState::Listen).map(|entry| (entry.local_address, entry.inode))
}

/// The addresses and inodes of the UDP sockets that are not connected.
fn udp_sockets() -> impl Iterator<Item = (SocketAddr, u64)> {
    let all = [net::udp(), net::udp6()].into_iter().flatten().flatten();
    all.filter(|entry| entry.state == UdpState::Close).map(|entry| (entry.local_address, entry.inode))
}

/// Finds the program of a socket, first those that are bound to all addresses.
fn find(
    sockets: impl Iterator<Item = (SocketAddr, u64)>,
    port: u16,
    is_meant: impl Fn(Ipv4Addr) -> bool,
) -> Option<(Ipv4Addr, PortHolder)> {
    let at_port = sockets.filter(|(address, _)| address.port() == port);
    let all = at_port.filter_map(|(address, inode)| match address.ip().to_canonical() {
        IpAddr::V4(address) => Some((address, inode)),
        IpAddr::V6(address) => address.is_unspecified().then_some((Ipv4Addr::UNSPECIFIED, inode)),
    });
    let meant = all.filter(|(address, _)| address.is_unspecified() || is_meant(*address));
    let (address, inode) = meant.min_by_key(|(address, _)| !address.is_unspecified())?;
    let holder = process::all_processes().into_iter().flatten().flatten().find(|process| holds(process, inode));
    let program = holder.as_ref().and_then(|process| process.stat().ok());
    let program = program.map_or_else(|| "a program of another user".into(), |stat| stat.comm);
    Some((address, PortHolder { program, pid: holder.map(|process| process.pid.unsigned_abs()) }))
}

fn holds(process: &Process, inode: u64) -> bool {
    process.fd().is_ok_and(|all| all.flatten().any(|fd| fd.target == FDTarget::Socket(inode)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listener_on_every_address_is_found_and_no_other() {
        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        let found = holder(everywhere.local_addr().unwrap().port()).expect("this process");
        assert_eq!(found.pid, Some(std::process::id()));
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = here.local_addr().unwrap().port();
        assert_eq!(holder(port), None);
        let local = holder_at(Ipv4Addr::LOCALHOST, port).expect("this process");
        assert_eq!(local.pid, Some(std::process::id()));
        assert_eq!(holder_at(Ipv4Addr::new(127, 0, 0, 2), port), None);
    }

    #[test]
    fn holder_of_a_port_is_found_with_its_address() {
        let at = Ipv4Addr::new(127, 0, 0, 9);
        let (tcp, udp) = (TcpListener::bind((at, 0)).unwrap(), std::net::UdpSocket::bind((at, 0)).unwrap());
        for port in [tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port()] {
            let found = holder_where(port, |address| address.is_loopback()).expect("this process");
            assert_eq!((found.0, found.1.pid), (at, Some(std::process::id())));
            // No test binds this one.
            assert_eq!(holder_where(port, |address| address == Ipv4Addr::new(127, 0, 0, 10)), None);
        }
    }
}
