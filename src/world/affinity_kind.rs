//! The two kinds of affinity terms, and a pod's terms of each kind as one text: pods of a workload have equal texts.

use crate::object::{Object, Str};
use serde_json::json;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Kind of affinity term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AffinityKind {
    /// Required anti-affinity: it refuses nodes to others, too.
    Shuns,
    /// Required affinity, and what is preferred: others are ranked by it.
    Likes,
}

impl AffinityKind {
    /// Returns a pod's terms of this kind as text.
    pub(super) fn said_by(self, pod: &Object) -> Option<Str> {
        let terms = |field: &str, strength: &str| pod.items(&["spec", "affinity", field, strength]);
        let said = match self {
            AffinityKind::Shuns => [terms("podAntiAffinity", REQUIRED), &[], &[]],
            AffinityKind::Likes => {
                [terms("podAffinity", REQUIRED), terms("podAffinity", PREFERRED), terms("podAntiAffinity", PREFERRED)]
            }
        };
        said.iter().any(|terms| !terms.is_empty()).then(|| json!(said).to_string().into())
    }
}
