//! The address of a server: its scheme, host, port, and the prefix of the API's paths.

use std::fmt;

/// The address of an API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    /// Whether requests are encrypted.
    pub is_tls: bool,
    /// A name or an address, without brackets.
    pub host: String,
    /// The port, also when the URL does not name it.
    pub port: u16,
    /// The path without a slash at its end; usually empty.
    pub prefix: String,
}

impl ServerAddress {
    /// Parses a URL, or a host with or without a port. `is_tls`: whether an address without a scheme is one of HTTPS.
    pub fn parse(text: &str, is_tls: bool) -> Result<ServerAddress, String> {
        let wrong = |why: &str| Err(format!("{text:?} is not a server address: {why}, such as https://10.0.0.1:6443"));
        let (is_tls, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return wrong("it has to start with https:// or http://"),
            None => (is_tls, text),
        };
        if rest.contains(['?', '#', '@']) || rest.contains(char::is_whitespace) || rest.contains(char::is_control) {
            return wrong("it has to be a URL without user, query and fragment");
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match authority.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => return wrong("an IPv6 address has to stand in brackets"),
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            None => Some(if is_tls { 443 } else { 80 }),
            Some(port) => port.parse().ok().filter(|port| *port != 0),
        };
        let Some(port) = port else { return wrong("its port has to be a number from 1 to 65535") };
        if host.is_empty() {
            return wrong("it has to have a host");
        }
        Ok(ServerAddress { is_tls, host: host.to_owned(), port, prefix: path.trim_end_matches('/').to_owned() })
    }

    /// The host as URLs have it.
    fn bracketed_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    /// `10.0.0.1:6443`
    pub fn authority(&self) -> String {
        format!("{}:{}", self.bracketed_host(), self.port)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_kubectl_does() {
        for (text, shown) in [
            ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("https://api.example.com/k8s/clusters/c-1/", "https://api.example.com:443/k8s/clusters/c-1"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("localhost:8080", "https://localhost:8080"),
            ("https://[::1]:6443", "https://[::1]:6443"),
            ("https://[fd00::1]", "https://[fd00::1]:443"),
        ] {
            assert_eq!(ServerAddress::parse(text, true).unwrap().to_string(), shown, "{text}");
        }
        for text in
            ["", "https://", "ftp://a", "https://a:0", "https://a:b", "https://::1:6443", "https://u@a", "https://a b"]
        {
            let error = ServerAddress::parse(text, true).unwrap_err();
            assert!(error.contains("is not a server address"), "{text}: {error}");
        }
    }
}
