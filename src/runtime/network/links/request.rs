//! A shim's side of links: which addresses belong to other machines, and the request to listen at one of them.
//!
//! Never: waits longer than [`ANSWER_TIMEOUT`]. Start reading at [`RemoteAddresses::prepare`].

use super::super::super::folder;
use super::super::tables::NetworkTables;
use crate::world::policy::Cidr;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder of the table in the cluster's folder, and its file: a line for each block of addresses, `own` or `remote` and the block.
pub const FOLDER: &str = "links";
pub const REMOTE: &str = "remote";
/// The socket in the cluster's folder at which the gateway answers requests.
const SOCKET: &str = "links.sock";
/// Time for an answer: the gateway opens a socket on this machine.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for which an answer counts. The gateway keeps listeners much longer.
const KNOWN: Duration = Duration::from_secs(5);
/// Maximum number of answers that are kept.
const MAX_ANSWERS: usize = 1024;
/// The answer when the gateway listens.
pub const LISTENS: &str = "ok";

/// Returns the text of the table.
pub fn remote_text(own: Option<Cidr>, remote: impl Iterator<Item = Cidr>) -> String {
    let mut text = String::new();
    own.iter().for_each(|block| _ = writeln!(text, "own {block}"));
    remote.for_each(|block| _ = writeln!(text, "remote {block}"));
    text
}

/// Whether an address belongs to another machine: the smallest block with it counts.
fn is_remote(text: &str, address: Ipv4Addr) -> bool {
    let blocks = text.lines().filter_map(|line| {
        let (kind, block) = line.split_once(' ')?;
        Some((kind == "remote", block.parse::<Cidr>().ok()?))
    });
    let within = blocks.filter(|(_, block)| block.contains(address));
    within.max_by_key(|(_, block)| block.bits).is_some_and(|(is_remote, _)| is_remote)
}

/// Opens the gateway's side of the socket.
pub fn listen(state: &Path) -> io::Result<UnixListener> {
    let folder = File::open(state)?;
    let path = folder::short_path(&folder, SOCKET);
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The addresses of other machines at which the gateway was found to listen.
#[derive(Default)]
pub struct RemoteAddresses {
    state: PathBuf,
    known: HashMap<(SocketAddrV4, bool), Instant>,
}

impl RemoteAddresses {
    /// Knows none yet, in the cluster with this folder.
    pub fn new(state: &Path) -> RemoteAddresses {
        RemoteAddresses { state: state.to_owned(), known: HashMap::new() }
    }

    /// Whether an address is one of another machine.
    pub fn holds(&self, tables: &NetworkTables, address: Ipv4Addr) -> bool {
        let text = tables.text(FOLDER, REMOTE).unwrap_or_default();
        !text.is_empty() && is_remote(&text, address)
    }

    /// Prepares a connection: has the gateway listen at an address of another machine. An address of this machine needs nothing.
    pub fn prepare(&mut self, tables: &NetworkTables, to: SocketAddrV4, is_stream: bool) -> Result<(), Errno> {
        if !self.holds(tables, *to.ip()) {
            return Ok(());
        }
        if self.known.get(&(to, is_stream)).is_some_and(|since| since.elapsed() < KNOWN) {
            return Ok(());
        }
        self.ask(to, is_stream)?;
        if self.known.len() >= MAX_ANSWERS {
            self.known.clear();
        }
        self.known.insert((to, is_stream), Instant::now());
        Ok(())
    }

    fn ask(&self, to: SocketAddrV4, is_stream: bool) -> Result<(), Errno> {
        let exchange = || {
            let mut stream = UnixStream::connect(folder::short_path(&File::open(&self.state)?, SOCKET))?;
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
            writeln!(stream, "{} {to}", if is_stream { "tcp" } else { "udp" })?;
            let mut answer = [0; 8];
            let length = stream.read(&mut answer)?;
            Ok::<_, io::Error>(answer[..length].starts_with(LISTENS.as_bytes()))
        };
        // As of a router whose line is down.
        if exchange().unwrap_or(false) { Ok(()) } else { Err(Errno::HOSTUNREACH) }
    }
}

/// Prepares a single connection of the gateway itself, as [`RemoteAddresses::prepare`] does.
pub fn prepare_once(state: &Path, to: SocketAddrV4) -> Result<(), Errno> {
    RemoteAddresses::new(state).prepare(&NetworkTables::for_state(state), to, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_block_decides_whose_an_address_is() {
        let block = |text: &str| text.parse::<Cidr>().unwrap();
        let is_remote = |text: &str, address: &str| is_remote(text, address.parse().unwrap());
        let text =
            remote_text(Some(block("127.9.64.0/25")), [block("127.9.0.0/18"), block("127.9.64.128/25")].into_iter());
        for (address, expected) in [
            ("127.9.1.4", true),
            ("127.9.64.4", false),
            ("127.9.64.200", true),
            ("127.9.65.1", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_remote(&text, address), expected, "{address}");
        }
        let text = remote_text(Some(block("127.9.0.0/16")), [block("127.9.64.128/25")].into_iter());
        assert!(is_remote(&text, "127.9.64.200") && !is_remote(&text, "127.9.64.4"));
        assert!(!is_remote("", "127.9.64.200") && !is_remote("remote x\nodd", "127.9.64.200"));
    }
}
