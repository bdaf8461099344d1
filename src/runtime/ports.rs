//! Finds the program that holds a port of the machine, on every address or on one.

use std::fmt;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;

/// The state of a socket that listens, as the kernel's tables have it.
pub(super) const LISTENS: &str = "0A";

/// A program that holds a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHolder {
    /// Its name.
    pub program: String,
    /// Its pid; none when it is somebody else's, whom we cannot look at.
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
    find(&TCP, port, |address| address == at).map(|(_, holder)| holder)
}

/// Returns the program that holds a TCP or UDP port, on every address or on a matching one, and the address.
pub fn holder_where(port: u16, is_meant: impl Fn(Ipv4Addr) -> bool) -> Option<(Ipv4Addr, PortHolder)> {
    find(&TCP, port, &is_meant).or_else(|| find(&UDP, port, &is_meant))
}

/// The kernel's tables of sockets of one protocol, and the state of those that wait for somebody.
struct SocketTables {
    files: [&'static str; 2],
    waits: &'static str,
}

const TCP: SocketTables = SocketTables { files: ["/proc/net/tcp", "/proc/net/tcp6"], waits: LISTENS };
const UDP: SocketTables = SocketTables { files: ["/proc/net/udp", "/proc/net/udp6"], waits: "07" };

/// Programs on every address come first: others may hold theirs beside a program on another address.
fn find(tables: &SocketTables, port: u16, is_meant: impl Fn(Ipv4Addr) -> bool) -> Option<(Ipv4Addr, PortHolder)> {
    let text = tables.files.map(|file| fs::read_to_string(file).unwrap_or_default());
    let all = text.iter().flat_map(|table| table.lines()).filter_map(|line| socket(line, port, tables.waits));
    let meant = all.filter(|(address, _)| address.is_unspecified() || is_meant(*address));
    let (address, inode) = meant.min_by_key(|(address, _)| !address.is_unspecified())?;
    let pid = pids().find(|pid| holds(*pid, inode));
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let program = pid.and_then(name).map_or_else(|| "a program of somebody else".into(), |name| name.trim().to_owned());
    Some((address, PortHolder { program, pid }))
}

/// The address and the inode of a line's socket, when that is at this port, in this state, and of IPv4 or of every address.
fn socket(line: &str, port: u16, state: &str) -> Option<(Ipv4Addr, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, number) = fields.get(1)?.split_once(':')?;
    if u16::from_str_radix(number, 16) != Ok(port) || *fields.get(3)? != state {
        return None;
    }
    let is_everywhere = address.bytes().all(|byte| byte == b'0');
    let v4 = if is_everywhere { "00000000" } else { address.strip_prefix(MAPPED).unwrap_or(address) };
    // As the kernel writes them: numbers of the machine's own order.
    let address = (v4.len() == 8).then(|| u32::from_str_radix(v4, 16).ok())??;
    Some((Ipv4Addr::from(address.to_ne_bytes()), fields.get(9)?.parse().ok()?))
}

/// First bytes of a mapped address, as the kernel prints them.
const MAPPED: &str = "0000000000000000FFFF0000";

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn holds(pid: u32, inode: u64) -> bool {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    fds.into_iter().any(|fd| fs::metadata(fd.path()).is_ok_and(|file| file.ino() == inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_listens_everywhere_is_found_and_nobody_else() {
        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        let found = holder(everywhere.local_addr().unwrap().port()).expect("this process");
        assert_eq!(found.pid, Some(std::process::id()));
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = here.local_addr().unwrap().port();
        assert_eq!(holder(port), None);
        let of_here = holder_at(Ipv4Addr::LOCALHOST, port).expect("this process");
        assert_eq!(of_here.pid, Some(std::process::id()));
        assert_eq!(holder_at(Ipv4Addr::new(127, 0, 0, 2), port), None);
    }

    #[test]
    fn where_a_port_is_held_is_told() {
        let at = Ipv4Addr::new(127, 0, 0, 9);
        let (tcp, udp) = (TcpListener::bind((at, 0)).unwrap(), std::net::UdpSocket::bind((at, 0)).unwrap());
        for port in [tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port()] {
            let found = holder_where(port, |address| address.is_loopback()).expect("this process");
            assert_eq!((found.0, found.1.pid), (at, Some(std::process::id())));
            assert_eq!(holder_where(port, |address| address == Ipv4Addr::LOCALHOST), None);
        }
    }
}
