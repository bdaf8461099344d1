//! The pods behind a Service with their address, readiness and ports, for both Endpoints and EndpointSlices.

use super::pods::controller_key;
use crate::object::{Key, Object, Resource, Str, Time, time};
use crate::world::{PodFields, Row, World};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The resource that has backends.
pub const SERVICES: &str = "services";
/// Annotation with the time of the change that caused a write.
pub const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Label on the Endpoints and EndpointSlices of a headless Service.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// One pod behind a Service.
pub struct ServiceBackend<'w> {
    /// The pod.
    pub row: &'w Arc<Row>,
    /// Its address.
    pub ip: Str,
    /// The status of its condition Ready.
    pub ready: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The Service's ports as numbers of this pod: `name`, `port`, `protocol`, `appProtocol`.
    pub ports: Vec<Value>,
    /// Its name in the DNS of a headless Service.
    pub hostname: Option<String>,
}

impl ServiceBackend<'_> {
    /// The pod's node.
    pub fn node(&self) -> Option<&str> {
        self.row.pod()?.node.as_deref()
    }

    /// The reference to the pod.
    pub fn target(&self) -> Value {
        let key = &self.row.key;
        json!({ "kind": "Pod", "name": *key.name, "namespace": *key.namespace, "uid": *self.row.uid })
    }
}

/// Whether kloop selects the pods behind a Service. Users write the endpoints of a Service without selector themselves.
pub fn is_managed(service: &Row, object: &Object) -> bool {
    let selects = service.workload().is_some_and(|fields| !fields.selector.is_nothing());
    selects && object.text(&["spec", "type"]) != Some("ExternalName")
}

/// Whether a Service has no cluster IP.
pub fn is_headless(service: &Object) -> bool {
    service.text(&["spec", "clusterIP"]) == Some("None")
}

/// The labels of the Endpoints or an EndpointSlice of a Service: the Service's, and its own, which win.
pub fn endpoint_labels(service: &Object, own: &[(&str, &str)]) -> Value {
    let headless = is_headless(service).then_some((HEADLESS, ""));
    let labels = service.labels().filter(|(key, _)| *key != HEADLESS).chain(own.iter().copied()).chain(headless);
    labels.map(|(key, value)| (key.to_owned(), Value::from(value))).collect::<Map<_, _>>().into()
}

/// Whether pods that are not ready count as ready.
pub fn tolerates_unready(service: &Object) -> bool {
    service.value_at(&["spec", "publishNotReadyAddresses"]) == Some(&Value::Bool(true))
}

/// The pods behind a Service, ordered by name: those with an address that have not ended.
pub fn backends<'w>(world: &'w World, row: &'w Row, service: &Object) -> Vec<ServiceBackend<'w>> {
    let Some(fields) = row.workload() else { return Vec::new() };
    let ports = service.items(&["spec", "ports"]);
    let has_host_names = is_headless(service);
    let pods = world.pods_matching(&row.key.namespace, &fields.selector).into_iter();
    let backend = |row: &'w Arc<Row>| {
        let pod = row.pod().filter(|pod| !pod.phase.is_terminal())?;
        let body = if has_host_names { row.object() } else { Object(Value::Null) };
        let hostname =
            body.text(&["spec", "hostname"]).filter(|_| body.text(&["spec", "subdomain"]) == Some(service.name()));
        Some(ServiceBackend {
            row,
            ip: pod.ip.clone()?,
            ready: pod.ready,
            terminating: row.is_deleting(),
            ports: ports.iter().filter_map(|port| resolve_port(port, pod)).collect(),
            hostname: hostname.map(str::to_owned),
        })
    };
    pods.filter_map(backend).collect()
}

/// Resolves a Service's port to a number of one pod; `None` when the pod has no container port of that name.
fn resolve_port(port: &Value, pod: &PodFields) -> Option<Value> {
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    let number = match &port["targetPort"] {
        Value::String(name) => pod.named_port(name, protocol)?,
        Value::Number(number) => number.as_i64().filter(|number| *number != 0).or_else(|| port["port"].as_i64())?,
        _ => port["port"].as_i64()?,
    };
    let mut resolve_port = json!({ "name": port["name"].as_str().unwrap_or(""), "port": number, "protocol": protocol });
    if let Some(application) = port["appProtocol"].as_str() {
        resolve_port["appProtocol"] = application.into();
    }
    Some(resolve_port)
}

/// Returns the time of the change that a list of endpoints shows: the earliest moment at which one of these pods became ready or unready
/// (`TriggerTimeTracker`). `None` when no pod did: then pods left, or the Service itself changed.
pub fn trigger_time<'n>(world: &World, namespace: &str, changed: impl Iterator<Item = &'n str>) -> Option<Time> {
    changed.filter_map(|pod| world.find("pods", namespace, pod)?.pod()?.ready_since).min()
}

/// Sets the annotation with the time of a change, or removes it.
pub fn set_trigger(object: &mut Object, trigger: Option<Time>) {
    match trigger {
        Some(trigger) => object.set(&["metadata", "annotations", TRIGGER], time::rfc3339(trigger)),
        None => {
            object.unset(&["metadata", "annotations", TRIGGER]);
            if object.value_at(&["metadata", "annotations"]).and_then(Value::as_object).is_some_and(Map::is_empty) {
                object.unset(&["metadata", "annotations"]);
            }
        }
    }
}

/// The Services that a row concerns: itself, or those that select the pod.
pub fn concerned(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        SERVICES => vec![row.key.clone()],
        "pods" => world.selecting(SERVICES, row).into_iter().map(|service| service.key.clone()).collect(),
        "endpoints" => vec![Key::new(Resource(SERVICES), &row.key.namespace, &row.key.name)],
        _ => controller_key(row, SERVICES, "Service").into_iter().collect(),
    }
}
