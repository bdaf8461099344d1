//! Headers of requests and answers that a proxy passes on.
//!
//! Knows: which headers are of one connection only. Never: adds headers; each proxy adds its own.

use hyper::header::{self, HeaderMap, HeaderName};

/// Headers of one connection, which no proxy forwards (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Removes the headers of one connection, and those that `Connection` names.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("connection", "close, x-own"), ("x-own", "1"), ("te", "trailers"), ("accept", "a/b")] {
            headers.insert(name, value.parse().unwrap());
        }
        headers.insert("proxy-connection", "keep-alive".parse().unwrap());
        remove_hop_by_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
