//! Requests that another machine's kubelet answers: logs, streams and measurements of its node (`pkg/kubelet/client`).
//!
//! Knows: the status of such a node contains the port of its kubelet. Each request shows a new certificate of the API server, so that no
//! key of it is kept. Never: waits for the kubelet; [`super::http`] forwards the request. Start reading at [`forward_to_kubelet`].

use super::request::{ApiRequest, encode_query};
use super::target::{KubeletTls, ProxyTarget, ProxyTls};
use super::{HttpAnswer, ServeResult};
use crate::apiserver::Api;
use crate::apiserver::user::ADMINISTRATORS;
use crate::kinds::node::RUNTIME_SCHEME;
use crate::kinds::node::internal_ip;
use crate::object::{Key, Object, Reason, Resource, Status, Time};
use crate::reconcile::node::MACHINE;
use crate::runtime::https::trust::TlsClientKey;
use crate::store::meta_keys::JOINED_NODE;
use std::net::SocketAddr;
use std::sync::Arc;

/// The user that the API server is to kubelets.
const CLIENT: &str = "kube-apiserver-kubelet-client";
/// Seconds for which the certificate of a request is valid.
const LIFETIME: i64 = 3600;

/// Returns the answer to a request that the kubelet of a node on another machine answers; `None` for a node of this machine. `query`: the
/// parameters for the kubelet, encoded.
pub fn forward_to_kubelet(
    api: &mut Api,
    request: &ApiRequest,
    node: &str,
    (path, query): (String, String),
) -> ServeResult<Option<HttpAnswer>> {
    let key = Key::new(Resource("nodes"), "", node);
    let Some(object) = api.read_view(|txn| txn.get(&key))? else { return Ok(None) };
    let Some(place) = remote_place(api, &object)? else { return Ok(None) };
    let tls = client_tls(api)?;
    let (tls, body) = (ProxyTls::Kubelet(tls), request.body.clone());
    Ok(Some(HttpAnswer::proxied(ProxyTarget { place, tls, path, prefix: None, query: Some(query), body })))
}

/// Returns the address of the kubelet of a node on another machine; `None` for a node of this machine, whose kubelet has the same answers.
pub fn remote_place(api: &Api, node: &Object) -> ServeResult<Option<SocketAddr>> {
    let Some(port) = kubelet_port(node).filter(|_| !is_run_by_control_plane(node)) else { return Ok(None) };
    // The state of the node itself.
    if api.read(|snapshot| snapshot.meta(JOINED_NODE))?.as_deref() == Some(node.name()) {
        return Ok(None);
    }
    let missing = || Status::new(Reason::ServiceUnavailable, format!("node {:?} has no address", node.name()));
    Ok(Some(SocketAddr::new(internal_ip(node).ok_or_else(missing)?, port)))
}

/// Whether a control plane runs the node itself: no machine has joined as it, and it is not another program's.
pub fn is_run_by_control_plane(node: &Object) -> bool {
    let runtime = node.text(&["status", "nodeInfo", "containerRuntimeVersion"]);
    node.annotation(MACHINE).is_none() && runtime.is_some_and(|runtime| runtime.starts_with(RUNTIME_SCHEME))
}

/// Makes a certificate that the API server shows to kubelets.
pub fn client_tls(api: &mut Api) -> ServeResult<KubeletTls> {
    let keys = api.keys()?;
    let own = keys.certificate_authority()?.issue(CLIENT, &[ADMINISTRATORS.to_owned()], LIFETIME, Time::now());
    let own = own.map_err(|error| Status::new(Reason::InternalError, error.to_string()))?;
    Ok(KubeletTls {
        authorities: Arc::from(keys.authority.as_bytes()),
        own: TlsClientKey { certificate: own.certificate.into(), key: own.key.into() },
    })
}

fn kubelet_port(node: &Object) -> Option<u16> {
    let port = node.int(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"])?;
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Returns the parameters of a request for the kubelet, which has other names for some of them.
pub fn kubelet_query(request: &ApiRequest) -> String {
    let name = |name: &str| {
        match name {
            "stdin" => "input",
            "stdout" => "output",
            "stderr" => "error",
            "ports" => "port",
            other => other,
        }
        .to_owned()
    };
    let known = request.query.iter().filter(|(name, _)| name != "container");
    let value = |name: &str, value: &str| match (name, value) {
        // The kubelet takes numbers for flags.
        ("stdin" | "stdout" | "stderr" | "tty", "true" | "") => "1".to_owned(),
        ("stdin" | "stdout" | "stderr" | "tty", "false") => "0".to_owned(),
        (_, value) => value.to_owned(),
    };
    encode_query(known.map(|(word, text)| (name(word), value(word, text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_the_names_of_the_kubelet() {
        let pairs = [("container", "c"), ("command", "a b"), ("stdin", "true"), ("stdout", "1"), ("stderr", "false")];
        let query = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let request = ApiRequest { query, ..ApiRequest::default() };
        assert_eq!(kubelet_query(&request), "command=a%20b&input=1&output=1&error=0");
    }
}
