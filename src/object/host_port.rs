//! A host and a port as one text.

use std::fmt::Display;

/// Joins a host and a port; IPv6 in brackets.
pub fn host_port(host: &str, port: impl Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns the host without the port that may follow it; IPv6 keeps its brackets.
pub fn strip_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_joined_and_stripped() {
        for (host, port, joined) in [("a.b", 80, "a.b:80"), ("::1", 8001, "[::1]:8001"), ("10.0.0.1", 1, "10.0.0.1:1")]
        {
            assert_eq!(host_port(host, port), joined);
            assert_eq!(strip_port(joined).trim_matches(['[', ']']), host);
        }
        assert_eq!(["a.b", "[::1]", "a:http"].map(strip_port), ["a.b", "[::1]", "a:http"]);
    }
}
