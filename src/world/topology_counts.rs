//! Counts of pods per topology domain, for topology spread and inter-pod affinity.
//!
//! A count is computed when it is first asked for and then follows every change of a pod, so that later reads are free
//! however many pods exist. Never: holds anything that could not be recomputed. All counts are dropped when nodes are
//! added, removed or relabelled.

use super::pod_term::PodTerm;
use super::{AffinityTerms, Row, World};
use crate::object::Str;
use hashbrown::HashMap;
use std::sync::Arc;

/// The index of a node that is in no domain.
pub const NOWHERE: u32 = u32::MAX;

/// Above this number of cached counts, all are dropped.
const MAX_CACHED_COUNTS: usize = 4096;

/// The topology domain of each node, by one node label.
pub struct TopologyDomains {
    /// Domain index by node slot; [`NOWHERE`] for nodes without the label.
    pub of: Vec<u32>,
    /// Number of domains.
    pub count: usize,
}

impl TopologyDomains {
    /// Returns the domain of the node in this slot of the node cache.
    pub fn domain_of_slot(&self, slot: usize) -> Option<usize> {
        self.of.get(slot).filter(|place| **place != NOWHERE).map(|place| *place as usize)
    }
}

/// Number of pods in each topology domain.
#[derive(Clone)]
pub struct TopologyCounts {
    /// The domains.
    pub domains: Arc<TopologyDomains>,
    /// The number of pods, by domain.
    pub counts: Arc<Vec<i64>>,
}

impl TopologyCounts {
    /// The number of pods in the domain of the node in this slot; `None` when the node is in no domain.
    pub fn count_of_slot(&self, slot: usize) -> Option<i64> {
        self.domains.domain_of_slot(slot).map(|place| self.counts[place])
    }

    /// Adds to the count of the domain of the node in this slot.
    pub fn shift(&mut self, slot: usize, by: i64) {
        if let Some(place) = self.domains.domain_of_slot(slot) {
            Arc::make_mut(&mut self.counts)[place] += by;
        }
    }
}

/// Selects the pods to count among those on nodes that have not ended.
#[derive(Clone)]
pub enum CountedPods {
    /// Pods that a term selects; with or without those that are being deleted.
    Selected(Arc<PodTerm>, bool),
    /// Pods that have these affinity terms.
    WithTerms(Arc<AffinityTerms>),
}

impl CountedPods {
    fn counts(&self, world: &World, pod: &Row) -> bool {
        match self {
            CountedPods::Selected(term, leaving) => (*leaving || !pod.is_deleting()) && term.selects(world, pod),
            CountedPods::WithTerms(terms) => terms.is_of(pod),
        }
    }
}

/// The cached counts.
#[derive(Default)]
pub(super) struct TopologyCountsCache {
    /// The version of the node cache that the count was made for.
    shape: u64,
    domains: HashMap<String, Arc<TopologyDomains>>,
    list: Vec<(CountedPods, TopologyCounts)>,
    by_text: HashMap<String, usize>,
    /// Indexes of counts that only pods with this label can change, and of all other counts.
    by_label: HashMap<(Str, Str), Vec<usize>>,
    others: Vec<usize>,
}

impl TopologyCountsCache {
    fn forget_shape(&mut self, shape: u64) {
        *self = TopologyCountsCache { shape, ..TopologyCountsCache::default() };
    }

    fn insert_counts(&mut self, text: String, counted: CountedPods, domain_counts: TopologyCounts) {
        let place = self.list.len();
        let exact = match &counted {
            CountedPods::Selected(term, _) => {
                term.selector().exact().next().map(|(key, value)| (Str::from(key), Str::from(value)))
            }
            CountedPods::WithTerms(_) => None,
        };
        match exact {
            Some(label) => self.by_label.entry(label).or_default().push(place),
            None => self.others.push(place),
        }
        self.list.push((counted, domain_counts));
        self.by_text.insert(text, place);
    }
}

impl World {
    /// Counts pods per domain of the node label `key`, over nodes that have all labels in `keys`. With an empty key
    /// each node is its own domain. `name` identifies the pods that `counted` selects.
    pub fn domain_counts(
        &self,
        name: &str,
        key: &str,
        keys: &[&str],
        counted: impl FnOnce() -> CountedPods,
    ) -> TopologyCounts {
        let text = format!("{name}\n{key}\n{}", keys.join("\n"));
        let mut counts_cache = self.counts_cache.borrow_mut();
        if counts_cache.shape != self.node_layout_version() || counts_cache.list.len() >= MAX_CACHED_COUNTS {
            counts_cache.forget_shape(self.node_layout_version());
        }
        if let Some(place) = counts_cache.by_text.get(&text) {
            return counts_cache.list[*place].1.clone();
        }
        let places = format!("{key}\n{}", keys.join("\n"));
        let domains = counts_cache.domains.entry(places).or_insert_with(|| Arc::new(self.domains(key, keys))).clone();
        let counted = counted();
        let mut domain_counts = TopologyCounts { counts: Arc::new(vec![0; domains.count]), domains };
        let mut count = |pod: &Arc<Row>| {
            let slot = node_of(pod).and_then(|node| self.slot_of(node));
            if let Some(slot) = slot.filter(|_| counted.counts(self, pod)) {
                domain_counts.shift(slot, 1);
            }
        };
        match &counted {
            CountedPods::Selected(term, _) => match term.namespaces() {
                Some(namespaces) => {
                    let pods = namespaces.iter().flat_map(|namespace| self.pods_matching(namespace, term.selector()));
                    pods.for_each(&mut count);
                }
                None => self.list("pods").for_each(&mut count),
            },
            CountedPods::WithTerms(terms) => self.pods_with_terms(terms.sort).for_each(&mut count),
        }
        counts_cache.insert_counts(text, counted, domain_counts.clone());
        domain_counts
    }

    fn domains<'a>(&'a self, key: &str, keys: &[&str]) -> TopologyDomains {
        let node_cache = self.node_cache();
        if key.is_empty() {
            return TopologyDomains { of: (0..node_cache.len() as u32).collect(), count: node_cache.len() };
        }
        let mut known: HashMap<&str, u32> = HashMap::new();
        let place = |row: &'a Arc<Row>| {
            let value = row.label(key).filter(|_| keys.iter().all(|key| row.label(key).is_some()));
            let next = known.len() as u32;
            value.map_or(NOWHERE, |value| *known.entry(value).or_insert(next))
        };
        let of = node_cache.iter().map(|node| &node.row).map(place).collect();
        TopologyDomains { of, count: known.len() }
    }

    /// Updates the counts when a pod is bound to a node or leaves it.
    pub(super) fn update_domain_counts(&mut self, pod: &Row, by: i64) {
        if self.counts_cache.get_mut().list.is_empty() {
            return;
        }
        let shape = self.node_layout_version();
        let Some(slot) = node_of(pod).and_then(|node| self.slot_of(node)) else { return };
        let mut counts_cache = self.counts_cache.take();
        if counts_cache.shape == shape {
            let labelled = pod.labels.iter().filter_map(|label| counts_cache.by_label.get(label)).flatten();
            let affected: Vec<usize> = labelled.chain(&counts_cache.others).copied().collect();
            for place in affected {
                let (counted, domain_counts) = &mut counts_cache.list[place];
                if counted.counts(self, pod) {
                    domain_counts.shift(slot, by);
                }
            }
        }
        self.counts_cache.replace(counts_cache);
    }

    /// Drops all counts, because labels of a namespace changed, which terms select by.
    pub(super) fn drop_domain_counts(&mut self) {
        self.counts_cache.get_mut().forget_shape(0);
    }
}

/// The node of a pod that has not ended.
fn node_of(pod: &Row) -> Option<&Str> {
    pod.pod().filter(|fields| !fields.phase.is_terminal())?.node.as_ref()
}
