//! The server of a cluster entry: the path of a state file, the address of a state on etcd, or that of an API server.

use crate::store;
use std::path::{Path, PathBuf};

/// The place where a cluster entry has its cluster.
#[derive(Debug, PartialEq, Eq)]
pub enum Location {
    /// A state file.
    File(PathBuf),
    /// A state on etcd.
    Etcd(String),
    /// An API server.
    Server(String),
    /// A scheme that is neither.
    Unknown(String),
    /// The entry has no server.
    Missing,
}

impl Location {
    /// Parses the server of a cluster entry. `folder`: the folder below which relative paths are.
    pub fn parse(server: &str, folder: &Path) -> Location {
        match server.split_once("://") {
            _ if server.is_empty() => Location::Missing,
            Some(("file", path)) => Location::File(folder.join(path.strip_prefix("localhost").unwrap_or(path))),
            Some(_) if store::is_etcd(server) => Location::Etcd(server.to_owned()),
            Some(("http" | "https", _)) => Location::Server(server.to_owned()),
            Some(_) => Location::Unknown(server.to_owned()),
            None if is_path(server) => Location::File(folder.join(server)),
            // kubectl takes a host without a scheme, too.
            None => Location::Server(server.to_owned()),
        }
    }
}

/// Whether a server without a scheme is a path: it has a folder, or the ending of a state file, or is a file.
fn is_path(server: &str) -> bool {
    server.starts_with(['/', '.', '~']) || server.ends_with(".db") || Path::new(server).is_file()
}

/// Returns the server to store for the value of `--server`: the URL of a state file has its absolute path.
pub fn absolute_server(server: &str) -> String {
    if let Some(etcd) = server.strip_prefix("file://").filter(|server| store::is_etcd(server)) {
        return etcd.to_owned();
    }
    match Location::parse(server, Path::new("")) {
        Location::File(path) => format!("file://{}", std::path::absolute(&path).unwrap_or(path).display()),
        _ => server.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_paths_or_addresses() {
        let parse = |server: &str| Location::parse(server, Path::new("/etc/kloop"));
        let file = |path: &str| Location::File(path.into());
        for (server, expected) in [
            ("file:///a/state.db", file("/a/state.db")),
            ("file://localhost/a/state.db", file("/a/state.db")),
            ("/a/state.db", file("/a/state.db")),
            ("./a.db", file("/etc/kloop/./a.db")),
            ("a.db", file("/etc/kloop/a.db")),
            ("https://10.0.0.1:6443", Location::Server("https://10.0.0.1:6443".into())),
            ("localhost:8080", Location::Server("localhost:8080".into())),
            ("etcd://a/b", Location::Etcd("etcd://a/b".into())),
            ("ftp://a/b", Location::Unknown("ftp://a/b".into())),
            ("", Location::Missing),
        ] {
            assert_eq!(parse(server), expected, "{server}");
        }
        assert_eq!(absolute_server("/a/b.db"), "file:///a/b.db");
        assert_eq!(absolute_server("https://a"), "https://a");
    }
}
