//! Status of simulated nodes: healthy, with the resources of the manifest or defaults.
//!
//! No kubelet reports for a simulated node. For a node from a manifest, this module writes the status that `kloop node
//! add --simulated` writes at once. It keeps the manifest's resources and adds defaults. Start reading at
//! [`write_first_report`].

use super::super::status;
use crate::object::{Object, Time, time};
use crate::world::{Plan, Row, World, WriteVerb};
use serde_json::{Map, Value, json};

/// Default amount of each resource that the manifest does not list.
const OFFERS: [(&str, &str); 4] = [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "100Gi"), ("pods", "110")];

/// The conditions of a healthy node: type, status, reason, message (Kubernetes: the kubelet's setters).
pub const WELL: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// The conditions of a healthy node, in the form of a status.
pub fn well(now: Time) -> Vec<Value> {
    WELL.iter().map(|(kind, value, reason, message)| condition(now, kind, value, reason, message)).collect()
}

/// A condition with its heartbeat and transition at `now`.
pub fn condition(now: Time, kind: &str, value: &str, reason: &str, message: &str) -> Value {
    let now = time::rfc3339(now);
    json!({"type": kind, "status": value, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now})
}

/// The labels that a kubelet gives its node.
pub fn labels(name: &str, architecture: &str) -> [(&'static str, String); 5] {
    [
        ("kubernetes.io/hostname", name.into()),
        ("kubernetes.io/os", "linux".into()),
        ("kubernetes.io/arch", architecture.into()),
        ("beta.kubernetes.io/os", "linux".into()),
        ("beta.kubernetes.io/arch", architecture.into()),
    ]
}

/// Writes the labels and then the status of a simulated node without a status.
pub fn write_first_report(world: &World, row: &Row, object: &Object, plan: &mut Plan) {
    let is_simulated = world.facts.nodes.get(&row.key.name).is_some_and(|facts| facts.ours && facts.is_simulated);
    if !is_simulated || object.condition("Ready").is_some() {
        return;
    }
    let mut labelled = object.clone();
    let architecture = object.text(&["status", "nodeInfo", "architecture"]).filter(|known| !known.is_empty());
    for (label, value) in labels(object.name(), architecture.unwrap_or("amd64")) {
        if object.label(label).is_none() {
            labelled.set(&["metadata", "labels", label], value);
        }
    }
    if labelled != *object {
        return plan
            .write(WriteVerb::Update(labelled), "a simulated node has the labels that a kubelet gives its node");
    }
    let mut new = status::status_map(object);
    let field = |what: &str| object.value_at(&["status", what]).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut capacity: Map<String, Value> = field("allocatable");
    capacity.extend(field("capacity"));
    for (resource, amount) in OFFERS {
        capacity.entry(resource).or_insert_with(|| amount.into());
    }
    let mut allocatable = capacity.clone();
    allocatable.extend(field("allocatable"));
    new.insert("capacity".into(), capacity.into());
    new.insert("allocatable".into(), allocatable.into());
    new.entry("addresses").or_insert_with(
        || json!([{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": object.name()}]),
    );
    let mut info = field("nodeInfo");
    info.extend([
        ("operatingSystem".to_owned(), json!("linux")),
        ("architecture".to_owned(), json!(architecture.unwrap_or("amd64"))),
        ("kubeletVersion".to_owned(), json!(KUBELET)),
        ("containerRuntimeVersion".to_owned(), json!(RUNTIME)),
    ]);
    new.insert("nodeInfo".into(), info.into());
    let others = object.items(&["status", "conditions"]).iter();
    let others = others.filter(|known| WELL.iter().all(|(kind, ..)| known["type"] != *kind)).cloned();
    status::set_conditions(&mut new, well(world.now).into_iter().chain(others).collect());
    status::write(plan, object.clone(), new.into(), "a simulated node reports its resources");
}

/// The version that kubelets report.
pub const KUBELET: &str = concat!("v1.36.2+kloop-", env!("CARGO_PKG_VERSION"));
/// The container runtime version that nodes report.
pub const RUNTIME: &str = concat!("kloop://", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Key, Resource};
    use crate::world::NodeFacts;

    /// Returns the plan for a node with these facts and status, and the plan after that one is applied.
    fn plans(facts: Option<NodeFacts>, status: &Value) -> (Option<Object>, Option<Object>) {
        let mut world = World::new("2026-01-01T00:00:00Z".parse().unwrap());
        world.facts.nodes.extend(facts.map(|facts| ("n".into(), facts)));
        let key = Key::new(Resource("nodes"), "", "n");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "n"}, "status": status});
        world.put(key.clone(), node.to_string().into());
        let mut next = || {
            let mut plan = Plan::default();
            let row = world.get(&key)?.clone();
            write_first_report(&world, &row, &row.object(), &mut plan);
            let object = match plan.writes.into_iter().next()?.verb {
                WriteVerb::Update(object) | WriteVerb::Status(object) => object,
                other => panic!("{other:?}"),
            };
            world.put(key.clone(), object.0.to_string().into());
            Some(object)
        };
        (next(), next())
    }

    #[test]
    fn simulated_node_from_a_manifest_gets_labels_and_status() {
        let simulated = NodeFacts { ours: true, is_simulated: true, heartbeat: None };
        let (labelled, ready) = plans(Some(simulated), &json!({"capacity": {"cpu": "2"}, "allocatable": {"cpu": "1"}}));
        assert_eq!(labelled.expect("labels").label("kubernetes.io/hostname"), Some("n"));
        let ready = ready.expect("a report");
        assert!(ready.has_condition("Ready"));
        let offers = |what: &str, of: &str| ready.text(&["status", what, of]).map(str::to_owned);
        assert_eq!(
            (offers("capacity", "cpu").as_deref(), offers("allocatable", "cpu").as_deref()),
            (Some("2"), Some("1"))
        );
        assert_eq!(
            (offers("capacity", "pods").as_deref(), offers("allocatable", "pods").as_deref()),
            (Some("110"), Some("110"))
        );
    }

    #[test]
    fn other_nodes_get_no_report() {
        let stopped = NodeFacts { ours: false, is_simulated: true, heartbeat: None };
        let real = NodeFacts { ours: true, is_simulated: false, heartbeat: None };
        let reported = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
        for (facts, status) in [(Some(stopped), json!({})), (Some(real), json!({})), (None, json!({}))] {
            assert!(plans(facts, &status).0.is_none());
        }
        let simulated = NodeFacts { ours: true, is_simulated: true, heartbeat: None };
        assert!(plans(Some(simulated), &reported).0.is_none());
    }
}
