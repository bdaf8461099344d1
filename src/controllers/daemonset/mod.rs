//! DaemonSets run one pod on every node that fits.
//!
//! `placement` selects the nodes and pins each pod to its node, `rolling` replaces pods of old templates, and `retries`
//! computes the backoff after pods that ended.

mod placement;
mod retries;
mod rolling;
#[cfg(test)]
mod tests;

use super::controller_ref::Owner;
use super::pods::{self, BATCH, BURST, PodCreationBudget, from_template};
use super::revisions::{self, History, REVISION_HASH};
use super::{percent, status};
use crate::object::time::Shift;
use crate::object::{Key, Object};
use crate::world::{EventType, Loop, Phase, Plan, Row, World, WriteVerb, free_name};
use placement::NodeFit;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ROOT: &str = "daemonsets.apps";
/// Label on pods with the generation of the template, for older tools.
const TEMPLATE_GENERATION: &str = "pod-template-generation";

/// The loop of DaemonSets.
pub const LOOP: Loop = Loop { name: "daemonset-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        "nodes" => world.list(ROOT).map(|set| set.key.clone()).collect(),
        _ => pods::concerned(world, ROOT, "DaemonSet", &["pods", revisions::REVISIONS], row),
    }
}

/// State of one DaemonSet while its plan is made.
struct DaemonSetState<'w> {
    world: &'w World,
    owner: Owner<'w>,
    object: Object,
    history: History,
    hash: String,
    min_ready: i64,
    /// Every node, and whether it should run a pod.
    nodes: Vec<(&'w Arc<Row>, NodeFit)>,
    /// Its pods by the node that they run on or are pinned to.
    pods: BTreeMap<String, Vec<&'w Arc<Row>>>,
    plan: Plan,
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key) else { return plan };
    let owner = Owner { row, api_version: "apps/v1", kind: "DaemonSet" };
    let rows = owner.claim(world, "pods", &mut plan);
    let claimed = owner.claim(world, revisions::REVISIONS, &mut plan);
    if !plan.is_empty() || row.is_deleting() || row.workload().is_none_or(|fields| fields.selector.is_everything()) {
        return plan;
    }
    let object = row.object();
    let Some(history) = revisions::sync_revisions(world, &owner, &object, &claimed, &mut plan) else {
        revisions::count_collision(object, &mut plan);
        return plan;
    };
    let mut by_node: BTreeMap<String, Vec<&Arc<Row>>> = BTreeMap::new();
    for pod in rows {
        if let Some(node) = placement::node_of(pod) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    let template = object.value_at(&["spec", "template"]).unwrap_or(&Value::Null);
    let pod = placement::add_tolerations(from_template(&owner, template));
    let set = DaemonSetState {
        world,
        hash: history.newest_hash(&owner).to_owned(),
        min_ready: object.int(&["spec", "minReadySeconds"]).unwrap_or(0),
        nodes: world.list("nodes").map(|node| (node, placement::fit(node, &pod))).collect(),
        owner,
        object,
        history,
        pods: by_node,
        plan,
    };
    set.make_plan()
}

impl<'w> DaemonSetState<'w> {
    fn make_plan(mut self) -> Plan {
        self.place();
        if self.plan.is_empty() {
            self.roll();
        }
        let live: BTreeSet<String> =
            self.pods.values().flatten().filter_map(|pod| pod.label(REVISION_HASH)).map(str::to_owned).collect();
        let limit = self.object.int(&["spec", "revisionHistoryLimit"]).unwrap_or(10);
        self.history.truncate(self.world, &self.owner, limit, &live, &mut self.plan);
        self.count()
    }

    fn pods_on_node(&self, node: &str) -> Vec<&'w Arc<Row>> {
        self.pods.get(node).cloned().unwrap_or_default()
    }

    /// Creates a pod on every node that fits, and deletes pods on other nodes.
    fn place(&mut self) {
        // Its pods are not more than the nodes, so those that wait for a node are not counted.
        let waiting = std::iter::empty();
        let allowance = PodCreationBudget::new(self.world, LOOP.name, self.owner.row, waiting, 0, &mut self.plan);
        let mut left = allowance.limit(BATCH);
        for (node, fit) in self.nodes.clone() {
            let pods = self.pods_on_node(&node.key.name);
            match fit {
                _ if pods::is_full(&self.plan) => {}
                NodeFit::Run if pods.is_empty() && left > 0 => {
                    left -= 1;
                    self.create_pod(&node.key.name);
                }
                NodeFit::Run | NodeFit::Stay => self.thin_out(&pods),
                NodeFit::Leave => {
                    for pod in pods.into_iter().filter(|pod| !pod.is_deleting()).take(BURST) {
                        self.delete(pod, "its node no longer fits");
                    }
                }
            }
        }
        allowance.report_refusal(self.owner.row, &mut self.plan);
        let known: BTreeSet<&str> = self.nodes.iter().map(|(node, _)| &*node.key.name).collect();
        let lost: Vec<&Arc<Row>> = self
            .pods
            .iter()
            .filter(|(node, _)| !known.contains(node.as_str()))
            .flat_map(|(_, pods)| pods)
            .copied()
            .collect();
        // Pod garbage collection removes the bound ones (`getUnscheduledPodsWithoutNode`).
        let is_bound = |pod: &Row| pod.pod().is_some_and(|pod| pod.node.is_some());
        for pod in lost.into_iter().filter(|pod| !pod.is_deleting() && !is_bound(pod)).take(BURST) {
            self.delete(pod, "its node is gone");
        }
    }

    /// Deletes failed pods after a backoff. Of several pods only the oldest stays, or one of each template during a
    /// surge.
    fn thin_out(&mut self, pods: &[&'w Arc<Row>]) {
        let pods = &pods[..pods.len().min(BURST)];
        let mut left: Vec<&Arc<Row>> = Vec::new();
        for pod in pods.iter().filter(|pod| !pod.is_deleting()) {
            match pod.pod().map(|fields| fields.phase) {
                Some(Phase::Failed | Phase::Succeeded) => self.retry(pod, pods.len() > 1),
                _ => left.push(pod),
            }
        }
        left.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.key.cmp(&b.key)));
        let surging = self.surge() > 0;
        let (mut has_new, mut has_old) = (false, false);
        for pod in left {
            let new = pod.label(REVISION_HASH) == Some(&self.hash);
            let is_duplicate = if surging { if new { has_new } else { has_old } } else { has_new || has_old };
            if is_duplicate {
                self.delete(pod, "the node already has a pod");
            }
            has_new |= new;
            has_old |= !new;
        }
    }

    /// Replaces a pod that has ended: the first at once, later ones of the same template after a growing backoff. An
    /// annotation on the pod counts the failures.
    fn retry(&mut self, pod: &Row, has_other: bool) {
        let failures = retries::failed_before(pod, &self.hash);
        let until = retries::replacement_time(pod, failures, self.world.now);
        if self.world.now < until {
            self.plan.wait(format!("pod {} has ended and is recreated soon", pod.key.name));
            return self.plan.wake_at(until);
        }
        let Some(node) = placement::node_of(pod) else { return };
        let (kind, reason, word) = match pod.pod().map(|pod| pod.phase) {
            Some(Phase::Failed) => (EventType::Warning, "FailedDaemonPod", "failed"),
            _ => (EventType::Normal, "SucceededDaemonPod", "succeeded"),
        };
        let message = format!("Found {word} daemon pod {} on node {node}, will try to kill it", pod.key.path());
        self.plan.event(self.owner.row, kind, reason, message);
        self.delete(pod, "it has ended");
        if !has_other {
            let failures = retries::failures_for_successor(pod, failures, self.world.now);
            self.create_pod_after_failures(&node, failures);
        }
    }

    fn create_pod(&mut self, node: &str) {
        self.create_pod_after_failures(node, 0);
    }

    /// Creates the pod of a node, with the number of failed pods before it.
    fn create_pod_after_failures(&mut self, node: &str, failures: u32) {
        let row = self.owner.row;
        let template = self.object.value_at(&["spec", "template"]).unwrap_or(&Value::Null);
        let mut pod = placement::pin_to_node(placement::add_tolerations(from_template(&self.owner, template)), node);
        let generation = self.object.annotation("deprecated.daemonset.template.generation").unwrap_or("1").to_owned();
        pod.set(&["metadata", "labels", REVISION_HASH], self.hash.as_str());
        pod.set(&["metadata", "labels", TEMPLATE_GENERATION], generation);
        if failures > 0 {
            pod.set(&["metadata", "annotations", retries::ANNOTATION], failures.to_string());
        }
        let name = free_name(self.world, "pods", row, &format!("{}-", row.key.name), self.plan.writes.len());
        pod.set(&["metadata", "name"], name.as_str());
        self.plan.event(row, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
        self.plan.write(WriteVerb::Create(pod), format!("node {node} has none"));
    }

    fn delete(&mut self, pod: &Row, why: &str) {
        self.plan.event(
            self.owner.row,
            EventType::Normal,
            "SuccessfulDelete",
            format!("Deleted pod: {}", pod.key.name),
        );
        self.plan.delete(pod, why);
    }

    fn is_available(&mut self, pod: &Row) -> bool {
        let is_old_enough = pod.is_available_pod(self.min_ready, self.world.now);
        let available = is_old_enough && !pod.is_deleting();
        if let Some(fields) = pod.pod().filter(|pod| pod.ready && !is_old_enough)
            && let Some(since) = fields.ready_since
        {
            self.plan.wake_at(since.later(jiff::SignedDuration::from_secs(self.min_ready)));
        }
        available
    }

    /// Number of nodes that should run a pod.
    fn desired(&self) -> i64 {
        self.nodes.iter().filter(|(_, fit)| *fit == NodeFit::Run).count() as i64
    }

    fn bound(&self, name: &str, default: i64) -> i64 {
        let value = self.object.value_at(&["spec", "updateStrategy", "rollingUpdate", name]);
        percent::resolve_percent(value, self.desired(), true).unwrap_or(default)
    }

    fn surge(&self) -> i64 {
        self.bound("maxSurge", 0)
    }

    fn count(mut self) -> Plan {
        let (mut current, mut misplaced, mut ready, mut available, mut updated) = (0, 0, 0, 0, 0);
        for (node, fit) in self.nodes.clone() {
            let pods = self.pods_on_node(&node.key.name);
            if fit != NodeFit::Run {
                misplaced += i64::from(!pods.is_empty());
                continue;
            }
            // The oldest ready one of several pods counts for the node.
            let oldest = pods.iter().min_by_key(|pod| (!pod.pod().is_some_and(|pod| pod.ready), pod.created));
            let Some(pod) = oldest.copied() else { continue };
            current += 1;
            ready += i64::from(pod.pod().is_some_and(|pod| pod.ready));
            // Also wakes the loop when the pod becomes available.
            self.is_available(pod);
            // A pod that ends counts as long as it is ready, unlike in a rollout.
            available += i64::from(pod.is_available_pod(self.min_ready, self.world.now));
            updated += i64::from(pod.label(REVISION_HASH) == Some(&self.hash));
        }
        let desired = self.desired();
        let mut new = status::status_map(&self.object);
        for (name, count) in [
            ("desiredNumberScheduled", desired),
            ("currentNumberScheduled", current),
            ("numberMisscheduled", misplaced),
            ("numberReady", ready),
            ("observedGeneration", self.owner.row.generation),
        ] {
            new.insert(name.into(), count.into());
        }
        status::set_count(&mut new, "updatedNumberScheduled", updated);
        status::set_count(&mut new, "numberAvailable", available);
        status::set_count(&mut new, "numberUnavailable", desired - available);
        if available < desired {
            self.plan.wait(format!("{available} of {desired} pods are available"));
        }
        status::write(&mut self.plan, self.object, new.into(), "the counts of pods changed");
        self.plan
    }
}
