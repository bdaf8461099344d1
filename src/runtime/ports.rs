//! Who holds a port of the machine on every address, so that nobody else gets it anywhere.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The state of a socket that listens, as the kernel's tables have it.
const LISTENS: &str = "0A";

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
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|file| {
        let table = fs::read_to_string(file).unwrap_or_default();
        table.lines().find_map(|line| inode(line, port))
    })?;
    let pid = pids().find(|pid| holds(*pid, inode));
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let program = pid.and_then(name).map_or_else(|| "a program of somebody else".into(), |name| name.trim().to_owned());
    Some(Holder { program, pid })
}

/// The inode of a line's socket, when that listens at this port of all zeroes.
fn inode(line: &str, port: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, number) = fields.get(1)?.split_once(':')?;
    let is_it = u16::from_str_radix(number, 16) == Ok(port) && address.bytes().all(|byte| byte == b'0');
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
        assert_eq!(holder(here.local_addr().unwrap().port()), None);
    }
}
