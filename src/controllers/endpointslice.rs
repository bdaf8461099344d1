//! EndpointSlices list the pods behind each Service, at most 100 per slice. Pods that resolve the Service's ports
//! differently are in different slices.

use super::backends::{self, BackendPorts, ServiceBackend};
use super::controller_ref::Owner;
use crate::kinds::endpoint_slice::{CONTROLLER, MANAGED_BY};
use crate::object::time::Shift;
use crate::object::{Key, Object, Time};
use crate::world::{Loop, Plan, Row, SERVICE_NAME, SLICES, World, WriteVerb, free_name};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum number of endpoints in a slice.
const MAX_ENDPOINTS: usize = 100;

/// The loop of EndpointSlices.
pub const LOOP: Loop =
    Loop { name: "endpointslice-controller", root: backends::SERVICES, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        backends::SERVICES | "pods" | SLICES => backends::concerned(world, row),
        _ => Vec::new(),
    }
}

/// Pause after which a Service with pods of missing nodes is tried again.
const MISSING_NODE_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// An existing slice and its desired content.
struct Slice {
    /// `None`: the slice is to be created.
    object: Option<Object>,
    ports: Vec<Value>,
    endpoints: Vec<Value>,
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let service = row.object();
    if !backends::is_managed(row, &service) {
        return plan;
    }
    let tolerant = backends::tolerates_unready(&service);
    let mut wanted = Vec::new();
    for backend in backends::backends(world, row, &service) {
        // As in Kubernetes, a pod whose node does not exist is left out, and the Service is tried again.
        if !tolerant && backend.node().is_some_and(|node| world.find("nodes", "", node).is_none()) {
            plan.wake_at(world.now.later(MISSING_NODE_PAUSE));
            continue;
        }
        let mut endpoint = endpoint(world, &backend, tolerant);
        if let Some(hints) = hints(&service, &endpoint) {
            endpoint["hints"] = hints;
        }
        wanted.push((backend.ports, endpoint));
    }
    let slices = arrange(existing(world, row), backends::group_by_ports(wanted.into_iter()));
    let owner = Owner { row, api_version: "v1", kind: "Service" };
    write(world, &owner, &service, slices, &mut plan);
    plan
}

fn endpoint(world: &World, backend: &ServiceBackend, tolerant: bool) -> Value {
    let (ready, terminating) = (backend.ready, backend.terminating);
    let mut endpoint = json!({
        "addresses": [*backend.ip],
        "conditions": { "ready": tolerant || (ready && !terminating), "serving": ready, "terminating": terminating },
        "targetRef": backend.target(),
    });
    if let Some(node) = backend.node() {
        endpoint["nodeName"] = node.into();
        let zone = world.find("nodes", "", node).and_then(|node| node.label("topology.kubernetes.io/zone"));
        if let Some(zone) = zone {
            endpoint["zone"] = zone.into();
        }
    }
    if let Some(hostname) = &backend.hostname {
        endpoint["hostname"] = hostname.as_str().into();
    }
    endpoint
}

/// Annotations that ask for hints by the sizes of zones instead. The earlier one counts.
const TOPOLOGY_MODES: [&str; 2] = ["service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints"];

/// Returns the hints that `spec.trafficDistribution` of a Service gives a ready endpoint: the zones and nodes whose clients it is for
/// (`endpointslice/trafficdist`).
fn hints(service: &Object, endpoint: &Value) -> Option<Value> {
    let by_node = match service.text(&["spec", "trafficDistribution"])? {
        "PreferSameNode" => true,
        "PreferSameZone" | "PreferClose" => false,
        _ => return None,
    };
    let mode = TOPOLOGY_MODES.iter().find_map(|name| service.annotation(name));
    if matches!(mode, Some("Auto" | "auto")) || endpoint["conditions"]["ready"] != true {
        return None;
    }
    let named = |name: &Value| name.is_string().then(|| json!([{ "name": name }]));
    let zones = named(&endpoint["zone"]).map(|zones| ("forZones".to_owned(), zones));
    let nodes = named(&endpoint["nodeName"]).filter(|_| by_node).map(|nodes| ("forNodes".to_owned(), nodes));
    let hints: Map<String, Value> = zones.into_iter().chain(nodes).collect();
    (!hints.is_empty()).then(|| hints.into())
}

/// The Service's existing slices, ordered by name.
fn existing(world: &World, service: &Row) -> Vec<Slice> {
    let own = world.controlled(SLICES, &service.uid).filter(|slice| !slice.is_deleting());
    let own = own.filter(|slice| slice.label(MANAGED_BY) == Some(CONTROLLER));
    let slice = |row: &std::sync::Arc<Row>| {
        let object = row.object();
        let list = |name: &str| object.items(&[name]).to_vec();
        Slice { ports: list("ports"), endpoints: list("endpoints"), object: Some(object) }
    };
    own.map(slice).collect()
}

/// Distributes endpoints over slices. Existing endpoints stay in their slice, so that a change of one pod rewrites one
/// slice. New ones fill slices with space. Unused slices are reused before new ones are created, and one slice always
/// remains.
fn arrange(existing: Vec<Slice>, wanted: Vec<(Rc<BackendPorts>, Vec<Value>)>) -> Vec<Slice> {
    let mut slices = existing;
    let mut spare: Vec<Slice> = Vec::new();
    let mut arranged: Vec<Slice> = Vec::new();
    for (ports, endpoints) in wanted {
        let is_of_group = |slice: &Slice| slice.ports == ports.list;
        let (group, rest) = slices.into_iter().partition(is_of_group);
        slices = rest;
        arranged.extend(fill(group, &ports.list, endpoints));
    }
    spare.extend(slices);
    let (mut used, unused): (Vec<Slice>, Vec<Slice>) =
        arranged.into_iter().partition(|slice| !slice.endpoints.is_empty());
    spare.extend(unused);
    spare.sort_by_cached_key(|slice| name_of(slice).to_owned());
    let mut spare = spare.into_iter().filter(|slice| slice.object.is_some());
    for slice in used.iter_mut().filter(|slice| slice.object.is_none()) {
        slice.object = spare.next().and_then(|unused| unused.object);
    }
    if used.is_empty() {
        let object = spare.next().and_then(|unused| unused.object);
        used.push(Slice { object, ports: Vec::new(), endpoints: Vec::new() });
    }
    // The remaining slices have no ports and no endpoints: they are deleted.
    used.extend(spare.map(|unused| Slice { ports: Vec::new(), endpoints: Vec::new(), ..unused }));
    used
}

fn name_of(slice: &Slice) -> String {
    slice.object.as_ref().map(|object| object.name().to_owned()).unwrap_or_default()
}

/// Distributes the endpoints of one set of ports over its slices.
fn fill(mut group: Vec<Slice>, ports: &[Value], endpoints: Vec<Value>) -> Vec<Slice> {
    let uid = |endpoint: &Value| endpoint["targetRef"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut left: BTreeMap<String, Value> =
        endpoints.iter().map(|endpoint| (uid(endpoint), endpoint.clone())).collect();
    for slice in &mut group {
        let kept = std::mem::take(&mut slice.endpoints);
        slice.endpoints = kept.iter().filter_map(|endpoint| left.remove(&uid(endpoint))).collect();
    }
    let mut new = endpoints.into_iter().filter(|endpoint| left.contains_key(&uid(endpoint))).peekable();
    for slice in &mut group {
        let room = MAX_ENDPOINTS.saturating_sub(slice.endpoints.len());
        slice.endpoints.extend(new.by_ref().take(room));
    }
    while new.peek().is_some() {
        group.push(Slice {
            object: None,
            ports: ports.to_vec(),
            endpoints: new.by_ref().take(MAX_ENDPOINTS).collect(),
        });
    }
    group
}

/// Creates, updates and deletes slices.
fn write(world: &World, owner: &Owner, service: &Object, slices: Vec<Slice>, plan: &mut Plan) {
    let labels = backends::endpoint_labels(service, &[(SERVICE_NAME, service.name()), (MANAGED_BY, CONTROLLER)]);
    for (slot, slice) in slices.into_iter().enumerate() {
        let unused = slot > 0 && slice.endpoints.is_empty();
        match slice.object {
            None => {
                let base = format!("{}-", owner.row.key.name);
                let name = free_name(world, SLICES, owner.row, &base, slot);
                let mut object = Object(json!({
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {
                        "name": name,
                        "generateName": base,
                        "namespace": *owner.row.key.namespace,
                        "labels": labels,
                        "ownerReferences": [owner.reference().to_value()],
                    },
                    "addressType": "IPv4",
                }));
                let is_first = !world.controlled(SLICES, &owner.row.uid).any(|_| true);
                let trigger = if is_first { owner.row.created } else { trigger(world, &[], &slice.endpoints) };
                put(&mut object, slice.ports, slice.endpoints, trigger);
                plan.write(WriteVerb::Create(object), "no slice has room for the Service's endpoints");
            }
            Some(_) if unused => {
                if let Some(row) = world.find(SLICES, &owner.row.key.namespace, &name_of(&slice)) {
                    plan.delete(row, "it has no endpoints");
                }
            }
            Some(mut object) => {
                let same = object.items(&["endpoints"]) == slice.endpoints && object.items(&["ports"]) == slice.ports;
                if !same || object.value_at(&["metadata", "labels"]) != Some(&labels) {
                    object.set(&["metadata", "labels"], labels.clone());
                    let trigger = trigger(world, object.items(&["endpoints"]), &slice.endpoints);
                    put(&mut object, slice.ports, slice.endpoints, trigger);
                    plan.write(WriteVerb::Update(object), "the pods behind the Service changed");
                }
            }
        }
    }
}

/// The time of the change from `old` to `new` endpoints.
fn trigger(world: &World, old: &[Value], new: &[Value]) -> Option<Time> {
    let state = |endpoint: &Value| (endpoint["targetRef"]["uid"].clone(), endpoint["conditions"]["serving"].clone());
    let known: Vec<_> = old.iter().map(state).collect();
    let target = new.iter().filter(|endpoint| !known.contains(&state(endpoint))).map(|endpoint| &endpoint["targetRef"]);
    let mut target = target.peekable();
    let namespace = target.peek().and_then(|target| target["namespace"].as_str()).unwrap_or_default();
    backends::trigger_time(world, namespace, target.filter_map(|target| target["name"].as_str()))
}

fn put(slice: &mut Object, ports: Vec<Value>, endpoints: Vec<Value>, trigger: Option<Time>) {
    for (name, list) in [("ports", ports), ("endpoints", endpoints)] {
        slice.set(&[name], if list.is_empty() { Value::Null } else { list.into() });
    }
    backends::set_trigger(slice, trigger);
}

#[cfg(test)]
mod tests {
    use super::SLICES;
    use crate::controllers::testing::{Cluster, cluster};
    use serde_json::{Value, json};

    const WEB: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, labels: {team: a}}
spec: {clusterIP: 127.77.128.5, selector: {app: web}, ports: [{port: 80, targetPort: 8080, protocol: TCP}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, ports: [{name: http, containerPort: 9090}]}]}}}
";

    fn endpoints(cluster: &Cluster) -> Vec<Value> {
        let rows = cluster.world.list(SLICES);
        rows.flat_map(|row| row.object().items(&["endpoints"]).to_vec()).collect()
    }

    fn ready(cluster: &Cluster) -> usize {
        endpoints(cluster).iter().filter(|endpoint| endpoint["conditions"]["ready"] == true).count()
    }

    fn ports(cluster: &Cluster) -> Vec<Value> {
        cluster.world.list(SLICES).flat_map(|row| row.object().items(&["ports"]).to_vec()).collect()
    }

    #[test]
    fn slices_follow_pods() {
        let mut cluster = cluster(WEB);
        cluster.settle();
        assert_eq!((cluster.count(SLICES), endpoints(&cluster).len(), ready(&cluster)), (1, 3, 3));
        assert_eq!(ports(&cluster), [json!({"name": "", "port": 8080, "protocol": "TCP"})]);
        let slice = cluster.world.list(SLICES).next().unwrap().object();
        assert_eq!(slice.label("team"), Some("a"));
        assert_eq!(slice.label("kubernetes.io/service-name"), Some("web"));
        cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": 1}}));
        cluster.settle();
        assert_eq!((cluster.count(SLICES), ready(&cluster)), (1, 1));
        cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": 0}}));
        cluster.settle();
        assert_eq!((cluster.count(SLICES), endpoints(&cluster).len(), ports(&cluster).len()), (1, 0, 0));
        cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": 2}}));
        cluster.settle();
        assert_eq!((cluster.count(SLICES), ready(&cluster)), (1, 2));
    }

    #[test]
    fn slice_has_at_most_a_hundred_endpoints() {
        let mut cluster = cluster(WEB);
        cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": 230}}));
        cluster.settle();
        let sizes: Vec<usize> =
            cluster.world.list(SLICES).map(|row| row.object().items(&["endpoints"]).len()).collect();
        assert!(sizes.len() == 3 && sizes.iter().all(|size| *size <= 100) && sizes.iter().sum::<usize>() == 230);
        cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": 0}}));
        cluster.settle();
        assert_eq!(cluster.count(SLICES), 1);
    }

    #[test]
    fn unready_and_terminating_pods_are_marked() {
        let mut cluster = cluster(WEB);
        cluster.patch(
            "replicasets.apps",
            "web",
            json!({"spec": {"replicas": 1, "template": {"metadata": {"annotations": {"fake/ready": "false"}}}}}),
        );
        cluster.settle();
        assert_eq!(
            endpoints(&cluster)[0]["conditions"],
            json!({"ready": false, "serving": false, "terminating": false})
        );
        cluster.patch("services", "web", json!({"spec": {"publishNotReadyAddresses": true}}));
        cluster.settle();
        assert_eq!(
            endpoints(&cluster)[0]["conditions"],
            json!({"ready": true, "serving": false, "terminating": false})
        );
        cluster.kubelet = false;
        cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": 0}}));
        cluster.settle();
        assert_eq!(endpoints(&cluster)[0]["conditions"], json!({"ready": true, "serving": false, "terminating": true}));
    }

    /// The hints of the only endpoint with this traffic distribution and topology mode.
    fn hints(cluster: &mut Cluster, distribution: Value, mode: Value) -> Value {
        let annotations = json!({"service.kubernetes.io/topology-mode": mode});
        let spec = json!({"trafficDistribution": distribution});
        cluster.patch("services", "web", json!({"metadata": {"annotations": annotations}, "spec": spec}));
        cluster.settle();
        endpoints(cluster)[0]["hints"].clone()
    }

    #[test]
    fn ready_endpoints_have_the_hints_of_the_traffic_distribution() {
        let mut cluster = cluster(WEB);
        cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": 1}}));
        cluster.settle();
        let node = endpoints(&cluster)[0]["nodeName"].clone();
        let nodes = json!([{ "name": node }]);
        assert_eq!(hints(&mut cluster, json!("PreferSameNode"), Value::Null), json!({ "forNodes": nodes }));
        assert_eq!(hints(&mut cluster, json!("PreferSameZone"), Value::Null), Value::Null, "the node has no zone");
        let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}});
        cluster.patch("nodes", node.as_str().unwrap(), zone);
        let zones = json!([{"name": "z"}]);
        assert_eq!(hints(&mut cluster, json!("PreferClose"), Value::Null), json!({ "forZones": zones }));
        let both = json!({"forZones": zones, "forNodes": nodes});
        assert_eq!(hints(&mut cluster, json!("PreferSameNode"), Value::Null), both);
        assert_eq!(hints(&mut cluster, json!("PreferSameNode"), json!("Auto")), Value::Null);
        assert_eq!(hints(&mut cluster, Value::Null, Value::Null), Value::Null);
    }

    #[test]
    fn named_ports_are_resolved_by_pod() {
        let mut cluster = cluster(WEB);
        cluster.patch(
            "services",
            "web",
            json!({"spec": {"ports": [{"name": "web", "port": 80, "targetPort": "http"}]}}),
        );
        cluster.settle();
        assert_eq!(ports(&cluster), [json!({"name": "web", "port": 9090, "protocol": "TCP"})]);
        cluster.add("{apiVersion: v1, kind: Pod, metadata: {name: other, labels: {app: web}, annotations: {}, ownerReferences: [{uid: u1, controller: true, kind: Node, name: a}]}, spec: {containers: [{name: c, ports: [{name: http, containerPort: 9091}]}]}}");
        cluster.add("{apiVersion: v1, kind: Pod, metadata: {name: without, labels: {app: web}, ownerReferences: [{uid: u1, controller: true, kind: Node, name: a}]}, spec: {containers: [{name: c}]}}");
        cluster.settle();
        // The pod without a port of that name is in a slice without ports.
        assert_eq!((cluster.count(SLICES), endpoints(&cluster).len(), ports(&cluster).len()), (3, 5, 2));
    }

    #[test]
    fn annotation_has_the_time_at_which_a_pod_became_ready_or_unready() {
        let mut cluster = cluster(WEB);
        cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": 1}}));
        cluster.settle();
        let trigger = |cluster: &Cluster| {
            let slice = cluster.world.list(SLICES).next().unwrap().object();
            slice.annotation("endpoints.kubernetes.io/last-change-trigger-time").map(str::to_owned)
        };
        let pod = cluster.names("pods");
        let ready = cluster.object("pods", &pod).condition("Ready").unwrap()["lastTransitionTime"].clone();
        assert_eq!(trigger(&cluster).as_deref(), ready.as_str());
        cluster.world.now += jiff::SignedDuration::from_secs(60);
        cluster.kubelet = false;
        cluster.delete("pods", &pod, Default::default());
        cluster.settle();
        assert_eq!(trigger(&cluster), None, "no pod became ready or unready");
    }

    #[test]
    fn pods_of_a_missing_node_are_left_out() {
        let mut cluster = cluster(WEB);
        cluster.patch("replicasets.apps", "web", json!({"spec": {"replicas": 0}}));
        cluster.add("{apiVersion: v1, kind: Pod, metadata: {name: lost, labels: {app: web}, ownerReferences: [{uid: u1, controller: true, kind: Node, name: a}]}, spec: {nodeName: gone, containers: [{name: c}]}, status: {phase: Running, podIP: 127.9.9.9, conditions: [{type: Ready, status: 'True'}]}}");
        cluster.settle();
        assert_eq!(endpoints(&cluster), Vec::<Value>::new());
        cluster.patch("services", "web", json!({"spec": {"publishNotReadyAddresses": true}}));
        cluster.settle();
        assert_eq!(endpoints(&cluster).len(), 1);
        cluster.patch("services", "web", json!({"spec": {"publishNotReadyAddresses": false}}));
        cluster.settle();
        assert_eq!(endpoints(&cluster), Vec::<Value>::new());
        let plan = (super::LOOP.plan)(&cluster.world, &cluster.key("services", "web"));
        assert_eq!(plan.wake, Some(cluster.world.now + super::MISSING_NODE_PAUSE), "the Service is tried again");
    }

    #[test]
    fn services_without_selector_are_left_alone() {
        let mut cluster =
            cluster("{apiVersion: v1, kind: Service, metadata: {name: manual}, spec: {ports: [{port: 80}]}}");
        cluster.settle();
        assert_eq!((cluster.count(SLICES), cluster.count("endpoints")), (0, 0));
    }

    #[test]
    fn slices_and_endpoints_go_with_their_service() {
        let mut cluster = cluster(WEB);
        cluster.settle();
        assert_eq!(cluster.count("endpoints"), 1);
        cluster.delete("services", "web", Default::default());
        cluster.settle();
        assert_eq!((cluster.count(SLICES), cluster.count("endpoints")), (0, 0));
    }
}
