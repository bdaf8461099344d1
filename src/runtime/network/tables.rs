//! The cluster's tables (routes, policies) as a shim reads them: files, cached while nothing changes.
//!
//! A process that changes a table then writes a new number into a separate file, the stamp. While the number is unchanged, readers use
//! their cache, so that a connection costs one small read. Cached texts, and the flows that they allow, are dropped after a second in any
//! case.

use super::random::random_number;
use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The stamp's name in a cluster's folder.
const STAMP: &str = "tables.stamp";
/// Maximum age of a cached text: a writer may have died between writing the table and the stamp.
const MAX_CACHE_AGE: Duration = Duration::from_secs(1);
/// Maximum number of cached texts, and of flows.
const MAX_CACHED: usize = 1024;

/// Changes the stamp; call it after each change of a table, so that readers drop their caches.
pub fn renew(state: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(state.join(STAMP), flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all_at(&random_number().to_ne_bytes(), 0)
}

/// Removes the files of a table whose names are stale, and changes the stamp.
pub fn sweep(state: &Path, table: &str, is_stale: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(state.join(table)).into_iter().flatten().flatten() {
        if is_stale(&entry.file_name().to_string_lossy()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = renew(state);
}

/// The tables of a cluster.
pub struct NetworkTables {
    state: PathBuf,
    kept: RefCell<CachedTable>,
}

/// A cached file.
struct CachedTable {
    stamp: Option<File>,
    number: Option<[u8; 8]>,
    since: Instant,
    texts: HashMap<(&'static str, TableName), Rc<str>>,
    /// Flows that the policies allow.
    allowed: HashSet<AllowedFlow>,
}

/// A connection, or a datagram, that the policies allow.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AllowedFlow {
    /// The client.
    pub from: Ipv4Addr,
    /// The server.
    pub to: SocketAddrV4,
    /// Whether it is a datagram.
    pub is_datagram: bool,
}

/// The name of a table's file. An address is not written out before the file is opened, because connections wait for it.
#[derive(PartialEq, Eq, Hash)]
pub enum TableName {
    /// An address, such as a pod's.
    Address(Ipv4Addr),
    /// Any other name.
    Other(String),
}

impl From<Ipv4Addr> for TableName {
    fn from(address: Ipv4Addr) -> TableName {
        TableName::Address(address)
    }
}

impl From<&str> for TableName {
    fn from(name: &str) -> TableName {
        TableName::Other(name.to_owned())
    }
}

impl NetworkTables {
    /// Opens the tables of the cluster with this folder.
    pub fn for_state(state: &Path) -> NetworkTables {
        let (texts, allowed) = (HashMap::new(), HashSet::new());
        let kept = CachedTable { stamp: None, number: None, since: Instant::now(), texts, allowed };
        NetworkTables { state: state.to_owned(), kept: RefCell::new(kept) }
    }

    /// Checks the stamp: texts and allowed flows returned from now on are current.
    pub fn refresh(&self) {
        let mut kept = self.kept.borrow_mut();
        if kept.stamp.is_none() {
            kept.stamp = File::open(self.state.join(STAMP)).ok();
        }
        let mut bytes = [0; 8];
        let number = kept.stamp.as_ref().and_then(|stamp| stamp.read_exact_at(&mut bytes, 0).ok()).map(|()| bytes);
        if number.is_none()
            || number != kept.number
            || kept.since.elapsed() >= MAX_CACHE_AGE
            || kept.texts.len() >= MAX_CACHED
        {
            kept.texts.clear();
            kept.allowed.clear();
            kept.number = number;
            kept.since = Instant::now();
        }
    }

    /// Whether the cached tables are known to allow a flow.
    pub fn allows(&self, flow: &AllowedFlow) -> bool {
        self.kept.borrow().allowed.contains(flow)
    }

    /// Remembers that the tables allow a flow, until they change.
    pub fn note_allowed(&self, flow: AllowedFlow) {
        let mut kept = self.kept.borrow_mut();
        if kept.allowed.len() < MAX_CACHED {
            kept.allowed.insert(flow);
        }
    }

    /// Returns the text of a table's file; empty when it does not exist. A file that cannot be read (for lack of
    /// descriptors, say) is an error, and the next call reads it again.
    pub fn text(&self, folder: &'static str, name: impl Into<TableName>) -> io::Result<Rc<str>> {
        let at = (folder, name.into());
        if let Some(text) = self.kept.borrow().texts.get(&at) {
            return Ok(text.clone());
        }
        let folder = self.state.join(folder);
        let file = match &at.1 {
            TableName::Address(address) => folder.join(address.to_string()),
            TableName::Other(name) => folder.join(name),
        };
        let text: Rc<str> = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => "".into(),
            read => read?.into(),
        };
        self.kept.borrow_mut().texts.insert(at, text.clone());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_stamp_invalidates_the_cache() {
        let state = tempfile::tempdir().unwrap();
        let tables = NetworkTables::for_state(state.path());
        std::fs::create_dir(state.path().join("routes")).unwrap();
        let write = |text: &str| std::fs::write(state.path().join("routes/a"), text).unwrap();
        let read = || {
            tables.refresh();
            tables.text("routes", "a").unwrap().to_string()
        };
        assert_eq!(read(), "");
        write("one");
        assert_eq!(read(), "one", "without a stamp nothing is cached");
        write("two");
        renew(state.path()).unwrap();
        assert_eq!(read(), "two");
        fs::remove_file(state.path().join("routes/a")).unwrap();
        renew(state.path()).unwrap();
        assert_eq!(read(), "");
    }

    #[test]
    fn unreadable_table_is_an_error_and_is_not_cached() {
        let state = tempfile::tempdir().unwrap();
        let (tables, file) = (NetworkTables::for_state(state.path()), state.path().join("routes/a"));
        std::fs::create_dir_all(&file).unwrap();
        renew(state.path()).unwrap();
        tables.refresh();
        assert!(tables.text("routes", "a").is_err());
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, "one").unwrap();
        assert_eq!(&*tables.text("routes", "a").unwrap(), "one", "read again");
    }
}
