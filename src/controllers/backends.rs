//! The pods behind a Service with their address, readiness and ports, for both Endpoints and EndpointSlices.

use super::pods::controller_key;
use crate::object::{Key, Object, Resource, Str, Time, time};
use crate::world::{PodFields, Row, World};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::rc::Rc;
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
    /// The Service's ports as numbers of this pod.
    pub ports: Rc<BackendPorts>,
    /// Its name in the DNS of a headless Service.
    pub hostname: Option<String>,
}

/// The ports of a Service as numbers. Pods that resolve them alike share the list: a Service can have thousands of ports, and of pods.
pub struct BackendPorts {
    /// Each with `name`, `port`, `protocol`, `appProtocol`.
    pub list: Vec<Value>,
    /// The list as JSON, by which groups are ordered.
    text: String,
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
    let mut ports = PortResolver::new(service.items(&["spec", "ports"]));
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
            ports: ports.resolve(pod),
            hostname: hostname.map(str::to_owned),
        })
    };
    pods.filter_map(backend).collect()
}

/// Groups items by the ports of their backend, ordered by the ports.
pub fn group_by_ports<T>(items: impl Iterator<Item = (Rc<BackendPorts>, T)>) -> Vec<(Rc<BackendPorts>, Vec<T>)> {
    let mut groups: Vec<(Rc<BackendPorts>, Vec<T>)> = Vec::new();
    let mut places = HashMap::new();
    for (ports, item) in items {
        let place = *places.entry(Rc::as_ptr(&ports)).or_insert(groups.len());
        if place == groups.len() {
            groups.push((ports, Vec::new()));
        }
        groups[place].1.push(item);
    }
    groups.sort_by(|(a, _), (b, _)| a.text.cmp(&b.text));
    groups
}

/// Resolves the ports of one Service for many pods.
struct PortResolver<'s> {
    ports: &'s [Value],
    /// Name and protocol of each port that pods resolve by name.
    names: Vec<(&'s str, &'s str)>,
    /// The lists so far, by the numbers of the names.
    known: HashMap<Vec<Option<i64>>, Rc<BackendPorts>>,
}

impl<'s> PortResolver<'s> {
    fn new(ports: &'s [Value]) -> PortResolver<'s> {
        let name = |port: &'s Value| Some((port["targetPort"].as_str()?, protocol(port)));
        PortResolver { ports, names: ports.iter().filter_map(name).collect(), known: HashMap::new() }
    }

    fn resolve(&mut self, pod: &PodFields) -> Rc<BackendPorts> {
        let mut numbers = HashMap::new();
        for (name, protocol, number) in pod.ports_by_name().filter(|_| !self.names.is_empty()) {
            numbers.entry((name, protocol)).or_insert(number);
        }
        let numbers: Vec<Option<i64>> = self.names.iter().map(|name| numbers.get(name).copied()).collect();
        if let Some(known) = self.known.get(&numbers) {
            return Rc::clone(known);
        }
        let mut named = numbers.iter();
        let number = |port: &Value| match &port["targetPort"] {
            Value::String(_) => named.next().copied().flatten(),
            Value::Number(number) => number.as_i64().filter(|number| *number != 0).or_else(|| port["port"].as_i64()),
            _ => port["port"].as_i64(),
        };
        let numbered: Vec<Option<i64>> = self.ports.iter().map(number).collect();
        let resolved = self.ports.iter().zip(numbered).filter_map(|(port, number)| Some(resolved_port(port, number?)));
        let list: Vec<Value> = resolved.collect();
        let ports = Rc::new(BackendPorts { text: Value::from(list.clone()).to_string(), list });
        self.known.insert(numbers, Rc::clone(&ports));
        ports
    }
}

fn protocol(port: &Value) -> &str {
    port["protocol"].as_str().unwrap_or("TCP")
}

fn resolved_port(port: &Value, number: i64) -> Value {
    let mut resolved =
        json!({ "name": port["name"].as_str().unwrap_or(""), "port": number, "protocol": protocol(port) });
    if let Some(application) = port["appProtocol"].as_str() {
        resolved["appProtocol"] = application.into();
    }
    resolved
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

#[cfg(test)]
mod tests {
    use super::super::testing::key_of;
    use super::*;

    #[test]
    fn pods_that_resolve_ports_alike_share_one_list() {
        let mut world = World::new(Time::UNIX_EPOCH);
        let mut put = |body: Value| {
            let object = Object(body);
            world.put(key_of(&object), object.0.to_string().into());
            key_of(&object)
        };
        let meta = |name: &str| json!({"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}});
        for (name, admin) in [("a", 9000), ("b", 9001), ("c", 9000)] {
            let ports = json!([{"name": "admin", "containerPort": admin}, {"name": "admin", "containerPort": 1}]);
            let spec = json!({"nodeName": "n", "containers": [{"name": "c", "ports": ports}]});
            let status = json!({"phase": "Running", "podIP": "127.9.1.1"});
            put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(name), "spec": spec, "status": status}));
        }
        let mut ports: Vec<Value> = (1..=5000).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
        ports.push(json!({"name": "admin", "port": 5001, "targetPort": "admin"}));
        ports.push(json!({"name": "none", "port": 5002, "targetPort": "none"}));
        let spec = json!({"selector": {"app": "web"}, "ports": ports});
        let key = put(json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("web"), "spec": spec}));
        let row = world.get(&key).unwrap();
        let found = backends(&world, row, &row.object());
        let [a, b, c] = &found[..] else { panic!("{}", found.len()) };
        assert!(Rc::ptr_eq(&a.ports, &c.ports) && !Rc::ptr_eq(&a.ports, &b.ports));
        assert_eq!((a.ports.list.len(), &a.ports.list[5000]["port"]), (5001, &json!(9000)));
        assert_eq!(b.ports.list[5000]["port"], 9001);
        let groups = group_by_ports(found.iter().map(|backend| (Rc::clone(&backend.ports), &*backend.row.key.name)));
        assert_eq!(groups.into_iter().map(|(_, names)| names).collect::<Vec<_>>(), [vec!["a", "c"], vec!["b"]]);
    }
}
