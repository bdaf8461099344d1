//! The Secrets, ConfigMaps and tokens that a pod needs, by its spec.
//!
//! Never: reads one. Start reading at [`find_references`].

use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of objects that one pod may need. The kubelet reports those beyond as missing.
const MAX_REFERENCES: usize = 500;

/// An object that a pod needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodReference {
    /// `secrets` or `configmaps`.
    pub resource: &'static str,
    /// The namespace, which is the pod's.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// A token that a pod needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededToken {
    /// The audience; empty for the API server's.
    pub audience: String,
    /// The lifetime in seconds.
    pub seconds: i64,
}

/// Fields that refer to an object, and the field of its name in there.
const FIELDS: [(&str, &str, &str); 8] = [
    ("configMap", "configmaps", "name"),
    ("configMapRef", "configmaps", "name"),
    ("configMapKeyRef", "configmaps", "name"),
    ("secret", "secrets", "secretName"),
    ("secret", "secrets", "name"),
    ("secretRef", "secrets", "name"),
    ("secretKeyRef", "secrets", "name"),
    ("nodePublishSecretRef", "secrets", "name"),
];

/// Returns the objects that a pod needs.
pub fn find_references(namespace: &str, spec: &Value) -> BTreeSet<PodReference> {
    let mut found = BTreeSet::new();
    for field in ["containers", "initContainers", "ephemeralContainers", "volumes"] {
        collect(namespace, &spec[field], &mut found);
    }
    for secret in spec["imagePullSecrets"].as_array().into_iter().flatten() {
        insert(("secrets", namespace), &secret["name"], &mut found);
    }
    found
}

fn collect(namespace: &str, value: &Value, found: &mut BTreeSet<PodReference>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                for (_, resource, key) in FIELDS.iter().filter(|(field, ..)| field == name) {
                    insert((resource, namespace), &value[key], found);
                }
                collect(namespace, value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(namespace, value, found)),
        _ => {}
    }
}

fn insert((resource, namespace): (&'static str, &str), name: &Value, found: &mut BTreeSet<PodReference>) {
    let Some(name) = name.as_str().filter(|name| !name.is_empty()) else { return };
    if found.len() < MAX_REFERENCES {
        found.insert(PodReference { resource, namespace: namespace.to_owned(), name: name.to_owned() });
    }
}

/// Returns the tokens that the volumes of a pod have.
pub fn find_tokens(spec: &Value) -> Vec<NeededToken> {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    let tokens = sources.map(|source| &source["serviceAccountToken"]).filter(|token| token.is_object());
    let token = |token: &Value| NeededToken {
        audience: token["audience"].as_str().unwrap_or_default().to_owned(),
        seconds: token["expirationSeconds"].as_i64().unwrap_or(3600),
    };
    tokens.map(token).take(MAX_REFERENCES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_found_wherever_a_pod_has_them() {
        let spec = json!({
            "containers": [{"envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
                "env": [{"valueFrom": {"secretKeyRef": {"name": "c", "key": "k"}}}]}],
            "initContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "d", "key": "k"}}}]}],
            "volumes": [{"secret": {"secretName": "e"}}, {"configMap": {"name": "f"}},
                {"projected": {"sources": [{"secret": {"name": "g"}}, {"serviceAccountToken": {"audience": "x", "expirationSeconds": 600}}]}}],
            "imagePullSecrets": [{"name": "h"}],
        });
        let found: Vec<String> =
            find_references("n", &spec).iter().map(|found| format!("{}/{}", found.resource, found.name)).collect();
        assert_eq!(
            found.join(" "),
            "configmaps/a configmaps/d configmaps/f secrets/b secrets/c secrets/e secrets/g secrets/h"
        );
        assert_eq!(find_tokens(&spec), [NeededToken { audience: "x".into(), seconds: 600 }]);
    }
}
