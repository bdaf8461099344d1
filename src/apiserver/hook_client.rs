//! The server of a webhook, of admission or conversion: its URL, or a ready endpoint of its Service.

use super::service_endpoints::{ServicePort, find_ready};
use super::transaction::Transaction;
use crate::object::{Key, Resource};
use crate::runtime::https::HttpsTarget;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;

/// The server of a webhook.
#[derive(Clone, Debug)]
pub struct HookClient {
    /// Its URL or Service.
    pub location: HookLocation,
    /// Authorities in PEM format; `None` for those of the system.
    pub authorities: Option<Arc<[u8]>>,
}

/// The place of a webhook's server.
#[derive(Clone, Debug)]
pub enum HookLocation {
    /// A URL.
    Url {
        /// `127.0.0.1`
        host: String,
        /// The port, also when the URL does not name it.
        port: u16,
        /// `/check`, as [`clean_path`] writes it.
        path: String,
    },
    /// A Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The port of the Service.
        port: u16,
        /// `/check`, as [`clean_path`] writes it.
        path: String,
    },
}

/// The server of a webhook that is to be called, and its URL as messages show it.
pub struct Endpoint {
    /// The URL, with the timeout as a parameter where it has one.
    pub url: String,
    /// The server; or the reason why there is none.
    pub target: Result<HttpsTarget, String>,
}

/// Finds the server. The URL gets the parameter `timeout`, in seconds.
pub fn find_endpoint(txn: &dyn Transaction, client: &HookClient, timeout: u64) -> Endpoint {
    let query = format!("?timeout={timeout}s");
    let target = |host: &str, port: u16, path: &str, place| {
        let path = format!("{path}{query}");
        HttpsTarget { host: host.to_owned(), port, path, place, authorities: client.authorities.clone() }
    };
    match &client.location {
        HookLocation::Url { host, port, path } => {
            let standard = if *port == 443 { String::new() } else { format!(":{port}") };
            let url = format!("https://{host}{standard}{path}{query}");
            Endpoint { url, target: Ok(target(host, *port, path, None)) }
        }
        HookLocation::Service { namespace, name, port, path } => {
            let host = format!("{name}.{namespace}.svc");
            let url = format!("https://{host}:{port}{path}{query}");
            let found = find_service(txn, namespace, name, *port);
            Endpoint { url, target: found.map(|place| target(&host, *port, path, Some(place))) }
        }
    }
}

fn find_service(txn: &dyn Transaction, namespace: &str, name: &str, port: u16) -> Result<SocketAddr, String> {
    let missing = || format!("service {name:?} not found");
    let key = Key::new(Resource("services"), namespace, name);
    let service = txn.get_shared(&key).map_err(|status| status.message)?.ok_or_else(missing)?;
    let found = find_ready(txn, &service, ServicePort::Number(u64::from(port))).map_err(|status| status.message)?;
    found.ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

impl HookClient {
    /// Reads `clientConfig`, which was validated.
    pub fn read(config: &Value) -> HookClient {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = &config["service"];
        let location = match config["url"].as_str() {
            Some(url) => split_url(url),
            None => HookLocation::Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
                path: clean_path(service["path"].as_str().unwrap_or_default()),
            },
        };
        let bundle = config["caBundle"].as_str().filter(|bundle| !bundle.is_empty());
        let decode = |bundle: &str| Arc::from(BASE64_STANDARD.decode(bundle).unwrap_or_default());
        HookClient { location, authorities: bundle.map(decode) }
    }
}

fn split_url(url: &str) -> HookLocation {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = match authority.rsplit_once(':') {
        // A call to a port that does not exist fails.
        Some((host, port)) if !port.contains(']') && !port.is_empty() => (host, port.parse().unwrap_or(0)),
        Some((host, "")) => (host, 443),
        _ => (authority, 443),
    };
    HookLocation::Url { host: host.to_owned(), port, path: clean_path(path) }
}

/// Writes a path as client-go sends it: absolute, without empty segments, `.`, `..` and a slash at the end. Servers in Go redirect
/// requests to other forms, and envtest gives URLs two slashes after the port.
fn clean_path(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn path_of_a_webhook_is_sent_without_empty_segments() {
        let path = |config: &Value| match HookClient::read(config).location {
            HookLocation::Url { path, .. } | HookLocation::Service { path, .. } => path,
        };
        let cases = [
            ("//mutate", "/mutate"),
            ("/a//b/", "/a/b"),
            ("", "/"),
            ("/", "/"),
            ("/a/./b/../c", "/a/c"),
            ("/../a", "/a"),
        ];
        for (written, sent) in cases {
            assert_eq!(path(&json!({"url": format!("https://127.0.0.1:9443{written}")})), sent, "{written}");
            assert_eq!(path(&json!({"service": {"namespace": "n", "name": "s", "path": written}})), sent, "{written}");
        }
    }
}
