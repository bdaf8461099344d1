//! StorageClass (storage.k8s.io/v1).

use super::shared::field::MAX_ERRORS;
use super::shared::{names, node_labels, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use k8s_openapi::api::core::v1::TopologySelectorTerm;
use k8s_openapi::api::storage::v1::StorageClass;
use std::collections::{BTreeMap, BTreeSet};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["sc"],
    namespaced: false,
    status: false,
    generation: false,
    warnings,
    returns_deleted: true,
    ..Kind::new::<StorageClass>("storageclasses.storage.k8s.io", "v1", "StorageClass", &view::storage::CLASS)
};

impl Typed for StorageClass {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.mount_options);
        omit::empty(&mut self.parameters);
        omit::empty(&mut self.allowed_topologies);
        self.reclaim_policy.get_or_insert_with(|| "Delete".to_owned());
        self.volume_binding_mode.get_or_insert_with(|| "Immediate".to_owned());
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        if let Some(old) = old {
            errors.immutable(&FieldPath::root("parameters"), &self.parameters, &old.parameters);
            errors.immutable(&FieldPath::root("provisioner"), &self.provisioner, &old.provisioner);
            errors.immutable(&FieldPath::root("reclaimPolicy"), &self.reclaim_policy, &old.reclaim_policy);
            errors.immutable(
                &FieldPath::root("volumeBindingMode"),
                &self.volume_binding_mode,
                &old.volume_binding_mode,
            );
        }
        let path = FieldPath::root("provisioner");
        match self.provisioner.as_str() {
            "" => errors.required(&path, ""),
            name => errors.each_invalid(&path, name, names::qualified(&name.to_lowercase())),
        }
        for key in self.parameters.iter().flatten().map(|(key, _)| key).filter(|key| key.is_empty()) {
            errors.invalid(&FieldPath::root("parameters"), key.as_str(), "field must not be empty.");
        }
        let mut one_of = |field: &str, value: &Option<String>, known: &[&str]| {
            if let Some(other) = value.as_deref().filter(|value| !known.contains(value)) {
                errors.unsupported(&FieldPath::root(field), other, known);
            }
        };
        one_of("reclaimPolicy", &self.reclaim_policy, &["Delete", "Retain"]);
        one_of("volumeBindingMode", &self.volume_binding_mode, &["Immediate", "WaitForFirstConsumer"]);
        let terms = self.allowed_topologies.as_deref().unwrap_or_default();
        let mut seen: BTreeMap<_, usize> = BTreeMap::new();
        // Kubernetes compares each term with as many empty ones as there are terms.
        seen.insert(BTreeMap::new(), terms.len());
        for (index, term) in terms.iter().enumerate() {
            let path = FieldPath::root("allowedTopologies").index(index).child("matchLabelExpressions");
            check_topology(term, &path, errors);
            let equal = seen.entry(values_by_key(term)).or_default();
            let room = MAX_ERRORS.saturating_sub(errors.0.len());
            (0..room.min(*equal)).for_each(|_| errors.duplicate(&path, ""));
            *equal += 1;
        }
    }
}

/// The allowed values of a term by key.
fn values_by_key(term: &TopologySelectorTerm) -> BTreeMap<&str, BTreeSet<&str>> {
    let expressions = term.match_label_expressions.iter().flatten();
    expressions.map(|one| (one.key.as_str(), one.values.iter().map(String::as_str).collect())).collect()
}

fn check_topology(term: &TopologySelectorTerm, path: &FieldPath, errors: &mut FieldErrors) {
    let mut keys = BTreeSet::new();
    for (index, expression) in term.match_label_expressions.iter().flatten().enumerate() {
        let path = path.index(index);
        let (values, key) = (path.child("values"), path.child("key"));
        if expression.values.is_empty() {
            errors.required(&values, "");
        }
        let mut seen = BTreeSet::new();
        for (index, value) in expression.values.iter().enumerate().filter(|(_, value)| !seen.insert(*value)) {
            errors.duplicate(&values.index(index), value.as_str());
        }
        errors.each_invalid(&key, expression.key.as_str(), names::qualified(&expression.key));
        if !keys.insert(expression.key.as_str()) {
            errors.duplicate(&key, expression.key.as_str());
        }
    }
}

/// Warns of deprecated node labels (`pkg/api/storage/util.go`).
fn warnings(class: &Object) -> Vec<String> {
    let mut warnings = Vec::new();
    for (term, topology) in class.items(&["allowedTopologies"]).iter().enumerate() {
        for (index, expression) in topology["matchLabelExpressions"].as_array().into_iter().flatten().enumerate() {
            if let Some(message) = expression["key"].as_str().and_then(node_labels::deprecated) {
                warnings.push(format!("allowedTopologies[{term}].matchLabelExpressions[{index}].key: {message}"));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use serde_json::{Value, json};

    fn wrong(patch: Value) -> Vec<String> {
        let mut body = json!({"metadata": {"name": "a"}, "provisioner": "a.b/c"});
        json_patch::merge(&mut body, &patch);
        testing::field_errors::<StorageClass>(&body, None).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn deprecated_topology_labels_are_reported() {
        let class = |key: &str| {
            let expressions = json!([{"key": "a", "values": ["b"]}, {"key": key, "values": ["b"]}]);
            Object(json!({"allowedTopologies": [{"matchLabelExpressions": expressions}]}))
        };
        let newer = "allowedTopologies[0].matchLabelExpressions[1].key: deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead";
        assert_eq!(super::warnings(&class("failure-domain.beta.kubernetes.io/zone")), [newer]);
        assert!(super::warnings(&class("topology.kubernetes.io/zone")).is_empty());
    }

    #[test]
    fn topologies_are_checked() {
        let term = |key: &str, values: Value| json!({"matchLabelExpressions": [{"key": key, "values": values}]});
        let good = json!([term("zone", json!(["a"])), term("zone", json!(["b"]))]);
        assert_eq!(wrong(json!({"allowedTopologies": good})), Vec::<String>::new());
        let first = "allowedTopologies[0].matchLabelExpressions[0]";
        let twice = json!({"matchLabelExpressions": [{"key": "a", "values": ["b"]}, {"key": "a", "values": ["c"]}]});
        let cases = [
            (json!([term("", json!(["a"]))]), format!("{first}.key")),
            (json!([term("zone", json!([]))]), format!("{first}.values")),
            (json!([term("zone", json!(["a", "a"]))]), format!("{first}.values[1]")),
            (json!([twice]), "allowedTopologies[0].matchLabelExpressions[1].key".to_owned()),
            (
                json!([term("zone", json!(["a"])), term("zone", json!(["a"]))]),
                "allowedTopologies[1].matchLabelExpressions".to_owned(),
            ),
        ];
        for (topologies, field) in cases {
            let found = wrong(json!({"allowedTopologies": topologies}));
            assert_eq!(found.first(), Some(&field), "{topologies}");
        }
        let repeated = |count: usize, term: Value| wrong(json!({"allowedTopologies": vec![term; count]})).len();
        assert_eq!(repeated(3, term("zone", json!(["a"]))), 3, "the third is equal to two others");
        assert_eq!((repeated(1, json!({})), repeated(2, json!({}))), (1, 2 + 3));
    }
}
