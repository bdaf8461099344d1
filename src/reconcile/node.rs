//! This machine as a Node, and the heartbeats of the nodes that this process runs.

use crate::apiserver::update::{Part, update};
use crate::apiserver::{Api, Options, Result, create};
use crate::kinds;
use crate::object::{Key, Object, Reason, Resource, Status, Time, time};
use crate::runtime::capacity::Capacity;
use crate::world::{NodeFacts, World};
use serde_json::{Value, json};

/// A node whose pods only pretend to run.
pub const RUNTIME: &str = "kloop.dev/runtime";

/// Since when a node is stopped by hand: its heartbeats have ended then.
pub const STOPPED: &str = "kloop.dev/stopped";

/// Registers this machine, or brings its Node up to date.
pub fn register(api: &mut Api, capacity: &Capacity) -> Result<()> {
    let kind = kinds::by_resource(Resource("nodes"))
        .ok_or_else(|| Status::new(Reason::InternalError, "no kind Node in the catalogue; this is a bug"))?;
    let key = Key::new(kind.resource, "", &capacity.name);
    api.write(false, |ledger| {
        let status = status(capacity, ledger.now());
        let Some(mut node) = ledger.get(&key)? else {
            let mut node = object(capacity);
            node.set(&["status"], status);
            return create::create(ledger, kind, &node, &Options::default()).map(|_| ());
        };
        let mut fresh = status;
        // A condition that holds its value keeps the moment since when it does.
        if let Some(since) = ready_since(&node) {
            fresh["conditions"][3]["lastTransitionTime"] = since;
        }
        node.set(&["status"], fresh);
        update(ledger, kind, &node, Part::Status, &Options::default()).map(|_| ())
    })
}

fn ready_since(node: &Object) -> Option<Value> {
    let ready =
        node.items(&["status", "conditions"]).iter().find(|one| one["type"] == "Ready" && one["status"] == "True")?;
    Some(ready["lastTransitionTime"].clone())
}

fn object(capacity: &Capacity) -> Object {
    let (name, arch) = (&capacity.name, &capacity.architecture);
    Object(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": arch,
            "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": arch,
        }},
    }))
}

fn status(capacity: &Capacity, now: Time) -> Value {
    let now = time::rfc3339(now);
    let condition = |kind: &str, value: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": value, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let offers = json!({
        "cpu": milli(capacity.cpu_milli), "memory": format!("{}Ki", capacity.memory / 1024),
        "ephemeral-storage": format!("{}Ki", capacity.storage / 1024), "pods": capacity.pods.to_string(),
    });
    json!({
        "capacity": offers, "allocatable": offers,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": capacity.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": {
            "machineID": capacity.machine_id, "systemUUID": capacity.machine_id, "bootID": capacity.boot_id,
            "kernelVersion": capacity.kernel, "osImage": capacity.os_image,
            "containerRuntimeVersion": concat!("kloop://", env!("CARGO_PKG_VERSION")),
            "kubeletVersion": concat!("v1.36.2+kloop-", env!("CARGO_PKG_VERSION")), "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": capacity.architecture,
        },
    })
}

fn milli(cpu: i64) -> String {
    if cpu % 1000 == 0 { (cpu / 1000).to_string() } else { format!("{cpu}m") }
}

/// Which nodes are ours: the local one and the simulated ones. Their heartbeat is now.
pub fn beat(world: &mut World, local: Option<&str>) {
    let now = world.now;
    let simulated = |node: &Object| node.annotation(RUNTIME) == Some("simulated");
    let rows: Vec<(crate::object::Str, bool)> =
        world.list("nodes").map(|row| (row.key.name.clone(), simulated(&row.object()))).collect();
    world.facts.nodes = rows
        .into_iter()
        .filter(|(name, simulated)| *simulated || local == Some(&**name))
        .map(|(name, simulated)| (name, NodeFacts { ours: true, simulated, heartbeat: Some(now) }))
        .collect();
}
