//! A host and a port as one text.

use std::fmt::Display;

/// Joins a host and a port; IPv6 in brackets.
pub fn host_port(host: &str, port: impl Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
