//! PodTopologySpread: a pod's constraints that must hold (`DoNotSchedule`), and in [`score`] those by which nodes are ranked
//! (`ScheduleAnyway`).

pub mod score;

use super::affinity;
use super::nodes::{self, CandidateNode};
use crate::object::Object;
use crate::object::selector::Selector;
use crate::world::scheduler_profile::SchedulerProfile;
use crate::world::{CountedPods, PodTerm, Row, TopologyCounts, World, taint};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// One constraint, and how many pods it counts in each place.
#[derive(Clone)]
struct SpreadConstraint {
    key: String,
    max_skew: i64,
    min_domains: usize,
    /// 1 if the constraint also counts the pod itself, else 0.
    own: i64,
    term: Arc<PodTerm>,
    domain_counts: TopologyCounts,
    /// The domains whose nodes count; `None` means all.
    counted: Option<Vec<bool>>,
    /// The smallest count of those; for constraints that must hold.
    fewest: i64,
}

/// The constraints of a pod that must hold, read once for all nodes.
#[derive(Clone, Default)]
pub struct PodSpread {
    hard: Vec<SpreadConstraint>,
}

impl PodSpread {
    /// Reads the constraints of a pod, and counts pods in each domain.
    pub fn from_pod(world: &World, pod: &Object, row: &Row, profile: &SchedulerProfile) -> PodSpread {
        let mut hard = constraints(world, pod, row, profile, "DoNotSchedule").0;
        hard.iter_mut().for_each(SpreadConstraint::find_fewest);
        PodSpread { hard }
    }

    /// Whether there is no hard constraint.
    pub fn is_empty(&self) -> bool {
        self.hard.is_empty()
    }

    /// Returns the constraints with the hypothetical pods of one node counted.
    pub fn with_assumptions(&self, world: &World, node: &CandidateNode<'_>) -> PodSpread {
        let mut other = self.clone();
        for constraint in &mut other.hard {
            let term = constraint.term.clone();
            let counted = node.assumed_changes().filter(|(pod, _)| !pod.is_deleting() && term.selects(world, pod));
            constraint.domain_counts.shift(node.slot, counted.map(|(_, by)| by).sum());
            constraint.find_fewest();
        }
        other
    }

    /// Returns why a node is refused, and whether removing pods cannot change that.
    pub fn refusal(&self, world: &World, slot: usize) -> Option<(&'static str, bool)> {
        let has = |key: &str| world.node_cache().get(slot).is_some_and(|node| node.row.label(key).is_some());
        for constraint in &self.hard {
            let here = constraint.domain_counts.count_of_slot(slot);
            if here.is_none() && !has(&constraint.key) {
                return Some(("node(s) didn't match pod topology spread constraints (missing required label)", true));
            }
            if here.unwrap_or(0) + constraint.own - constraint.fewest > constraint.max_skew {
                return Some(("node(s) didn't match pod topology spread constraints", false));
            }
        }
        None
    }
}

impl SpreadConstraint {
    fn find_fewest(&mut self) {
        let is_counted = |place: &usize| self.counted.as_ref().is_none_or(|counted| counted[*place]);
        let counts =
            || (0..self.domain_counts.counts.len()).filter(is_counted).map(|place| self.domain_counts.counts[place]);
        self.fewest = match counts().min() {
            Some(fewest) if counts().count() >= self.min_domains => fewest,
            _ => 0,
        };
    }
}

/// Default constraints for a pod without any, unless its profile has its own list (Kubernetes:
/// `systemDefaultConstraints`).
static SYSTEM: LazyLock<[Value; 2]> = LazyLock::new(|| {
    let wish =
        |key: &str, skew: i64| json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway"});
    [wish("kubernetes.io/hostname", 3), wish("topology.kubernetes.io/zone", 5)]
});

/// The constraints of one mode: the pod's own, or else its profile's, which are about the pods that the same Services and the same
/// owner select. Says also whether nodes have to have the labels of all of them: not for those of the system.
fn constraints(
    world: &World,
    pod: &Object,
    row: &Row,
    profile: &SchedulerProfile,
    mode: &str,
) -> (Vec<SpreadConstraint>, bool) {
    let own = pod.items(&["spec", "topologySpreadConstraints"]);
    let all = match &profile.constraints {
        _ if !own.is_empty() => own,
        Some(list) => list,
        None => &SYSTEM[..],
    };
    let strict = !own.is_empty() || profile.constraints.is_some();
    let ours: Vec<&Value> = all.iter().filter(|one| one["whenUnsatisfiable"] == mode).collect();
    if ours.is_empty() {
        return (Vec::new(), strict);
    }
    let default_selector = if own.is_empty() { default_selector(world, row) } else { Selector::nothing() };
    if default_selector.is_everything() {
        return (Vec::new(), strict);
    }
    let keys: Vec<&str> = ours.iter().map(|one| one["topologyKey"].as_str().unwrap_or_default()).collect();
    let read = |constraint: &&Value| {
        let selector = if own.is_empty() { default_selector.clone() } else { selector(constraint, row) };
        let key = constraint["topologyKey"].as_str().unwrap_or_default();
        let own = i64::from(selector.matches(|key| row.label(key)));
        let term = Arc::new(PodTerm::in_namespace(key, &row.key.namespace, selector));
        let (domain_counts, counted) = count(world, pod, constraint, &term, if strict { &keys } else { &[] });
        SpreadConstraint {
            max_skew: constraint["maxSkew"].as_i64().unwrap_or(1),
            min_domains: constraint["minDomains"].as_u64().unwrap_or(1) as usize,
            key: key.to_owned(),
            fewest: 0,
            own,
            term,
            domain_counts,
            counted,
        }
    };
    (ours.iter().map(read).collect(), strict)
}

/// The pods that the same Services and the same owner select (Kubernetes: `helper.DefaultSelector`); all when nothing selects the pod.
fn default_selector(world: &World, row: &Row) -> Selector {
    let owner = row.controller().and_then(|owner| world.by_uid(&owner.uid));
    let spreads = |owner: &&Arc<Row>| {
        matches!(owner.key.resource.0, "replicationcontrollers" | "replicasets.apps" | "statefulsets.apps")
    };
    let selecting = world.selecting("services", row).into_iter().chain(owner.filter(spreads));
    let selectors = selecting.filter_map(|one| one.workload()).map(|fields| &fields.selector);
    selectors.fold(Selector::everything(), Selector::and)
}

/// Counts the pods per domain, and selects the domains that count when node affinity or taints exclude some nodes.
fn count(
    world: &World,
    pod: &Object,
    constraint: &Value,
    term: &Arc<PodTerm>,
    keys: &[&str],
) -> (TopologyCounts, Option<Vec<bool>>) {
    let named = format!("spread {} {} {}", pod.namespace(), term.selector().is_nothing(), term.selector());
    let domain_counts = |key: &str, keys: &[&str]| {
        world.domain_counts(&named, key, keys, || CountedPods::Selected(term.clone(), false))
    };
    let honours = |field: &str, default: &str| constraint[field].as_str().unwrap_or(default) == "Honor";
    let by_affinity = honours("nodeAffinityPolicy", "Honor") && affinity::selects_nodes(pod);
    let by_taints = honours("nodeTaintsPolicy", "Ignore");
    let places = domain_counts(&term.key, keys);
    if !by_affinity && !by_taints {
        return (places, None);
    }
    let is_counted = |node: &CandidateNode<'_>| {
        let hard = node.fields.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
        let borne = || taint::untolerated(pod.items(&["spec", "tolerations"]), hard).is_none();
        (!by_affinity || affinity::node_matches(pod, node.row)) && (!by_taints || borne())
    };
    let on_nodes = domain_counts("", &[]);
    let mut counts = vec![0; places.domains.count];
    let mut counted = vec![false; places.domains.count];
    for node in nodes::candidates(world).filter(is_counted) {
        if let Some(place) = places.domains.domain_of_slot(node.slot) {
            counts[place] += on_nodes.count_of_slot(node.slot).unwrap_or(0);
            counted[place] = true;
        }
    }
    (TopologyCounts { counts: Arc::new(counts), ..places }, Some(counted))
}

/// The constraint's selector, with the pod's own values of `matchLabelKeys`. None selects nothing.
fn selector(constraint: &Value, pod: &Row) -> Selector {
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
