//! The Service `kubernetes` of every cluster: recreated after deletion, as Kubernetes' API server does. Its endpoints are
//! written by each process that serves the API, which alone knows its address.

use crate::object::{Key, Object, Resource};
use crate::world::{Loop, Plan, Row, SERVICE_NAME, World, WriteVerb, ingress_routes};
use serde_json::json;
use std::net::SocketAddr;

const ROOT: &str = "namespaces";
/// The namespace of the Service and its endpoints.
pub const NAMESPACE: &str = "default";
/// The name of the Service, its Endpoints and its EndpointSlice.
pub const NAME: &str = "kubernetes";
/// The name of its port.
const PORT: &str = "https";

/// The loop, named after the part of Kubernetes' API server with this task.
pub const LOOP: Loop = Loop { name: "kubernetesservice-controller", root: ROOT, concerns, plan, ..Loop::BASE };

/// The Service of a new cluster with this network.
pub fn service(network: u8) -> Object {
    Object(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE, "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": ingress_routes::api_server(network).to_string(),
            "ports": [{"name": PORT, "port": 443, "targetPort": 6443}],
        },
    }))
}

/// The Endpoints for a server at this address.
pub fn endpoints(address: SocketAddr) -> Object {
    Object(json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": address.ip()}], "ports": [{"name": PORT, "port": address.port(), "protocol": "TCP"}]}],
    }))
}

/// The EndpointSlice for a server at this address.
pub fn endpoint_slice(address: SocketAddr) -> Object {
    Object(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {SERVICE_NAME: NAME}},
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}}],
        "ports": [{"name": PORT, "port": address.port(), "protocol": "TCP"}],
    }))
}

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    match (row.key.resource.0, &*row.key.namespace, &*row.key.name) {
        (ROOT, _, NAMESPACE) | ("services", NAMESPACE, NAME) => vec![Key::new(Resource(ROOT), "", NAMESPACE)],
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let is_there = world.get(key).is_some_and(|row| !row.is_deleting());
    if is_there && *key.name == *NAMESPACE && world.find("services", NAMESPACE, NAME).is_none() {
        plan.write(
            WriteVerb::Create(service(world.settings.network)),
            "every cluster has the Service of its API server",
        );
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::testing::cluster;
    use crate::world::Propagation;

    #[test]
    fn service_is_recreated() {
        let mut cluster = cluster("");
        cluster.settle();
        assert_eq!(cluster.value("services", "kubernetes", "/spec/clusterIP"), "127.77.128.1");
        let before = cluster.object("services", "kubernetes").uid().to_owned();
        cluster.delete("services", "kubernetes", Propagation::Background);
        cluster.settle();
        assert_ne!(cluster.object("services", "kubernetes").uid(), before);
    }
}
