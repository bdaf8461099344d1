//! Scheduling constraints of a pod, parsed once for all pods with the same spec.

use super::affinity;
use crate::object::{Object, Str};
use crate::world::{PodTerm, Row, World, scheduling_spec};
use hashlink::LruCache;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum number of cached constraints, and of bytes of their texts; parsed, they take about five times as much.
const MAX_CACHED_CONSTRAINTS: usize = 1024;
const MAX_CACHED_BYTES: usize = 4 << 20;

/// Constraints of a pod, apart from numeric requests.
pub struct PodConstraints {
    /// The part of the pod with the constraints ([`scheduling_spec`]).
    pub pod: Object,
    /// The constraints on nodes themselves, as text: selector, node affinity, tolerations.
    pub node_constraints: Str,
    /// The nodes that all of its required terms name, if they do.
    pub named: Option<Vec<String>>,
    /// Whether it has a node selector or node affinity.
    pub selects_nodes: bool,
    /// Required pod affinity.
    pub affinity: Vec<PodTermConstraint>,
    /// Required pod anti-affinity.
    pub anti_affinity: Vec<PodTermConstraint>,
    /// Preferred pod affinity with its weight; negative for anti-affinity.
    pub preferred_affinity: Vec<(PodTermConstraint, i64)>,
}

/// A term about other pods.
pub struct PodTermConstraint {
    /// Identifies the term: equal terms have equal names.
    pub name: String,
    /// The term.
    pub term: Arc<PodTerm>,
}

impl PodTermConstraint {
    fn parse(term: &Value, namespace: &str) -> PodTermConstraint {
        PodTermConstraint { name: format!("near {namespace} {term}"), term: Arc::new(PodTerm::parse(term, namespace)) }
    }
}

/// Parsed constraints, by their text.
struct ConstraintCache {
    known: LruCache<Str, Arc<PodConstraints>>,
    /// Length of the texts.
    bytes: usize,
}

impl Default for ConstraintCache {
    fn default() -> ConstraintCache {
        ConstraintCache { known: LruCache::new_unbounded(), bytes: 0 }
    }
}

impl ConstraintCache {
    /// Returns the constraints of this text, which is parsed if they are not known.
    fn parsed(&mut self, text: &Str) -> Arc<PodConstraints> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let constraints = Arc::new(PodConstraints::read(Object(serde_json::from_str(text).unwrap_or(Value::Null))));
        self.known.insert(text.clone(), constraints.clone());
        self.bytes += text.len();
        while self.known.len() > MAX_CACHED_CONSTRAINTS || self.bytes > MAX_CACHED_BYTES {
            let Some((oldest, _)) = self.known.remove_lru() else { break };
            self.bytes -= oldest.len();
        }
        constraints
    }
}

impl PodConstraints {
    /// Returns a pod's constraints. Once a pod has a node, they are read from its body.
    pub fn from_pod(world: &World, row: &Row) -> Arc<PodConstraints> {
        let Some(text) = row.pod().and_then(|pod| pod.pod_spec.as_ref()) else {
            return Arc::new(PodConstraints::read(scheduling_spec(&row.body())));
        };
        world.with_cached(|cache: &mut ConstraintCache| cache.parsed(text))
    }

    fn read(pod: Object) -> PodConstraints {
        let terms = |field: &str, strength: &str| pod.items(&["spec", "affinity", field, strength]);
        let required = |field: &str| -> Vec<PodTermConstraint> {
            let terms = terms(field, "requiredDuringSchedulingIgnoredDuringExecution");
            terms.iter().map(|term| PodTermConstraint::parse(term, pod.namespace())).collect()
        };
        let preferred = |(field, sign): (&str, i64)| -> Vec<(PodTermConstraint, i64)> {
            let terms = terms(field, "preferredDuringSchedulingIgnoredDuringExecution").iter();
            let weight = |one: &Value| one["weight"].as_i64().unwrap_or(0) * sign;
            terms.map(|one| (PodTermConstraint::parse(&one["podAffinityTerm"], pod.namespace()), weight(one))).collect()
        };
        let spec = |path: &[&str]| pod.value_at(&[&["spec"], path].concat());
        let node_constraints = [&["nodeName"][..], &["nodeSelector"], &["affinity", "nodeAffinity"], &["tolerations"]];
        PodConstraints {
            node_constraints: json!(node_constraints.map(spec)).to_string().into(),
            named: affinity::named_nodes(&pod).map(|names| names.into_iter().map(str::to_owned).collect()),
            selects_nodes: affinity::selects_nodes(&pod),
            affinity: required("podAffinity"),
            anti_affinity: required("podAntiAffinity"),
            preferred_affinity: [("podAffinity", 1), ("podAntiAffinity", -1)].into_iter().flat_map(preferred).collect(),
            pod,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_constraints_are_bounded_by_number_and_length() {
        let text = |number: usize, length: usize| -> Str {
            let label = "x".repeat(length);
            json!({"spec": {"nodeSelector": {"number": number.to_string(), "label": label}}}).to_string().into()
        };
        let mut cache = ConstraintCache::default();
        for (length, most) in [(10, MAX_CACHED_CONSTRAINTS), (1 << 20, 3), (10, MAX_CACHED_CONSTRAINTS)] {
            (0..MAX_CACHED_CONSTRAINTS + 10).for_each(|number| drop(cache.parsed(&text(number, length))));
            assert_eq!(cache.known.len(), most, "{length}");
            assert_eq!(cache.bytes, cache.known.iter().map(|(text, _)| text.len()).sum::<usize>());
        }
        let again = text(MAX_CACHED_CONSTRAINTS, 10);
        assert!(Arc::ptr_eq(&cache.parsed(&again), &cache.parsed(&again)));
    }
}
