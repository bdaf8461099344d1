//! Who holds a port of the machine: on every address, so that nobody else gets it anywhere, or at one.

use std::fmt;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;

/// The state of a socket that listens, as the kernel's tables have it.
pub(super) const LISTENS: &str = "0A";

/// A program that holds a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub program: String,
    /// Its pid; none when it is somebody else's, whom we cannot look at.
    pub pid: Option<u32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.program)?;
        self.pid.map_or(Ok(()), |pid| write!(out, " (pid {pid})"))
    }
}

/// Who listens at a port on every address; none when nobody does.
pub fn holder(port: u16) -> Option<Holder> {
    holder_at(Ipv4Addr::UNSPECIFIED, port)
}

/// Who listens at a port of this address, or of every one; none when nobody does.
pub fn holder_at(at: Ipv4Addr, port: u16) -> Option<Holder> {
    // As the kernel writes them: numbers of the machine's own order.
    let own = format!("{:08X}", u32::from_ne_bytes(at.octets()));
    let mapped = format!("0000000000000000FFFF0000{own}");
    let inode = [("/proc/net/tcp", own), ("/proc/net/tcp6", mapped)].into_iter().find_map(|(file, own)| {
        let table = fs::read_to_string(file).unwrap_or_default();
        table.lines().find_map(|line| inode(line, &own, port))
    })?;
    let pid = pids().find(|pid| holds(*pid, inode));
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let program = pid.and_then(name).map_or_else(|| "a program of somebody else".into(), |name| name.trim().to_owned());
    Some(Holder { program, pid })
}

/// The inode of a line's socket, when that listens at this port, of this address or of all zeroes.
fn inode(line: &str, own: &str, port: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, number) = fields.get(1)?.split_once(':')?;
    let is_there = address == own || address.bytes().all(|byte| byte == b'0');
    let is_it = is_there && u16::from_str_radix(number, 16) == Ok(port);
    (is_it && *fields.get(3)? == LISTENS).then(|| fields.get(9)?.parse().ok())?
}

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
}
