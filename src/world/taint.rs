//! Taints of nodes, and the tolerations of pods that they are matched against (Kubernetes: `Toleration.ToleratesTaint`).

use crate::object::{Time, time};
use serde_json::Value;

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, often empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Time at which the taint was added.
    pub added: Option<Time>,
}

impl std::fmt::Display for Taint {
    /// `key=value:effect`, as `kloop taint` reads it.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(out, "{}{equals}{}:{}", self.key, self.value, self.effect)
    }
}

impl Taint {
    /// Reads a taint of a node's spec.
    pub fn read(taint: &Value) -> Taint {
        let text = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
        let added = time::from_json(&taint["timeAdded"]);
        Taint { key: text("key"), value: text("value"), effect: text("effect"), added }
    }
}

/// Whether a toleration tolerates a taint.
pub fn tolerates(toleration: &Value, taint: &Taint) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let effect = text("effect").is_empty() || text("effect") == taint.effect;
    let key = text("key").is_empty() || text("key") == taint.key;
    let value = match text("operator") {
        "" | "Equal" => text("value") == taint.value,
        "Exists" => true,
        _ => false,
    };
    effect && key && value
}

/// The first taint that no toleration tolerates.
pub fn untolerated<'a>(tolerations: &[Value], taints: impl Iterator<Item = &'a Taint>) -> Option<&'a Taint> {
    let mut taints = taints;
    taints.find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// The taints that keep a pod of these tolerations away from a node.
pub fn repelling<'a>(tolerations: &[Value], taints: &'a [Taint]) -> impl Iterator<Item = &'a Taint> {
    let hard = taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.filter(|taint| untolerated(tolerations, std::iter::once(*taint)).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let taint = Taint { key: "gpu".into(), value: "yes".into(), effect: "NoSchedule".into(), added: None };
        let cases = [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "gpu", "operator": "Exists"}), true),
            (json!({"key": "gpu", "value": "yes"}), true),
            (json!({"key": "gpu", "value": "no"}), false),
            (json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ];
        for (toleration, expected) in cases {
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration}");
        }
    }
}
