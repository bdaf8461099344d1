//! This machine as a Node, and the heartbeats of the nodes that this process runs.

use crate::apiserver::update::{Part, update};
use crate::apiserver::{Api, Options, Result, create};
use crate::kinds;
use crate::object::{Key, Object, Reason, Resource, Status, Time, time};
use crate::runtime::simulated::Simulated;
use crate::world::{ContainerFacts, ContainerState, Ended, NodeFacts, PodFacts, World};
use serde_json::{Value, json};

/// Pods that this machine offers to run, unless settings say otherwise.
pub const PODS: u32 = 2000;

/// A node whose pods only pretend to run.
pub const RUNTIME: &str = "kloop.dev/runtime";

/// What this machine offers.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// Its name, which becomes the node's.
    pub name: String,
    /// Cores, in thousandths.
    pub cpu_milli: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Most pods.
    pub pods: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the distribution.
    pub os_image: String,
    /// `amd64`, `arm64`: Go's names, which Kubernetes uses.
    pub architecture: String,
    /// Identity of the machine and of its boot.
    pub machine_id: String,
    /// See `machine_id`.
    pub boot_id: String,
}

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
    let ready = node.items(&["status", "conditions"]).iter().find(|one| one["type"] == "Ready" && one["status"] == "True")?;
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
        "ephemeral-storage": "0", "pods": capacity.pods.to_string(),
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

/// Pods of simulated nodes that already run, by their status: the twin has no memory of its own between two control planes.
pub fn adopt_pretended(world: &mut World, twin: &mut Simulated) {
    let simulated: Vec<crate::object::Str> = world
        .list("nodes")
        .filter(|row| row.object().annotation(RUNTIME) == Some("simulated"))
        .map(|row| row.key.name.clone())
        .collect();
    let pods: Vec<Object> = simulated.iter().flat_map(|node| world.pods_on(node).map(|row| row.object())).collect();
    for pod in pods {
        let facts = pretended(&pod);
        if !facts.containers.is_empty() {
            twin.adopt(pod.uid().into(), &facts);
            world.facts.pods.insert(pod.uid().into(), facts);
        }
    }
}

/// The facts that a pod's status tells of.
fn pretended(pod: &Object) -> PodFacts {
    let text = |path: &[&str]| pod.text(path).unwrap_or_default().into();
    let mut facts = PodFacts {
        namespace: pod.namespace().into(),
        name: pod.name().into(),
        node: text(&["spec", "nodeName"]),
        ip: text(&["status", "podIP"]),
        ..PodFacts::default()
    };
    let statuses = pod.items(&["status", "initContainerStatuses"]).iter().chain(pod.items(&["status", "containerStatuses"]));
    for status in statuses {
        let Some(state) = state_of(status) else { continue };
        let attempt = status["restartCount"].as_u64().unwrap_or(0) as u32;
        let name: crate::object::Str = status["name"].as_str().unwrap_or_default().into();
        facts.containers.insert(name, ContainerFacts { attempt, state, stopping: None, last: None, probes: Default::default(), refusals: 0 });
    }
    facts
}

fn state_of(status: &Value) -> Option<ContainerState> {
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Time>().ok());
    if let Some(since) = time(&status["state"]["running"]["startedAt"]) {
        return Some(ContainerState::Running { pid: 0, since });
    }
    let terminated = status["state"].get("terminated")?;
    Some(ContainerState::Ended(Ended {
        code: terminated["exitCode"].as_i64().unwrap_or(137) as i32,
        signal: terminated["signal"].as_i64().map(|signal| signal as i32),
        reason: None,
        message: terminated["message"].as_str().unwrap_or_default().to_owned(),
        started: time(&terminated["startedAt"]),
        finished: time(&terminated["finishedAt"])?,
    }))
}
