//! Predicates of a node for a new pod: sysctls, operating system, room, node affinity, host ports and taints (Kubernetes:
//! `pkg/kubelet/lifecycle`, predicateAdmitHandler).
//!
//! The scheduler keeps other pods away, so that mostly a pod that names its node itself fails here. A critical pod is admitted even if
//! resources are short. Never: evicts a pod. Start reading at [`failed_predicate`].

use super::manifests::SOURCE;
use super::pod::LocalPod;
use crate::kinds::pod::SAFE_SYSCTLS;
use crate::kinds::priority_class::SYSTEM_CRITICAL;
use crate::object::Time;
use crate::world::resources::{NodeFields, NodeLoad, ResourceRequests};
use crate::world::{PodFields, Row, taint, terms};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

/// The resource whose amount is the number of pods.
const PODS: &str = "pods";

/// The operating system of every node, in Go's words.
const NODE_OS: &str = "linux";

/// The predicates that have a reason of their own, each with its message.
const PREDICATE_MESSAGES: [(&str, &str); 3] = [
    ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
    ("NodePorts", "node(s) didn't have free ports for the requested pod ports"),
    ("TaintToleration", "node(s) had taints that the pod didn't tolerate"),
];

/// The first predicate that a new pod fails, as reason and message; `None` when the node admits it.
pub fn failed_predicate(pod: &LocalPod) -> Option<(String, String)> {
    if pod.status.start_time.is_some() || pod.facts.is_some() || pod.is_simulated || pod.has_ended() {
        return None;
    }
    if let Some(why) = forbidden_sysctl(&pod.spec) {
        return Some(("SysctlForbidden".to_owned(), format!("forbidden sysctl: {why}")));
    }
    if let Some((reason, why)) = other_system(pod) {
        return Some((reason.to_owned(), format!("Failed to admit pod as the {why}")));
    }
    let node = &pod.world.node_cache()[pod.world.slot_of(pod.row.pod()?.node.as_deref()?)?].row;
    let fields = node.node()?;
    if let Some(LackingResource { name, requested, used, capacity }) = lacking_resource(pod, node, fields) {
        let amounts = format!("{name}, requested: {requested}, used: {used}, capacity: {capacity}");
        return Some((format!("OutOf{name}"), format!("Node didn't have enough resource: {amounts}")));
    }
    let results = [node_matches(&pod.spec, node), has_free_ports(pod, node), tolerates(&pod.spec, fields)];
    let (_, (reason, why)) = results.into_iter().zip(PREDICATE_MESSAGES).find(|(holds, _)| !holds)?;
    Some((reason.to_owned(), format!("Predicate {reason} failed: {why}")))
}

/// The first sysctl that the pod may not set, and why (`pkg/kubelet/sysctl`).
fn forbidden_sysctl(spec: &PodSpec) -> Option<String> {
    let sysctls = spec.security_context.as_ref()?.sysctls.as_deref()?;
    sysctls.iter().find_map(|sysctl| {
        let name = sysctl.name.replace('/', ".");
        let (namespace, is_shared) =
            if name.starts_with("net.") { ("net", spec.host_network) } else { ("ipc", spec.host_ipc) };
        if !SAFE_SYSCTLS.contains(&&*name) {
            return Some(format!("{name:?} not allowlisted"));
        }
        (is_shared == Some(true)).then(|| format!("{name:?} not allowed with host {namespace} enabled"))
    })
}

/// Why a pod is not for Linux, as reason and message.
fn other_system(pod: &LocalPod) -> Option<(&'static str, &'static str)> {
    if pod.row.label("kubernetes.io/os").is_some_and(|name| name != NODE_OS) {
        return Some(("PodOSSelectorNodeLabelDoesNotMatch", "`kubernetes.io/os` label doesn't match node label"));
    }
    let is_other = pod.spec.os.as_ref().is_some_and(|os| os.name != NODE_OS);
    is_other.then_some(("PodOSNotSupported", "OS field doesn't match node OS"))
}

/// A resource of which a node has too little left for a pod, in the scheduler's units.
struct LackingResource<'a> {
    name: &'a str,
    requested: i64,
    used: i64,
    capacity: i64,
}

/// The first resource of which the node has too little left for the pod. Resources that the node does not have are left to the scheduler.
fn lacking_resource<'a>(pod: &LocalPod, node: &Row, offered: &'a NodeFields) -> Option<LackingResource<'a>> {
    let is_known = offered.pods > 0 || offered.allocatable != ResourceRequests::default();
    let own = pod.row.pod().filter(|own| is_known && !is_critical(pod, own))?;
    let all = pod.world.load_of(&node.key.name)?;
    if offered_resources(offered).all(|(name, capacity)| amount(all, name) <= capacity) {
        return None;
    }
    first_lacking(&own.requests, &load_before(pod, node, offered), offered)
}

/// Whether a pod is admitted even without room: a static pod, or one of the system's (Kubernetes: IsCriticalPod).
fn is_critical(pod: &LocalPod, own: &PodFields) -> bool {
    let is_static = pod.object.annotation(SOURCE).is_some_and(|source| source == "file");
    is_static || i64::from(own.priority) >= SYSTEM_CRITICAL
}

/// The load of the pods that the node admits before this one: those that it has admitted, and of the others the older ones, as far as
/// they fit.
fn load_before(pod: &LocalPod, node: &Row, offered: &NodeFields) -> NodeLoad {
    let mut load = NodeLoad::default();
    let before = pod.world.pods_on(&node.key.name).filter(|other| is_admitted_before(other, pod.row));
    let before = before.filter_map(|other| Some((other, other.pod()?)));
    let (admitted, mut waiting): (Vec<_>, Vec<_>) = before.partition(|(_, fields)| fields.started.is_some());
    admitted.iter().for_each(|(_, fields)| load.add(&fields.requests));
    waiting.sort_unstable_by_key(|(row, _)| age(row));
    for (_, fields) in waiting {
        if first_lacking(&fields.requests, &load, offered).is_none() {
            load.add(&fields.requests);
        }
    }
    load
}

fn first_lacking<'a>(
    requests: &ResourceRequests,
    used: &NodeLoad,
    offered: &'a NodeFields,
) -> Option<LackingResource<'a>> {
    let mut lacking = offered_resources(offered).map(|(name, capacity)| LackingResource {
        name,
        requested: if name == PODS { 1 } else { requests.amount(name) },
        used: amount(used, name),
        capacity,
    });
    lacking.find(|one| one.requested > 0 && one.requested > one.capacity.saturating_sub(one.used))
}

/// The resources of a node with their amounts, in the order in which Kubernetes compares them.
fn offered_resources(offered: &NodeFields) -> impl Iterator<Item = (&str, i64)> {
    let ResourceRequests { cpu_milli, memory, ephemeral, others, .. } = &offered.allocatable;
    let usual = [(PODS, offered.pods), ("cpu", *cpu_milli), ("memory", *memory), ("ephemeral-storage", *ephemeral)];
    usual.into_iter().chain(others.iter().map(|(name, amount)| (&**name, *amount)))
}

fn amount(load: &NodeLoad, resource: &str) -> i64 {
    if resource == PODS { load.pods } else { load.requests.amount(resource) }
}

/// Whether the node has the labels that the pod selects and those that its node affinity requires.
fn node_matches(spec: &PodSpec, node: &Row) -> bool {
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| node.label(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| terms::any_matches(&json!(required), node))
}

/// Whether no other pod of the node has a host port of this one.
fn has_free_ports(pod: &LocalPod, node: &Row) -> bool {
    let Some(own) = pod.row.pod().filter(|own| !own.host_ports.is_empty()) else { return true };
    let others = pod.world.pods_on(&node.key.name).filter(|other| is_admitted_before(other, pod.row));
    !others.filter_map(|other| other.pod()).any(|other| own.shares_host_port(other))
}

/// Whether the pod tolerates the node's taints of effect NoExecute.
fn tolerates(spec: &PodSpec, node: &NodeFields) -> bool {
    let mut taints = node.taints.iter().filter(|taint| taint.effect == "NoExecute").peekable();
    if taints.peek().is_none() {
        return true;
    }
    let tolerations: Vec<Value> = spec.tolerations.iter().flatten().map(|toleration| json!(toleration)).collect();
    taint::untolerated(&tolerations, taints).is_none()
}

/// Whether the node has admitted a pod, or decides about it before the new one.
fn is_admitted_before(other: &Row, new: &Row) -> bool {
    let is_before = |pod: &PodFields| pod.started.is_some() || (!other.is_deleting() && age(other) < age(new));
    // A static pod and its mirror have the same key.
    other.key != new.key && other.pod().is_some_and(|pod| !pod.phase.is_terminal() && is_before(pod))
}

/// Orders the new pods of a node, oldest first.
fn age(row: &Row) -> (Option<Time>, &str) {
    (row.created, &row.uid)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use serde_json::{Value, json};

    const NODE_LABELS: &str = "kubernetes.io/os";

    /// A node for two pods with one core, a device and a taint that ends pods.
    fn node() -> Value {
        json!({
            "kind": "Node", "metadata": {"name": "n", "uid": "n", "labels": {NODE_LABELS: "linux"}},
            "spec": {"taints": [{"key": "gone", "effect": "NoExecute"}]},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "2", "example.com/disk": "1"}},
        })
    }

    /// A new pod with this spec, which tolerates the node's taint unless it says otherwise.
    fn new_pod(spec: Value) -> Value {
        let mut new = pod(json!({
            "containers": [{"name": "c", "image": "a"}],
            "tolerations": [{"key": "gone", "operator": "Exists"}],
        }));
        spec.as_object().into_iter().flatten().for_each(|(field, value)| new["spec"][field] = value.clone());
        new["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        new
    }

    fn requests(list: Value) -> Value {
        json!({"containers": [{"name": "c", "image": "a", "resources": {"requests": list}}]})
    }

    /// Runs a new pod and another pod on one node. Returns the reason and message of the new pod's rejection.
    fn rejection(new: Value, other: Option<Value>) -> Option<(String, String)> {
        let mut machine = TestMachine::new(new);
        machine.put("nodes", node());
        other.into_iter().for_each(|other| machine.put("pods", other));
        machine.settle();
        let status = machine.status();
        let reason = status["reason"].as_str().map(str::to_owned);
        assert_eq!(machine.starts.iter().any(|start| &*start.pod == "p"), reason.is_none(), "{status}");
        let reason = reason?;
        let message =
            status["message"].as_str().and_then(|message| message.strip_prefix("Pod was rejected: "))?.to_owned();
        assert_eq!(status["phase"], "Failed");
        let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(conditions.iter().all(|one| one["type"] != "DisruptionTarget"), "{status}");
        assert!(machine.events.iter().any(|event| event.reason == reason && event.message == message), "{reason}");
        Some((reason, message))
    }

    /// A pod of the same node with this spec and status.
    fn other(spec: Value, phase: &str, started: Option<&str>, created: &str) -> Value {
        let mut other = new_pod(spec);
        other["metadata"] =
            json!({"name": "other", "namespace": "default", "uid": "other", "creationTimestamp": created});
        other["status"] = json!({"phase": phase, "startTime": started});
        other
    }

    #[test]
    fn pod_that_its_node_does_not_suit_is_rejected() {
        let terms = |value: &str| {
            let term = json!({"matchExpressions": [{"key": NODE_LABELS, "operator": "In", "values": [value]}]});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}})
        };
        let affinity = "node(s) didn't match Pod's node affinity/selector";
        for (spec, expected) in [
            (json!({}), None),
            (json!({"nodeSelector": {NODE_LABELS: "linux"}}), None),
            (json!({"nodeSelector": {NODE_LABELS: "plan9"}}), Some(("NodeAffinity", affinity))),
            (terms("linux"), None),
            (terms("plan9"), Some(("NodeAffinity", affinity))),
            (json!({"os": {"name": "linux"}}), None),
            (json!({"tolerations": []}), Some(("TaintToleration", "node(s) had taints that the pod didn't tolerate"))),
        ] {
            let expected =
                expected.map(|(reason, why)| (reason.to_owned(), format!("Predicate {reason} failed: {why}")));
            assert_eq!(rejection(new_pod(spec.clone()), None), expected, "{spec}");
        }
    }

    #[test]
    fn pod_of_another_system_is_rejected() {
        let reason = "Failed to admit pod as the OS field doesn't match node OS";
        let other = rejection(new_pod(json!({"os": {"name": "windows"}})), None);
        assert_eq!(other, Some(("PodOSNotSupported".to_owned(), reason.to_owned())));
        let mut labelled = new_pod(json!({}));
        labelled["metadata"]["labels"] = json!({"kubernetes.io/os": "windows"});
        let reason = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        assert_eq!(
            rejection(labelled, None),
            Some(("PodOSSelectorNodeLabelDoesNotMatch".to_owned(), reason.to_owned()))
        );
    }

    #[test]
    fn pod_with_an_unsafe_sysctl_is_rejected() {
        for (name, host, expected) in [
            ("kernel.shm_rmid_forced", "", None),
            ("net/ipv4/tcp_syncookies", "", None),
            ("kernel.shm_rmid_forced", "hostIPC", Some("\"kernel.shm_rmid_forced\" not allowed with host ipc enabled")),
            ("net.ipv4.tcp_rmem", "hostNetwork", Some("\"net.ipv4.tcp_rmem\" not allowed with host net enabled")),
            ("kernel/msgmax", "", Some("\"kernel.msgmax\" not allowlisted")),
        ] {
            let mut new = new_pod(json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}}));
            if !host.is_empty() {
                new["spec"][host] = true.into();
            }
            let expected = expected.map(|why| ("SysctlForbidden".to_owned(), format!("forbidden sysctl: {why}")));
            assert_eq!(rejection(new, None), expected, "{name} {host}");
        }
    }

    #[test]
    fn pod_without_room_is_rejected() {
        const STARTED: Option<&str> = Some("2026-01-01T00:00:00Z");
        let half = || {
            other(requests(json!({"cpu": "500m", "example.com/disk": "1"})), "Running", STARTED, "2025-01-01T00:00:00Z")
        };
        for (list, expected) in [
            (json!({"cpu": "500m"}), None),
            (json!({"cpu": "501m"}), Some(("cpu", "501, used: 500, capacity: 1000"))),
            (json!({"memory": "2Gi"}), Some(("memory", "2147483648, used: 0, capacity: 1073741824"))),
            (json!({"example.com/disk": "1"}), Some(("example.com/disk", "1, used: 1, capacity: 1"))),
            // The node does not have the resource at all.
            (json!({"example.com/other": "1"}), None),
        ] {
            let message = |amounts| format!("Node didn't have enough resource: {amounts}");
            let expected = expected.map(|(resource, amounts)| {
                (format!("OutOf{resource}"), message(format!("{resource}, requested: {amounts}")))
            });
            assert_eq!(rejection(new_pod(requests(list.clone())), Some(half())), expected, "{list}");
        }
        let mut critical = new_pod(requests(json!({"cpu": "2"})));
        critical["spec"]["priority"] = 2_000_000_000.into();
        assert_eq!(rejection(critical, Some(half())), None);
        // A pod that has ended takes no room, and one that is younger waits.
        for (phase, created, is_rejected) in [
            ("Failed", "2025-01-01T00:00:00Z", false),
            ("Pending", "2025-01-01T00:00:00Z", true),
            ("Pending", "2027-01-01T00:00:00Z", false),
        ] {
            let whole = requests(json!({"cpu": "1"}));
            let beside = other(whole.clone(), phase, None, created);
            assert_eq!(rejection(new_pod(whole), Some(beside)).is_some(), is_rejected, "{phase} {created}");
        }
    }

    #[test]
    fn older_pod_that_does_not_fit_takes_no_room() {
        let mut machine = TestMachine::new(new_pod(requests(json!({"cpu": "1"}))));
        machine.put("nodes", node());
        machine.put("pods", other(requests(json!({"cpu": "9"})), "Pending", None, "2025-01-01T00:00:00Z"));
        machine.settle();
        assert_eq!(machine.status()["phase"], "Running", "{}", machine.status());
    }

    #[test]
    fn pod_beyond_the_number_of_a_node_is_rejected() {
        let mut machine = TestMachine::new(new_pod(json!({})));
        machine.put("nodes", node());
        for name in ["other", "third"] {
            let mut beside = other(json!({}), "Running", Some("2025-01-01T00:00:00Z"), "2025-01-01T00:00:00Z");
            (beside["metadata"]["name"], beside["metadata"]["uid"]) = (name.into(), name.into());
            machine.put("pods", beside);
        }
        machine.settle();
        assert_eq!(machine.status()["reason"], "OutOfpods");
        let why = "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2";
        assert_eq!(machine.status()["message"], why);
    }

    #[test]
    fn pod_whose_host_port_is_taken_is_rejected() {
        const STARTED: Option<&str> = Some("2026-01-01T00:00:00Z");
        let with_port = |ip: &str| {
            let port = json!({"containerPort": 80, "hostPort": 8080, "hostIP": ip});
            json!({"containers": [{"name": "c", "image": "a", "ports": [port]}]})
        };
        for (own, of_other, phase, started, created, is_rejected) in [
            ("", "127.0.0.2", "Running", STARTED, "2027-01-01T00:00:00Z", true),
            ("127.0.0.2", "127.0.0.2", "Running", STARTED, "2027-01-01T00:00:00Z", true),
            ("127.0.0.1", "127.0.0.2", "Running", STARTED, "2027-01-01T00:00:00Z", false),
            ("", "", "Failed", STARTED, "2025-01-01T00:00:00Z", false),
            // The older of two new pods is admitted.
            ("", "", "Pending", None, "2025-01-01T00:00:00Z", true),
            ("", "", "Pending", None, "2027-01-01T00:00:00Z", false),
        ] {
            let beside = other(with_port(of_other), phase, started, created);
            let why = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
            let expected = is_rejected.then(|| ("NodePorts".to_owned(), why.to_owned()));
            assert_eq!(
                rejection(new_pod(with_port(own)), Some(beside)),
                expected,
                "{own} {of_other} {phase} {created}"
            );
        }
    }
}
