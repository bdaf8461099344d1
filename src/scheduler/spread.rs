//! PodTopologySpread: a pod's constraints that must hold (`DoNotSchedule`).

use super::affinity;
use super::nodes::Candidate;
use crate::object::Object;
use crate::object::selector::Selector;
use crate::world::Row;
use serde_json::Value;
use std::collections::BTreeMap;

/// One constraint, and how many pods it counts in each place.
struct Constraint {
    key: String,
    max_skew: i64,
    min_domains: usize,
    /// One, when the pod itself is counted too.
    own: i64,
    counts: BTreeMap<String, i64>,
}

/// A pod's constraints, read once for all nodes.
#[derive(Default)]
pub struct Spread(Vec<Constraint>);

impl Spread {
    /// Reads them, and counts.
    pub fn of(pod: &Object, row: &Row, nodes: &[Candidate<'_>]) -> Spread {
        let all = pod.items(&["spec", "topologySpreadConstraints"]).iter();
        let hard: Vec<&Value> = all.filter(|one| one["whenUnsatisfiable"] == "DoNotSchedule").collect();
        let keys: Vec<&str> = hard.iter().map(|one| one["topologyKey"].as_str().unwrap_or_default()).collect();
        let is_counted = |constraint: &Value, node: &Candidate<'_>| {
            let honours = |field: &str, default: &str| constraint[field].as_str().unwrap_or(default) == "Honor";
            let fits = !honours("nodeAffinityPolicy", "Honor") || affinity::node_matches(pod, node.row);
            fits && keys.iter().all(|key| node.row.label(key).is_some())
        };
        let read = |constraint: &&Value| {
            let selector = selector(constraint, pod);
            let key = constraint["topologyKey"].as_str().unwrap_or_default().to_owned();
            let selects = |other: &Row| {
                other.key.namespace == row.key.namespace
                    && !other.is_deleting()
                    && selector.matches(|key| other.label(key))
            };
            let mut counts: BTreeMap<String, i64> = BTreeMap::new();
            for node in nodes.iter().filter(|node| is_counted(constraint, node)) {
                let count = node.pods().filter(|other| selects(other)).count() as i64;
                *counts.entry(node.row.label(&key).unwrap_or_default().to_owned()).or_default() += count;
            }
            Constraint {
                max_skew: constraint["maxSkew"].as_i64().unwrap_or(1),
                min_domains: constraint["minDomains"].as_u64().unwrap_or(1) as usize,
                own: i64::from(selector.matches(|key| row.label(key))),
                key,
                counts,
            }
        };
        Spread(hard.iter().map(read).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Why a node is refused, and whether for good.
    pub fn refusal(&self, node: &Row) -> Option<(&'static str, bool)> {
        for constraint in &self.0 {
            let Some(place) = node.label(&constraint.key) else {
                return Some(("node(s) didn't match pod topology spread constraints (missing required label)", true));
            };
            let fewest = match constraint.counts.values().min() {
                Some(fewest) if constraint.counts.len() >= constraint.min_domains => *fewest,
                _ => 0,
            };
            let here = constraint.counts.get(place).copied().unwrap_or(0);
            if here + constraint.own - fewest > constraint.max_skew {
                return Some(("node(s) didn't match pod topology spread constraints", false));
            }
        }
        None
    }
}

/// The constraint's selector, with the pod's own values of `matchLabelKeys`. None selects nothing.
fn selector(constraint: &Value, pod: &Object) -> Selector {
    let mut selector = constraint["labelSelector"].clone();
    if selector.is_null() {
        return Selector::nothing();
    }
    for key in constraint["matchLabelKeys"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if let Some(value) = pod.label(key) {
            selector["matchLabels"][key] = value.into();
        }
    }
    Selector::from_label_selector(&selector).unwrap_or_else(|_| Selector::nothing())
}
