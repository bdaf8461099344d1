//! DefaultPreemption: which pods of lower priority have to go from which node, so that a pod fits that fits nowhere.
//!
//! Source: `pkg/scheduler/framework/preemption` and its plugin `defaultpreemption`, whose order and words these are.

use super::filter::{self, Asks, Refusal};
use super::message;
use super::nodes::Candidate;
use crate::object::{Object, Time};
use crate::world::{Row, World};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

/// The reason of the condition DisruptionTarget of a pod that has to go.
pub const REASON: &str = "PreemptionByScheduler";

/// Fewest nodes that are compared, and the part of all nodes, in percent. (DefaultPreemptionArgs.)
const FEWEST_COMPARED: usize = 100;
const PERCENT_COMPARED: usize = 10;

/// What preemption can do for a pod.
pub enum Outcome<'a> {
    /// These pods have to go from a node.
    Victims(Choice<'a>),
    /// Pods are going for it already.
    UnderWay,
    /// Nothing, and why.
    Nothing(String),
}

/// A node, and the pods that have to go from it, the most important first.
pub struct Choice<'a> {
    /// The node.
    pub node: &'a Row,
    /// The pods; at least one.
    pub victims: Vec<&'a Arc<Row>>,
    /// How many of them a disruption budget would keep.
    violations: usize,
}

/// A pod that fits nowhere, and why not.
pub struct Preemptor<'a, 'b> {
    /// The picture.
    pub world: &'a World,
    /// What it asks for as things are.
    pub asks: &'b Asks<'b>,
    /// Why each node refuses it.
    pub verdicts: &'b [Vec<Refusal>],
}

impl<'a> Preemptor<'a, '_> {
    /// Finds the pods whose end does the least harm.
    pub fn preempt(&self, nodes: &mut [Candidate<'a>]) -> Outcome<'a> {
        if self.asks.pod.text(&["spec", "preemptionPolicy"]) == Some("Never") {
            return Outcome::Nothing("not eligible due to preemptionPolicy=Never.".to_owned());
        }
        if self.is_under_way(nodes) {
            return Outcome::UnderWay;
        }
        let mut reasons: Vec<Cow<'static, str>> = Vec::new();
        let mut choices: Vec<Choice<'a>> = Vec::new();
        let enough = (nodes.len() * PERCENT_COMPARED / 100).max(FEWEST_COMPARED).min(nodes.len());
        let budgets = budgets(self.world);
        // Not always the same nodes, where not all are compared.
        let first = self.world.seed as usize % nodes.len().max(1);
        for at in (first..nodes.len()).chain(0..first) {
            if is_for_good(&self.verdicts[at]) {
                reasons.push("Preemption is not helpful for scheduling".into());
                continue;
            }
            if choices.len() >= enough && choices.iter().any(|choice| choice.violations == 0) {
                break;
            }
            match self.victims(nodes, at, &budgets) {
                Ok(choice) => choices.push(choice),
                Err(why) => reasons.extend(why),
            }
        }
        match choices.into_iter().min_by_key(|choice| self.harm(choice)) {
            Some(choice) => Outcome::Victims(choice),
            None => Outcome::Nothing(message::nodes_refuse(nodes.len(), reasons.iter())),
        }
    }

    /// Whether pods on the node that it was promised are going for it.
    fn is_under_way(&self, nodes: &[Candidate<'_>]) -> bool {
        let Some(promised) = &self.asks.fields.nominated else { return false };
        let Some(at) = nodes.iter().position(|node| node.row.key.name == *promised) else { return false };
        let going = |pod: &Arc<Row>| pod.is_deleting() && self.outranks(pod) && pod.mentions(REASON);
        !is_for_good(&self.verdicts[at]) && self.world.pods_on(promised).any(going)
    }

    fn outranks(&self, pod: &Row) -> bool {
        priority(pod) < self.asks.fields.priority
    }

    /// The fewest and least important pods of a node whose end makes room, or why there are none.
    fn victims(
        &self,
        nodes: &mut [Candidate<'a>],
        at: usize,
        budgets: &[Budget<'a>],
    ) -> Result<Choice<'a>, Vec<Cow<'static, str>>> {
        let mut lower: Vec<&Arc<Row>> = nodes[at].pods().filter(|pod| self.outranks(pod)).collect();
        if lower.is_empty() {
            return Err(vec!["No preemption victims found for incoming pod".into()]);
        }
        lower.sort_by_key(|pod| self.importance(pod));
        lower.iter().for_each(|pod| nodes[at].think_away(pod));
        let refusals = filter::refusals(self.asks, &nodes[at]);
        let chosen = if refusals.is_empty() {
            let (kept, free) = split_by_budget(&lower, budgets);
            let mut gone = Vec::new();
            for pod in kept.iter().chain(&free).copied() {
                nodes[at].think_back(pod);
                if !filter::refusals(self.asks, &nodes[at]).is_empty() {
                    nodes[at].think_away(pod);
                    gone.push(pod);
                }
            }
            let violations = kept.iter().filter(|pod| gone.iter().any(|one| one.key == pod.key)).count();
            gone.sort_by_key(|pod| self.importance(pod));
            Ok(Choice { node: nodes[at].row, victims: gone, violations })
        } else {
            Err(refusals.into_iter().map(|refusal| refusal.reason).collect())
        };
        lower.iter().for_each(|pod| nodes[at].think_back(pod));
        chosen
    }

    /// What is kept first comes first: the higher priority, then the longer it runs.
    fn importance(&self, pod: &Row) -> (Reverse<i32>, Time) {
        (Reverse(priority(pod)), self.started(pod))
    }

    /// Since when it runs; a pod that has not said so yet does since now.
    fn started(&self, pod: &Row) -> Time {
        pod.pod().and_then(|pod| pod.started).unwrap_or(self.world.now)
    }

    /// What choices are compared by, the least harm first: budgets, the highest priority, all priorities, the number of pods, and how
    /// long the most important ones have run.
    fn harm(&self, choice: &Choice<'_>) -> (usize, i32, i64, usize, Reverse<Time>) {
        let highest = choice.victims.first().map_or(0, |pod| priority(pod));
        let above_lowest = |pod: &&Arc<Row>| i64::from(priority(pod)) - i64::from(i32::MIN);
        let most_important = choice.victims.iter().filter(|pod| priority(pod) == highest);
        let earliest = most_important.map(|pod| self.started(pod)).min().unwrap_or(self.world.now);
        let sum = choice.victims.iter().map(above_lowest).sum();
        (choice.violations, highest, sum, choice.victims.len(), Reverse(earliest))
    }
}

fn priority(pod: &Row) -> i32 {
    pod.pod().map_or(0, |pod| pod.priority)
}

/// Nodes that refuse a pod whatever runs on them.
fn is_for_good(refusals: &[Refusal]) -> bool {
    refusals.iter().any(|refusal| refusal.for_good)
}

/// A PodDisruptionBudget, and its status.
struct Budget<'a> {
    row: &'a Row,
    body: Object,
}

fn budgets(world: &World) -> Vec<Budget<'_>> {
    world.list("poddisruptionbudgets.policy").map(|row| Budget { row, body: row.object() }).collect()
}

/// Pods whose end a budget does not allow, and the others. Kubernetes: `filterPodsWithPDBViolation`.
fn split_by_budget<'a>(pods: &[&'a Arc<Row>], budgets: &[Budget<'_>]) -> (Vec<&'a Arc<Row>>, Vec<&'a Arc<Row>>) {
    let allowed = |budget: &Budget<'_>| budget.body.int(&["status", "disruptionsAllowed"]).unwrap_or(0);
    let mut left: Vec<i64> = budgets.iter().map(allowed).collect();
    let is_kept = |pod: &&&'a Arc<Row>| {
        let mut kept = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            let empty = budget.row.workload().is_none_or(|fields| fields.selector.requirements().is_empty());
            let counted = budget.body.at(&["status", "disruptedPods", &pod.key.name]).is_some();
            if !empty && !counted && budget.row.selects(pod) {
                *left -= 1;
                kept |= *left < 0;
            }
        }
        kept
    };
    pods.iter().partition(is_kept)
}
