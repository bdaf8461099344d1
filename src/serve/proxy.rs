//! Proxies to pods, Services and nodes: `pods/[SCHEME:]NAME[:PORT]/proxy/PATH` (`apimachinery/pkg/util/net`: SplitSchemeNamePort).
//!
//! Knows: the address of the target. [`super::http`] forwards the request. The node's own server is [`node_server`].

use super::ServeResult;
use super::answer::HttpAnswer;
use super::node_server;
use super::remote_kubelet;
use super::request::{ApiRequest, encode_query};
use super::resolve::ResolvedTarget;
use super::target::{ProxyTarget, ProxyTls};
use crate::apiserver::Api;
use crate::apiserver::read;
use crate::apiserver::service_endpoints::{ServicePort, find_ready};
use crate::kinds::node::internal_ip;
use crate::object::{Key, Object, Reason, Status};
use std::net::{IpAddr, SocketAddr};

/// The port at which kubelets usually listen.
const KUBELET_PORT: i64 = 10250;

/// The object that a request addresses.
#[derive(Debug, PartialEq)]
struct AddressedObject<'a> {
    is_tls: bool,
    name: &'a str,
    /// A number, a name, or empty.
    port: &'a str,
}

/// Splits the scheme, name and port of the addressed object.
fn split_name(words: &str) -> ServeResult<AddressedObject<'_>> {
    let (scheme, name, port) = match words.split(':').collect::<Vec<_>>()[..] {
        [name] => ("", name, ""),
        [name, port] => ("", name, port),
        [scheme, name, port] => (scheme, name, port),
        _ => return Err(Status::bad_request(format!("invalid proxy request {words:?}"))),
    };
    match scheme {
        "" | "http" | "https" if !name.is_empty() => Ok(AddressedObject { is_tls: scheme == "https", name, port }),
        _ => Err(Status::bad_request(format!("invalid proxy request {words:?}"))),
    }
}

/// Forwards a request.
pub fn answer(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    // Number of segments before the target's path: `/api/v1/namespaces/NAMESPACE/pods/NAME/proxy/`.
    let before = if asked.namespace.is_some() { 8 } else { 6 };
    let path = match request.path.splitn(before + 1, '/').nth(before) {
        Some(path) => path,
        // Relative links on a page need the final slash. Only clients that read are redirected: others would repeat a redirected request
        // as GET.
        None if request.upgrade.is_none() && matches!(request.method.as_str(), "GET" | "HEAD") => {
            let pairs = request.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let query = if request.query.is_empty() { String::new() } else { format!("?{}", encode_query(pairs)) };
            let moved = HttpAnswer { code: 301, ..HttpAnswer::text("") };
            return Ok(moved.with_header("Location", format!("{}/{query}", request.path)));
        }
        None => "",
    };
    let AddressedObject { is_tls, name, port } = split_name(asked.name)?;
    let key = Key::new(asked.kind.resource, asked.namespace.unwrap_or_default(), name);
    let object = api.read_view(|txn| read::exact(txn, &key))?;
    let place = match asked.kind.kind {
        "Pod" => pod_place(&object, port)?,
        "Service" => service_place(api, &object, port)?,
        _ if port.is_empty() || is_kubelets(port, &object) => {
            let query = remote_kubelet::kubelet_query(request);
            let elsewhere = remote_kubelet::forward_to_kubelet(api, request, name, (format!("/{path}"), query))?;
            return elsewhere.map_or_else(|| node_server::answer(api, request, &object, path), Ok);
        }
        _ => node_place(&object, port)?,
    };
    let tls = if is_tls { ProxyTls::AnyCertificate } else { ProxyTls::Plain };
    let prefix = request.path.strip_suffix(path).map(|prefix| prefix.trim_end_matches('/').to_owned());
    let (path, body) = (format!("/{path}"), request.body.clone());
    Ok(HttpAnswer::proxied(ProxyTarget { place, tls, path, prefix, query: None, body }))
}

fn parse_port(port: &str) -> ServeResult<u16> {
    port.parse().ok().filter(|port| *port > 0).ok_or_else(|| Status::bad_request(format!("invalid port {port:?}")))
}

fn pod_place(pod: &Object, port: &str) -> ServeResult<SocketAddr> {
    let mut ports =
        pod.items(&["spec", "containers"]).iter().filter_map(|one| one["ports"][0]["containerPort"].as_u64());
    let port = match port {
        "" => ports.next().and_then(|port| u16::try_from(port).ok()).unwrap_or(80),
        port => parse_port(port)?,
    };
    let address: Option<IpAddr> = pod.text(&["status", "podIP"]).and_then(|address| address.parse().ok());
    Ok(SocketAddr::new(address.ok_or_else(|| Status::bad_request("address not allowed"))?, port))
}

fn node_place(node: &Object, port: &str) -> ServeResult<SocketAddr> {
    let address = internal_ip(node);
    Ok(SocketAddr::new(address.ok_or_else(|| Status::bad_request("address not allowed"))?, parse_port(port)?))
}

/// Whether a port is that of a node's kubelet: the one that the node names, or Kubernetes' usual one where this server answers in its
/// place.
fn is_kubelets(port: &str, node: &Object) -> bool {
    let named = node.int(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]).filter(|port| *port > 0);
    let has_usual = named.is_none() || remote_kubelet::is_run_by_control_plane(node);
    port.parse().is_ok_and(|port: i64| Some(port) == named || has_usual && port == KUBELET_PORT)
}

/// Returns a ready endpoint of a Service; `port` is a number or name of one of its ports.
fn service_place(api: &Api, service: &Object, port: &str) -> ServeResult<SocketAddr> {
    let unavailable = |text: String| Status::new(Reason::ServiceUnavailable, text);
    let missing = || unavailable(format!("no endpoints available for service {:?}", service.name()));
    let port = match port.parse::<u64>() {
        Ok(number) => ServicePort::Number(number),
        Err(_) if port.is_empty() => ServicePort::Only,
        Err(_) => ServicePort::Name(port),
    };
    api.read_view(|txn| find_ready(txn, service, port))?.ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_have_schemes_and_ports() {
        let found = |is_tls, name, port| Ok(AddressedObject { is_tls, name, port });
        assert_eq!(split_name("web"), found(false, "web", ""));
        assert_eq!(split_name("web:80"), found(false, "web", "80"));
        assert_eq!(split_name("http:web:metrics"), found(false, "web", "metrics"));
        assert_eq!(split_name("https:web:443"), found(true, "web", "443"));
        assert_eq!(split_name(":web:"), found(false, "web", ""));
        for words in ["ftp:web:80", "a:b:c:d", ":80", "https::443"] {
            assert_eq!(split_name(words).map_err(|status| status.reason), Err(Reason::BadRequest), "{words}");
        }
    }

    #[test]
    fn pods_are_reached_at_their_first_port() {
        let pod = Object(
            json!({"spec": {"containers": [{}, {"ports": [{"containerPort": 8080}]}]}, "status": {"podIP": "127.1.2.3"}}),
        );
        assert_eq!(pod_place(&pod, "").unwrap().to_string(), "127.1.2.3:8080");
        assert_eq!(pod_place(&pod, "81").unwrap().to_string(), "127.1.2.3:81");
        assert!(pod_place(&pod, "x").is_err() && pod_place(&Object(json!({})), "80").is_err());
    }
}
