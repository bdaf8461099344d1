//! The two kinds of affinity terms, and a pod's terms of each kind as one text: pods of a workload have equal texts.

use crate::object::{Object, Str};
use serde_json::json;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Kind of affinity term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AffinityKind {
    /// Required anti-affinity: it also excludes other pods from nodes.
    AntiAffinity,
    /// Required affinity and all preferred terms: they also count when other pods are scored.
    Scored,
}

impl AffinityKind {
    /// Returns a pod's terms of this kind as text.
    pub(super) fn text_of_pod(self, pod: &Object) -> Option<Str> {
        let terms = |field: &str, strength: &str| pod.items(&["spec", "affinity", field, strength]);
        let terms_by_strength = match self {
            AffinityKind::AntiAffinity => [terms("podAntiAffinity", REQUIRED), &[], &[]],
            AffinityKind::Scored => {
                [terms("podAffinity", REQUIRED), terms("podAffinity", PREFERRED), terms("podAntiAffinity", PREFERRED)]
            }
        };
        terms_by_strength.iter().any(|terms| !terms.is_empty()).then(|| json!(terms_by_strength).to_string().into())
    }
}
