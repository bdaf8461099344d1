//! Index of the affinity terms of pods that are on nodes: required anti-affinity and preferred (anti-)affinity.
//!
//! Pods of one workload share the same terms, so each distinct text is parsed once.

use super::pod_term::PodTerm;
use super::row::{AffinityKind, PodFields};
use super::{Row, World};
use crate::object::{Key, Str};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Strength of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityStrength {
    /// A required term.
    Required,
    /// The weight of a preferred term; negative for anti-affinity.
    Preferred(i64),
}

/// Affinity terms that pods of one namespace share.
pub struct AffinityTerms {
    /// The kind of terms.
    pub sort: AffinityKind,
    /// The pods' namespace.
    pub namespace: Str,
    /// The terms as written.
    pub text: Str,
    /// The terms.
    pub terms: Vec<(PodTerm, AffinityStrength)>,
}

impl AffinityKind {
    fn text(self, pod: &PodFields) -> Option<&Str> {
        match self {
            AffinityKind::AntiAffinity => pod.anti_affinity.as_ref(),
            AffinityKind::Scored => pod.scored_affinity.as_ref(),
        }
    }
}

impl AffinityTerms {
    /// Reads the terms of pods in a namespace.
    pub fn parse(sort: AffinityKind, namespace: &Str, text: &Str) -> AffinityTerms {
        let [required, liked, disliked]: [Vec<Value>; 3] = serde_json::from_str(text).unwrap_or_default();
        let mut terms: Vec<(PodTerm, AffinityStrength)> =
            required.iter().map(|term| (PodTerm::parse(term, namespace), AffinityStrength::Required)).collect();
        for (list, sign) in [(liked, 1), (disliked, -1)] {
            let weight = |one: &Value| AffinityStrength::Preferred(sign * one["weight"].as_i64().unwrap_or(0));
            terms.extend(list.iter().map(|one| (PodTerm::parse(&one["podAffinityTerm"], namespace), weight(one))));
        }
        AffinityTerms { sort, namespace: namespace.clone(), text: text.clone(), terms }
    }

    /// Whether a pod has these terms.
    pub fn is_of(&self, pod: &Row) -> bool {
        pod.key.namespace == self.namespace && pod.pod().is_some_and(|pod| self.sort.text(pod) == Some(&self.text))
    }
}

/// Terms by namespace and text, each with the number of pods that have it.
type TermCounts = BTreeMap<(Str, Str), (Arc<AffinityTerms>, usize)>;

/// All affinity terms of pods on nodes that have not ended, with the number of pods that have each.
#[derive(Default)]
pub(super) struct PodAffinityIndex {
    pods: BTreeMap<AffinityKind, BTreeSet<Key>>,
    terms: BTreeMap<AffinityKind, TermCounts>,
}

impl PodAffinityIndex {
    /// Adds a pod that was bound to a node.
    pub(super) fn add(&mut self, row: &Row, pod: &PodFields) {
        for sort in [AffinityKind::AntiAffinity, AffinityKind::Scored] {
            let Some(text) = sort.text(pod) else { continue };
            self.pods.entry(sort).or_default().insert(row.key.clone());
            let named = (row.key.namespace.clone(), text.clone());
            let terms = || (Arc::new(AffinityTerms::parse(sort, &row.key.namespace, text)), 0);
            self.terms.entry(sort).or_default().entry(named).or_insert_with(terms).1 += 1;
        }
    }

    /// Removes a pod that left its node or has ended.
    pub(super) fn drop(&mut self, row: &Row, pod: &PodFields) {
        for sort in [AffinityKind::AntiAffinity, AffinityKind::Scored] {
            let Some(text) = sort.text(pod) else { continue };
            if !self.pods.get_mut(&sort).is_some_and(|pods| pods.remove(&row.key)) {
                continue;
            }
            let named = (row.key.namespace.clone(), text.clone());
            let Some(terms) = self.terms.get_mut(&sort) else { continue };
            if let Some((_, pods)) = terms.get_mut(&named) {
                *pods -= 1;
                if *pods == 0 {
                    terms.remove(&named);
                }
            }
        }
    }
}

impl World {
    /// Returns the distinct affinity terms of one kind.
    pub fn affinity_terms(&self, sort: AffinityKind) -> impl Iterator<Item = &Arc<AffinityTerms>> {
        self.affinity_terms.terms.get(&sort).into_iter().flat_map(BTreeMap::values).map(|(terms, _)| terms)
    }

    /// The pods on nodes that have terms of one kind and have not ended.
    pub(super) fn pods_with_terms(&self, sort: AffinityKind) -> impl Iterator<Item = &Arc<Row>> {
        self.affinity_terms.pods.get(&sort).into_iter().flatten().filter_map(|key| self.get(key))
    }
}
