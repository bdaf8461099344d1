//! DefaultPreemption: selects pods of lower priority to remove from a node, so that an unschedulable pod fits.
//!
//! Source: `pkg/scheduler/framework/preemption` and its plugin `defaultpreemption`, for order and messages.

use super::filter::{self, PodQuery};
use super::message;
use super::node_results::{NodeResultCache, PreemptionVerdict, VictimCost, VictimSearch, Victims};
use super::nodes::{self, CandidateNode};
use crate::object::{Object, Time};
use crate::world::{Row, World};
use std::cmp::Reverse;
use std::sync::Arc;

/// The reason of the condition DisruptionTarget of a pod that has to go.
pub const REASON: &str = "PreemptionByScheduler";

/// Fewest nodes that are compared, and the part of all nodes, in percent. (DefaultPreemptionArgs.)
const MIN_CANDIDATE_NODES: usize = 100;
const MIN_CANDIDATE_NODES_PERCENT: usize = 10;

/// Result of preemption for a pod.
pub enum PreemptionOutcome<'a> {
    /// The pods to remove from one node.
    Victims(PreemptionChoice<'a>),
    /// Pods are already being removed for this pod.
    UnderWay,
    /// The reason why preemption does not help.
    Nothing(String),
}

/// A node, and the pods that have to go from it.
pub struct PreemptionChoice<'a> {
    /// The node.
    pub node: &'a Row,
    /// The pods; at least one.
    pub victims: Arc<Victims>,
}

/// A pod that fits nowhere, and the number of each node's verdict.
pub struct Preemptor<'a, 'b> {
    /// The pod's requirements against the actual state.
    pub query: &'b PodQuery<'a>,
    /// Number of each node's verdict, with the reason of its refusal.
    pub verdicts: &'b [usize],
}

impl<'a> Preemptor<'a, '_> {
    /// Finds the victims with the lowest cost.
    pub fn preempt(&self, node_results: &mut NodeResultCache) -> PreemptionOutcome<'a> {
        let PodQuery { world, pod, .. } = *self.query;
        if pod.text(&["spec", "preemptionPolicy"]) == Some("Never") {
            return PreemptionOutcome::Nothing("not eligible due to preemptionPolicy=Never.".to_owned());
        }
        let unresolvable = node_results.unresolvable();
        if self.is_under_way(&unresolvable) {
            return PreemptionOutcome::UnderWay;
        }
        let count = self.verdicts.len();
        let enough = (count * MIN_CANDIDATE_NODES_PERCENT / 100).max(MIN_CANDIDATE_NODES).min(count);
        let budgets = budgets(world);
        let mut preemption_failures: Vec<usize> = Vec::new();
        let (mut unhelpful, mut compared, mut spares_budgets) = (0, 0, false);
        let mut best: Option<PreemptionChoice<'a>> = None;
        // Not always the same nodes, where not all are compared.
        let first = world.seed as usize % count.max(1);
        for slot in (first..count).chain(0..first) {
            if unresolvable[self.verdicts[slot]] {
                unhelpful += 1;
                continue;
            }
            if compared >= enough && spares_budgets {
                break;
            }
            let victims = match self.preemption_verdict(node_results, slot, &budgets) {
                PreemptionVerdict::Possible(victims) => victims,
                PreemptionVerdict::Impossible(number) => {
                    preemption_failures.resize(preemption_failures.len().max(number + 1), 0);
                    preemption_failures[number] += 1;
                    continue;
                }
            };
            (compared, spares_budgets) = (compared + 1, spares_budgets || victims.cost.0 == 0);
            if best.as_ref().is_none_or(|best| victims.cost < best.victims.cost) {
                best = Some(PreemptionChoice { node: &world.node_cache()[slot].row, victims });
            }
        }
        match best {
            Some(choice) => PreemptionOutcome::Victims(choice),
            None => {
                let unhelpful =
                    Some(("Preemption is not helpful for scheduling", unhelpful)).filter(|(_, nodes)| *nodes > 0);
                let reasons = node_results
                    .preemption_failures(&preemption_failures)
                    .filter(|(_, nodes)| *nodes > 0)
                    .chain(unhelpful);
                PreemptionOutcome::Nothing(message::nodes_refuse(count, reasons))
            }
        }
    }

    /// Whether victims on the nominated node are already terminating.
    fn is_under_way(&self, unresolvable: &[bool]) -> bool {
        let world = self.query.world;
        let Some(nominated) = &self.query.fields.nominated else { return false };
        let Some(slot) = world.slot_of(nominated) else { return false };
        let going = |pod: &Arc<Row>| pod.is_deleting() && self.outranks(pod) && pod.mentions(REASON);
        !unresolvable[self.verdicts[slot]] && world.pods_on(nominated).any(going)
    }

    fn outranks(&self, pod: &Row) -> bool {
        priority(pod) < self.query.fields.priority
    }

    /// Returns the victims on the node in this slot. Results that depend on disruption budgets are not cached.
    fn preemption_verdict(
        &self,
        node_results: &mut NodeResultCache,
        slot: usize,
        budgets: &[DisruptionBudget<'_>],
    ) -> PreemptionVerdict {
        let world = self.query.world;
        let find = || nodes::candidate(world, slot).map_or(Err(Vec::new()), |node| self.find(node, budgets));
        node_results.preemption_verdict(self.query, slot, budgets.is_empty(), find)
    }

    /// Returns the smallest set of least important pods whose removal makes the pod fit, or the reasons against it.
    fn find(&self, mut node: CandidateNode<'_>, budgets: &[DisruptionBudget<'_>]) -> VictimSearch {
        node.add_nominated_pods(self.query.row);
        let mut lower: Vec<&Arc<Row>> = node.pods().filter(|pod| self.outranks(pod)).collect();
        if lower.is_empty() {
            return Err(vec!["No preemption victims found for incoming pod".into()]);
        }
        lower.sort_by_key(|pod| importance(pod));
        lower.iter().for_each(|pod| node.assume_removed(pod));
        let refusals = filter::refusals(self.query, &node);
        if !refusals.is_empty() {
            return Err(refusals.into_iter().map(|refusal| refusal.reason).collect());
        }
        let (kept, free) = split_by_budget(&lower, budgets);
        let (mut victims, mut violations): (Vec<Arc<Row>>, usize) = (Vec::new(), 0);
        for (at, pod) in kept.iter().chain(&free).enumerate() {
            node.assume_restored(pod);
            if !filter::refusals(self.query, &node).is_empty() {
                node.assume_removed(pod);
                victims.push(Arc::clone(pod));
                violations += usize::from(at < kept.len());
            }
        }
        if victims.is_empty() {
            return Err(Vec::new());
        }
        victims.sort_by_key(|pod| importance(pod));
        Ok(Victims { cost: cost(&victims, violations), pods: victims })
    }
}

fn cost(victims: &[Arc<Row>], violations: usize) -> VictimCost {
    let highest = victims.first().map_or(0, |pod| priority(pod));
    let above_lowest = |pod: &Arc<Row>| i64::from(priority(pod)) - i64::from(i32::MIN);
    let most_important = victims.iter().filter(|pod| priority(pod) == highest);
    let earliest = most_important.map(|pod| started(pod)).min().unwrap_or(Time::MAX);
    (violations, highest, victims.iter().map(above_lowest).sum(), victims.len(), Reverse(earliest))
}

/// Order of importance, most important first: higher priority, then longer running.
fn importance(pod: &Row) -> (Reverse<i32>, Time) {
    (Reverse(priority(pod)), started(pod))
}

/// Returns the start time; a pod without one counts as the newest.
fn started(pod: &Row) -> Time {
    pod.pod().and_then(|pod| pod.started).unwrap_or(Time::MAX)
}

fn priority(pod: &Row) -> i32 {
    pod.pod().map_or(0, |pod| pod.priority)
}

/// A PodDisruptionBudget, and its status.
struct DisruptionBudget<'a> {
    row: &'a Row,
    body: Object,
}

fn budgets(world: &World) -> Vec<DisruptionBudget<'_>> {
    world.list("poddisruptionbudgets.policy").map(|row| DisruptionBudget { row, body: row.object() }).collect()
}

/// Separates pods whose removal violates a disruption budget from the others. Kubernetes: `filterPodsWithPDBViolation`.
fn split_by_budget<'a>(
    pods: &[&'a Arc<Row>],
    budgets: &[DisruptionBudget<'_>],
) -> (Vec<&'a Arc<Row>>, Vec<&'a Arc<Row>>) {
    let allowed = |budget: &DisruptionBudget<'_>| budget.body.int(&["status", "disruptionsAllowed"]).unwrap_or(0);
    let mut left: Vec<i64> = budgets.iter().map(allowed).collect();
    let is_kept = |pod: &&&'a Arc<Row>| {
        let mut kept = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            let empty = budget.row.workload().is_none_or(|fields| fields.selector.requirements().is_empty());
            let counted = budget.body.value_at(&["status", "disruptedPods", &pod.key.name]).is_some();
            if !empty && !counted && budget.row.selects(pod) {
                *left -= 1;
                kept |= *left < 0;
            }
        }
        kept
    };
    pods.iter().partition(is_kept)
}
