//! This machine as a Node, and the heartbeats of the nodes that this process runs.

use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Api, ApiResult, WriteOptions, create};
use crate::controllers::node_lifecycle::report;
use crate::kinds::shared::resource_names;
use crate::kinds::{self};
use crate::network::LINKS_CONDITION;
use crate::object::{Key, Object, Resource, Status, Str, Time};
use crate::runtime::capacity::MachineCapacity;
use crate::world::{NodeFacts, World};
use serde_json::{Map, Value, json};

/// Values of the annotation [`RUNTIME`] are [`SIMULATED`] and [`LOCAL`]. Other nodes are not run by kloop, except this machine's own Node.
pub use crate::world::resources::{LINK, MACHINE, RUNTIME, SIMULATED, STOPPED};

/// Runtime of an additional node whose pods run on this machine.
pub const LOCAL: &str = "local";

/// A capability that the machine lacks, and its consequence.
pub struct MissingCapability {
    /// The condition of the Node with status False.
    pub condition: &'static str,
    /// Its reason, one CamelCase word.
    pub reason: &'static str,
    /// Its message.
    pub message: &'static str,
}

/// Pods have no addresses of their own without seccomp user notification.
const NO_FILTER: MissingCapability = MissingCapability {
    condition: "PodNetwork",
    reason: "NoFilter",
    message: "seccomp user notification is not available on this machine (an old kernel, or a sandbox around it): pods \
           are on the machine's network, share its ports, and have neither names nor NetworkPolicies",
};

/// Only its parent can signal a process safely.
const NOT_HELD: MissingCapability = MissingCapability {
    condition: "ProcessHandles",
    reason: "NotHeld",
    message: "pidfds are not available on this machine (an old kernel, or a sandbox around it, refuses pidfd_open or pidfd_send_signal): \
           shareProcessNamespace has no effect, and without PID namespaces, child processes of a container survive when the pod's shim \
           is killed",
};

/// Returns the capabilities that this machine lacks.
pub fn missing_capabilities(pod_network: bool, has_pidfds: bool) -> impl Iterator<Item = &'static MissingCapability> {
    [(pod_network, &NO_FILTER), (has_pidfds, &NOT_HELD)].into_iter().filter(|(has, _)| !has).map(|(_, lack)| lack)
}

/// Returns the sentences of a Node about missing capabilities.
pub fn logged_capabilities(node: &Object) -> impl Iterator<Item = &str> {
    let conditions = node.items(&["status", "conditions"]).iter();
    conditions
        .filter(|condition| {
            [NO_FILTER.condition, NOT_HELD.condition, LINKS_CONDITION]
                .iter()
                .any(|lack| condition["type"] == *lack && condition["status"] == "False")
        })
        .filter_map(|condition| condition["message"].as_str())
}

/// Registers this machine, or brings its Node up to date.
pub fn register(
    api: &mut Api,
    capacity: &MachineCapacity,
    missing_capabilities: &[&MissingCapability],
) -> ApiResult<()> {
    let kind = kinds::by_resource(Resource("nodes")).ok_or_else(|| Status::bug("no kind Node in the catalogue"))?;
    let key = Key::new(kind.resource, "", &capacity.name);
    api.write(false, |txn| {
        let mut status = status(capacity, txn.now());
        if let Some(conditions) = status["conditions"].as_array_mut() {
            conditions.extend(missing_capabilities.iter().map(|missing| {
                report::condition(txn.now(), missing.condition, "False", missing.reason, missing.message)
            }));
        }
        let Some(mut node) = txn.get(&key)? else {
            let mut node = object(capacity);
            node.set(&["status"], status);
            return create::create(txn, kind, &node, &WriteOptions::default()).map(|_| ());
        };
        if node.annotation(STOPPED).is_some() {
            return Ok(());
        }
        let link = capacity.link_address.map(|address| address.to_string());
        if node.annotation(LINK) != link.as_deref() {
            match link {
                Some(link) => node.set(&["metadata", "annotations", LINK], link),
                None => _ = node.unset(&["metadata", "annotations", LINK]),
            }
            update(txn, kind, &node, UpdatePart::Main, &WriteOptions::default())?;
            node = txn.get(&key)?.unwrap_or(node);
        }
        let mut new_status = status;
        keep_transition_times(&mut new_status, &node);
        keep_extended_resources(&mut new_status, &node);
        node.set(&["status"], new_status);
        update(txn, kind, &node, UpdatePart::Status, &WriteOptions::default()).map(|_| ())
    })
}

/// Makes the object of an additional node on this machine, as it registers itself.
pub fn additional(capacity: &MachineCapacity, runtime: &str, now: Time) -> Object {
    let mut node = object(capacity);
    node.set(&["metadata", "annotations", RUNTIME], runtime);
    node.set(&["status"], status(capacity, now));
    node
}

/// Makes the object of a machine that registers itself at a server elsewhere.
pub fn registration(capacity: &MachineCapacity, now: Time) -> Object {
    let mut node = object(capacity);
    node.set(&["status"], status(capacity, now));
    node
}

/// Keeps the extended resources that users have added to the capacity.
fn keep_extended_resources(new_status: &mut Value, node: &Object) {
    for what in ["capacity", "allocatable"] {
        let known = node.value_at(&["status", what]).and_then(Value::as_object).into_iter().flatten();
        for (name, amount) in known.filter(|(name, _)| resource_names::is_extended(name)) {
            new_status[what][name] = amount.clone();
        }
    }
}

/// Keeps the transition times of conditions whose status stays the same.
fn keep_transition_times(new_status: &mut Value, node: &Object) {
    for condition in new_status["conditions"].as_array_mut().into_iter().flatten() {
        let known = condition["type"].as_str().and_then(|condition_type| node.condition(condition_type));
        if let Some(known) = known.filter(|known| known["status"] == condition["status"]) {
            condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
        }
    }
}

fn object(capacity: &MachineCapacity) -> Object {
    let labels: Map<String, Value> = report::labels(&capacity.name, capacity.architecture)
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value.into()))
        .collect();
    let mut node =
        Object(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": capacity.name, "labels": labels}}));
    if let Some(address) = capacity.link_address {
        node.set(&["metadata", "annotations", LINK], address.to_string());
    }
    node
}

fn status(capacity: &MachineCapacity, now: Time) -> Value {
    let offers = json!({
        "cpu": milli(capacity.cpu_milli), "memory": format!("{}Ki", capacity.memory / 1024),
        "ephemeral-storage": format!("{}Ki", capacity.storage / 1024), "pods": capacity.pods.to_string(),
    });
    json!({
        "capacity": offers, "allocatable": offers,
        "conditions": report::well(now),
        "addresses": [
            {"type": "InternalIP", "address": capacity.address.to_string()},
            {"type": "Hostname", "address": capacity.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": capacity.kubelet_port}},
        "nodeInfo": {
            "machineID": capacity.machine_id, "systemUUID": capacity.machine_id, "bootID": capacity.boot_id,
            "kernelVersion": capacity.kernel, "osImage": capacity.os_image,
            "containerRuntimeVersion": report::RUNTIME,
            "kubeletVersion": report::KUBELET, "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": capacity.architecture,
        },
    })
}

fn milli(cpu: i64) -> String {
    if cpu % 1000 == 0 { (cpu / 1000).to_string() } else { format!("{cpu}m") }
}

/// Determines the local nodes: the one of this machine, and those that were added. Their heartbeat is now; a stopped
/// node is not local, and its heartbeat ended when it was stopped.
pub fn send_heartbeats(world: &mut World, local: Option<&str>) {
    let names = world.node_cache().iter().map(|place| place.row.key.name.clone()).chain(local.map(Str::from));
    world.facts.nodes = names.filter_map(|name| Some((name.clone(), facts(world, &name, local)?))).collect();
}

/// Returns the facts of a node that is local, or would be if it were not stopped. This machine is local without its Node, too, once that is
/// deleted: its pods go on until they are deleted, as a kubelet runs them.
pub fn facts(world: &World, name: &str, local: Option<&str>) -> Option<NodeFacts> {
    let is_this_machine = local == Some(name);
    let Some(row) = world.find("nodes", "", name) else {
        return is_this_machine.then_some(NodeFacts { ours: true, is_simulated: false, heartbeat: Some(world.now) });
    };
    let node = row.node()?;
    let runtime = node.runtime.as_deref();
    let is_local = is_this_machine || (runtime == Some(LOCAL) && local.is_some());
    let simulated = runtime == Some(SIMULATED);
    let stopped = node.stopped.as_ref().map(|since| since.parse().unwrap_or(Time::UNIX_EPOCH));
    let facts =
        NodeFacts { ours: stopped.is_none(), is_simulated: simulated, heartbeat: Some(stopped.unwrap_or(world.now)) };
    (simulated || is_local).then_some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_conditions_keep_their_transition_times_while_their_status_stays() {
        let condition = |condition_type: &str, status: &str, day: u8| {
            let since = format!("2026-01-0{day}T00:00:00Z");
            json!({"type": condition_type, "status": status, "lastTransitionTime": since})
        };
        let known = [condition("MemoryPressure", "False", 1), condition("Ready", "Unknown", 1)];
        let node = Object(json!({"status": {"conditions": known}}));
        let new = [condition("MemoryPressure", "False", 2), condition("Ready", "True", 2)];
        let mut new_status = json!({ "conditions": new });
        keep_transition_times(&mut new_status, &node);
        let times = ["/conditions/0/lastTransitionTime", "/conditions/1/lastTransitionTime"];
        let times = times.map(|path| new_status.pointer(path).and_then(Value::as_str));
        assert_eq!(times, [Some("2026-01-01T00:00:00Z"), Some("2026-01-02T00:00:00Z")]);
    }

    #[test]
    fn ours_are_this_machine_and_what_was_added_until_it_is_stopped() {
        let now: Time = "2026-01-01T00:10:00Z".parse().unwrap();
        let mut world = World::new(now);
        let nodes = [
            ("here", json!({})),
            ("more", json!({RUNTIME: LOCAL})),
            ("sim", json!({RUNTIME: SIMULATED})),
            ("off", json!({RUNTIME: SIMULATED, STOPPED: "2026-01-01T00:09:00Z"})),
            ("other", json!({})),
        ];
        for (name, annotations) in nodes {
            let node = json!({"metadata": {"name": name, "uid": name, "annotations": annotations}});
            world.put(Key::new(Resource("nodes"), "", name), node.to_string().into());
        }
        let ours = |world: &World| {
            let mut names: Vec<String> =
                world.facts.nodes.iter().filter(|(_, facts)| facts.ours).map(|(name, _)| name.to_string()).collect();
            names.sort();
            names.join(" ")
        };
        send_heartbeats(&mut world, Some("here"));
        assert_eq!(ours(&world), "here more sim");
        assert_eq!(world.facts.nodes["off"].heartbeat, "2026-01-01T00:09:00Z".parse().ok());
        world.remove(&Key::new(Resource("nodes"), "", "here"));
        send_heartbeats(&mut world, Some("here"));
        assert_eq!(ours(&world), "here more sim", "this machine runs its pods without its Node");
        send_heartbeats(&mut world, None);
        assert_eq!(ours(&world), "sim", "without this machine nothing runs on it");
    }
}
