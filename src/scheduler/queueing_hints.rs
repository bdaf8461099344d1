//! Queueing hints: decide which changes could make an unschedulable pod fit (Kubernetes: `EventsToRegister` of the plugins, and their
//! `isSchedulableAfter...`).
//!
//! An unschedulable pod is tried again only after a change that could make one of its refusing plugins accept a node. A wrong yes costs one
//! attempt; a wrong no delays the pod until the leftovers are tried, so a hint in doubt queues the pod.

use super::devices::PLUGIN;
use super::filter::{self, PodQuery};
use super::nodes;
use super::pod_constraints::{PodConstraints, PodTermConstraint};
use super::volume_limits::{self, LIMITS};
use super::volumes::{BINDING, RESTRICTIONS, ZONE};
use crate::object::Str;
use crate::world::plan::SchedulingWait;
use crate::world::{PodTerm, Row, RowChange, WaitFilter, World};
use crate::world::{devices, storage};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the reasons that a pod refused by these plugins waits for. Pods with different nominated nodes have
/// different reasons.
pub fn build_wait(
    row: &Row,
    constraints: &PodConstraints,
    causes: BTreeSet<&'static str>,
    nominated: Option<&Str>,
) -> SchedulingWait {
    let terms = |constraints: &[PodTermConstraint]| -> Arc<[PodTerm]> {
        constraints.iter().map(|constraint| (*constraint.term).clone()).collect()
    };
    let spread = constraints.pod.items(&["spec", "topologySpreadConstraints"]);
    // Labels matter only for plugins that count pods. (Each pod of a StatefulSet has different labels and claims.)
    let counts_pods = ["PodTopologySpread", "InterPodAffinity"].iter().any(|plugin| causes.contains(plugin));
    let counted_by = counts_pods.then_some((&row.labels, &constraints.pod.0));
    let fields = row.pod().map(|pod| (&pod.requests, &pod.host_ports, pod.priority, &pod.scheduler, nominated));
    SchedulingWait {
        alike: format!("{causes:?} {} {fields:?} {} {counted_by:?}", row.key.namespace, constraints.node_constraints)
            .into(),
        causes,
        affinity: terms(&constraints.affinity),
        anti_affinity: terms(&constraints.anti_affinity),
        spread: spread.iter().map(|term| PodTerm::parse(term, &row.key.namespace)).collect(),
    }
}

/// Describes the changes that wake a pod.
pub fn describe_wake_events(wait: &SchedulingWait) -> Vec<&'static str> {
    let mut events = vec!["a node is added"];
    for event in wait.causes.iter().flat_map(|plugin| filter::wake_events(plugin)) {
        if !events.contains(event) {
            events.push(event);
        }
    }
    events
}

/// The rules by which pods without a node wait.
pub const WAIT_FILTER: WaitFilter = WaitFilter { is_due: is_changed_pod, is_done: has_node_or_is_gone, helps };

/// Whether a pod was bound, or is gone.
fn has_node_or_is_gone(change: RowChange<'_>) -> bool {
    change.after.is_none_or(|row| row.pod().is_some_and(|pod| pod.node.is_some()))
}

/// Whether a waiting pod must be tried again because the pod itself changed. Of its status only the names of its claims for devices count.
fn is_changed_pod(change: RowChange<'_>) -> bool {
    let Some(after) = change.after.filter(|row| super::waits_for_node(row)) else { return false };
    let Some(before) = change.before else { return true };
    let nominated = |row: &Row| row.pod().and_then(|pod| pod.nominated.clone());
    // Rows do not keep these fields, and few pods have claims.
    let claims = |row: &Row| {
        let body = row.body();
        [&["status", "resourceClaimStatuses"][..], &["status", "extendedResourceClaimStatus"]]
            .map(|path| body.value_at(path).cloned())
    };
    before.uid != after.uid
        || before.generation != after.generation
        || (devices::has_claims(after) && claims(before) != claims(after))
        || before.labels != after.labels
        || before.pod().is_some_and(|pod| pod.node.is_some())
        || (nominated(before).is_some() && nominated(after).is_none())
}

/// Whether a change could make pods with the same reasons schedulable.
fn helps(world: &World, wait: &SchedulingWait, waiting: &Row, change: RowChange<'_>) -> bool {
    let Some(row) = change.after.or(change.before) else { return false };
    let refused_by = |plugin: &str| wait.causes.contains(plugin);
    if refused_by(LIMITS) && volume_limits::RELEVANT_RESOURCES.contains(&row.key.resource.0) {
        return true;
    }
    match row.key.resource.0 {
        "nodes" => node_helps(world, wait, waiting, change),
        "pods" => pod_helps(world, wait, waiting, change),
        storage::CLAIMS => [BINDING, ZONE].into_iter().any(refused_by) && row.key.namespace == waiting.key.namespace,
        storage::VOLUMES | storage::CLASSES => [BINDING, ZONE].into_iter().any(refused_by),
        devices::CLAIMS => refused_by(PLUGIN),
        // A class can provide an extended resource.
        devices::CLASSES => refused_by(PLUGIN) || refused_by("NodeResourcesFit"),
        devices::SLICES => refused_by(PLUGIN),
        // Default constraints count the pods that Services and owners select.
        "services" => refused_by("PodTopologySpread") && wait.spread.is_empty(),
        "namespaces" => refused_by("InterPodAffinity"),
        _ => false,
    }
}

/// Whether one of the plugins that refused the pod now accepts this node. Other plugins do not run, as in Kubernetes.
fn node_helps(world: &World, wait: &SchedulingWait, waiting: &Row, change: RowChange<'_>) -> bool {
    let RowChange { before, after } = change;
    let is_new = before.is_none();
    let is_relabelled = before.map(|row| &row.labels) != after.map(|row| &row.labels);
    let refused_by = |plugin: &str| wait.causes.contains(plugin);
    // Pods of one group have different claims, so the topology of volumes cannot be checked by the claims of one pod.
    let by_volumes = refused_by(BINDING) || refused_by(ZONE);
    if is_relabelled && (by_volumes || (!is_new && (refused_by("PodTopologySpread") || refused_by("InterPodAffinity"))))
    {
        return true;
    }
    let Some((node, fields)) = after.and_then(|node| Some((node, node.node()?))) else { return false };
    // Without any node no plugin has refused the pod.
    if is_new && wait.causes.is_empty() {
        return true;
    }
    let was = before.and_then(Row::node);
    let is_other = |plugin: &str| {
        is_new
            || match plugin {
                "NodeResourcesFit" => {
                    was.is_some_and(|was| (&was.allocatable, was.pods) != (&fields.allocatable, fields.pods))
                }
                "TaintToleration" => was.is_some_and(|was| was.taints != fields.taints),
                "NodeUnschedulable" => was.is_some_and(|was| was.unschedulable != fields.unschedulable),
                "NodeAffinity" => is_relabelled,
                // These accept a node only after changes of pods or volumes, or after a new label.
                "NodeName" | "NodePorts" | "PodTopologySpread" | "InterPodAffinity" | BINDING | ZONE | LIMITS
                | RESTRICTIONS => false,
                // The devices of slices for nodes with a label.
                PLUGIN => is_relabelled,
                _ => true,
            }
    };
    let other: Vec<&str> = wait.causes.iter().copied().filter(|plugin| is_other(plugin)).collect();
    if other.is_empty() {
        return false;
    }
    let candidate = world.slot_of(&node.key.name).and_then(|slot| nodes::candidate(world, slot));
    candidate.is_none_or(|candidate| {
        let constraints = PodConstraints::from_pod(world, waiting);
        let query = PodQuery::from_pod(world, waiting, &constraints);
        other.iter().any(|plugin| !filter::is_unresolvable_for(plugin, &query, &candidate))
    })
}

fn pod_helps(world: &World, wait: &SchedulingWait, waiting: &Row, change: RowChange<'_>) -> bool {
    let (was, is) = (change.before.and_then(node_of), change.after.and_then(node_of));
    let labels = |row: Option<&Row>| row.map(|row| row.labels.clone());
    let relabelled = was.is_some() && is.is_some() && labels(change.before) != labels(change.after);
    // A nominated pod does not count for affinity until it is bound.
    let bound = |row: Option<&Row>| row.and_then(Row::pod).and_then(|pod| pod.node.clone());
    let is_bound_now = bound(change.before) != bound(change.after);
    let came = change.after.filter(|_| is.is_some() && (was != is || relabelled || is_bound_now));
    let left = change.before.filter(|_| was.is_some() && (was != is || relabelled));
    let about =
        |terms: &[PodTerm], row: Option<&Row>| row.is_some_and(|row| terms.iter().any(|term| term.selects(world, row)));
    wait.causes.iter().any(|cause| match *cause {
        "NodeResourcesFit" => releases_resources(world, waiting, change),
        "NodePorts" | LIMITS => left.is_some(),
        RESTRICTIONS => left.is_some_and(|row| row.key.namespace == waiting.key.namespace),
        "PodTopologySpread" => {
            let leaving = change.after.filter(|row| is.is_some() && row.is_deleting());
            [came, left, leaving].into_iter().flatten().any(|row| {
                row.key.namespace == waiting.key.namespace && (wait.spread.is_empty() || about(&wait.spread, Some(row)))
            })
        }
        "InterPodAffinity" => {
            let excluded = left.and_then(|row| row.pod()?.anti_affinity.as_ref());
            about(&wait.affinity, came) || about(&wait.anti_affinity, left) || excluded.is_some()
        }
        // These accept a node only after changes of nodes or volumes.
        "NodeName" | "NodeUnschedulable" | "NodeAffinity" | "TaintToleration" | BINDING | ZONE | PLUGIN => false,
        _ => true,
    })
}

/// Returns the pod's node, or its nominated node.
fn node_of(row: &Row) -> Option<&Str> {
    let pod = row.pod().filter(|pod| !pod.phase.is_terminal())?;
    pod.node.as_ref().or(pod.nominated.as_ref())
}

/// Whether a pod released resources that a waiting one requests. A pod with a nominated node reacts only to that node;
/// a pod that may preempt reacts to every release, because fewer victims may then be enough.
fn releases_resources(world: &World, waiting: &Row, change: RowChange<'_>) -> bool {
    let Some(node) = change.before.and_then(node_of) else { return false };
    let asked = |row: Option<&Row>| {
        row.filter(|row| node_of(row) == Some(node)).and_then(|row| row.pod()).map(|pod| pod.requests.clone())
    };
    let Some(pod) = waiting.pod().filter(|_| asked(change.before) != asked(change.after)) else { return false };
    if let Some(nominated) = &pod.nominated {
        return nominated == node;
    }
    let Some(cached) = world.slot_of(node).map(|slot| &world.node_cache()[slot]) else { return false };
    pod.priority > 0
        || cached.row.node().is_some_and(|fields| pod.requests.fit_beside(&cached.load.requests, &fields.allocatable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Key, Object, Resource, Time};
    use serde_json::{Value, json};

    fn row(body: Value) -> Row {
        let object = Object(body);
        let resource = if object.kind() == "Node" { "nodes" } else { "pods" };
        Row::new(Key::new(Resource(resource), object.namespace(), object.name()), object)
    }

    fn node(name: &str, cpu: &str, spec: Value) -> Value {
        json!({"kind": "Node", "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}}, "spec": spec,
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}})
    }

    fn pod(name: &str, cpu: &str, node: Value, spec: Value) -> Value {
        let mut pod = json!({"kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
        json_patch::merge(&mut pod["spec"], &spec);
        pod
    }

    /// Whether a change wakes a pod that requests two cores and was refused by these plugins.
    fn wakes(causes: &[&'static str], spec: Value, before: Value, after: Value) -> bool {
        let mut world = World::new(Time::UNIX_EPOCH);
        let full = pod("full", "3", "a".into(), json!({}));
        for body in [&node("a", "4", json!({})), &full, &after, &pod("p", "2", Value::Null, spec)]
            .into_iter()
            .filter(|body| !body.is_null())
        {
            let row = row(body.clone());
            world.put(row.key, body.to_string().into());
        }
        let waiting = world.find("pods", "default", "p").unwrap().clone();
        let held =
            build_wait(&waiting, &PodConstraints::from_pod(&world, &waiting), causes.iter().copied().collect(), None);
        let (before, after) = [before, after].map(|body| (!body.is_null()).then(|| row(body))).into();
        helps(&world, &held, &waiting, RowChange { before: before.as_ref(), after: after.as_ref() })
    }

    #[test]
    fn pods_are_woken_by_what_could_help_them() {
        let (none, plain) = (Value::Null, json!({}));
        let fit = ["NodeResourcesFit"];
        let tainted = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        let affinity = |field: &str, app: &str| {
            let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"});
            json!({"affinity": {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
        };
        let nominated = |mut pod: Value| {
            pod["status"]["nominatedNodeName"] = "a".into();
            pod
        };
        for (case, wanted, causes, spec, before, after) in [
            ("a node with room", true, &fit[..], plain.clone(), none.clone(), node("b", "4", plain.clone())),
            ("a node that is too small", false, &fit, plain.clone(), none.clone(), node("b", "1", plain.clone())),
            (
                "a node that another plugin may refuse",
                true,
                &fit,
                plain.clone(),
                none.clone(),
                node("b", "4", tainted.clone()),
            ),
            (
                "a taint less",
                true,
                &["TaintToleration"],
                plain.clone(),
                node("b", "4", tainted),
                node("b", "4", plain.clone()),
            ),
            (
                "a node that says the same",
                false,
                &fit,
                plain.clone(),
                node("b", "4", plain.clone()),
                node("b", "4", plain.clone()),
            ),
            (
                "a pod that leaves too little",
                false,
                &fit,
                plain.clone(),
                pod("x", "1", "a".into(), plain.clone()),
                none.clone(),
            ),
            (
                "a pod that comes",
                false,
                &fit,
                plain.clone(),
                pod("x", "1", none.clone(), plain.clone()),
                pod("x", "1", "a".into(), plain.clone()),
            ),
            (
                "a pod that it wants near",
                true,
                &["InterPodAffinity"],
                affinity("podAffinity", "x"),
                pod("x", "1", none.clone(), plain.clone()),
                pod("x", "1", "a".into(), plain.clone()),
            ),
            (
                "a nominated pod that it wants near is bound",
                true,
                &["InterPodAffinity"],
                affinity("podAffinity", "x"),
                nominated(pod("x", "1", none.clone(), plain.clone())),
                nominated(pod("x", "1", "a".into(), plain.clone())),
            ),
            (
                "another pod",
                false,
                &["InterPodAffinity"],
                affinity("podAffinity", "x"),
                pod("y", "1", none.clone(), plain.clone()),
                pod("y", "1", "a".into(), plain.clone()),
            ),
            (
                "a pod that it does not want near goes",
                true,
                &["InterPodAffinity"],
                affinity("podAntiAffinity", "x"),
                pod("x", "1", "a".into(), plain.clone()),
                none.clone(),
            ),
        ] {
            assert_eq!(wakes(causes, spec, before, after), wanted, "{case}");
        }
    }

    #[test]
    fn queueing_hint_is_named_once() {
        let told = |causes: &[&'static str]| {
            describe_wake_events(&SchedulingWait {
                causes: causes.iter().copied().collect(),
                ..SchedulingWait::default()
            })
            .join(", or ")
        };
        assert_eq!(told(&[]), "a node is added");
        assert_eq!(
            told(&["NodeAffinity", "NodeResourcesFit"]),
            "a node is added, or a node gets other labels, or a node offers more, or a pod ends on a node that then has room for this pod"
        );
        assert_eq!(told(&[RESTRICTIONS]), "a node is added, or the pod that uses its claim ends");
    }

    #[test]
    fn status_change_alone_queues_no_pod() {
        let plain = row(pod("p", "1", Value::Null, json!({})));
        let mut told = pod("p", "1", Value::Null, json!({}));
        told["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False"}]});
        let told = row(told);
        assert!(is_changed_pod(RowChange { before: None, after: Some(&plain) }));
        assert!(!is_changed_pod(RowChange { before: Some(&plain), after: Some(&told) }));
    }

    #[test]
    fn names_of_claims_in_the_status_queue_a_pod() {
        let with = |status: Value| {
            let mut pod = pod("p", "1", Value::Null, json!({}));
            pod["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimTemplateName": "t"}]);
            pod["status"] = status;
            row(pod)
        };
        let (before, named) = (with(json!({})), with(json!({"resourceClaimStatuses": [{"name": "c"}]})));
        assert!(is_changed_pod(RowChange { before: Some(&before), after: Some(&named) }));
        assert!(!is_changed_pod(RowChange { before: Some(&named), after: Some(&named) }));
    }
}
