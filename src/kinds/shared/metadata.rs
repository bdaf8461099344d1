//! Checks of metadata, the same for every kind (`apimachinery/pkg/api/validation/objectmeta.go`).

use super::super::{FieldError, FieldErrors, FieldPath, Kind, NameRule};
use super::{amount, names};
use crate::object::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const MAX_ANNOTATION_BYTES: usize = 256 * 1024;
/// Kubernetes' finalizers without a domain.
const PLAIN_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// Validates an object's metadata, on its own or as an update of `old`.
pub fn validate_metadata(new: &Object, old: Option<&Object>, kind: &Kind) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    let path = FieldPath::root("metadata");
    match old {
        Some(old) => {
            check_generate_name(new, kind.name_rule, &path, &mut errors);
            check_maps_and_owners(new, &path, &mut errors);
            check_finalizers(&new.finalizers(), &path.child("finalizers"), &mut errors);
            check_change(new, old, &path, &mut errors);
        }
        None => {
            check_new(new, kind.name_rule, kind.namespaced, &path, &mut errors);
        }
    }
    if requires_finalizer_domain(kind) {
        check_finalizer_domains(new, &path.child("finalizers"), &mut errors);
    }
    errors.0
}

/// Whether Kubernetes checks the finalizers of a kind by the rules of its core kinds. Others only need a qualified name.
fn requires_finalizer_domain(kind: &Kind) -> bool {
    const GROUPS_WITHOUT_DOMAINS: [&str; 3] =
        ["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"];
    kind.custom.is_none() && kind.kind != "Event" && !GROUPS_WITHOUT_DOMAINS.contains(&kind.resource.group())
}

/// Checks the metadata of a new object of any kind, which is at this path.
pub fn check_new(new: &Object, name_rule: NameRule, is_namespaced: bool, path: &FieldPath, errors: &mut FieldErrors) {
    check_name(new, name_rule, path, errors);
    match (is_namespaced, new.namespace()) {
        (true, "") => errors.required(&path.child("namespace"), ""),
        (true, namespace) => errors.each_invalid(&path.child("namespace"), namespace, names::label(namespace)),
        (false, "") => {}
        (false, _) => errors.forbidden(&path.child("namespace"), "not allowed on this type"),
    }
    amount::check_not_negative(new.generation(), &path.child("generation"), errors);
    check_maps_and_owners(new, path, errors);
    check_finalizers(&new.finalizers(), &path.child("finalizers"), errors);
}

fn check_maps_and_owners(new: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    let map = |name: &str| -> BTreeMap<String, String> {
        new.pairs(&["metadata", name]).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    check_labels(&map("labels"), &path.child("labels"), errors);
    check_annotations(&map("annotations"), &path.child("annotations"), errors);
    check_owners(new, &path.child("ownerReferences"), errors);
}

/// Checks keys and values of labels, or of a map of required labels.
pub fn check_labels(labels: &BTreeMap<String, String>, path: &FieldPath, errors: &mut FieldErrors) {
    for (key, value) in labels {
        errors.each_invalid(path, key.as_str(), names::qualified(key));
        errors.each_invalid(path, value.as_str(), names::label_value(value));
    }
}

/// Checks the prefix of names in an update: as a path segment, and as the kind's rule demands.
fn check_generate_name(new: &Object, rule: NameRule, path: &FieldPath, errors: &mut FieldErrors) {
    let prefix = new.text(&["metadata", "generateName"]).unwrap_or_default();
    for rule in [NameRule::PathSegment, rule] {
        if !prefix.is_empty() {
            errors.each_invalid(&path.child("generateName"), prefix, names::check_name_prefix(rule, prefix));
        }
    }
}

fn check_name(new: &Object, rule: NameRule, path: &FieldPath, errors: &mut FieldErrors) {
    let prefix = new.text(&["metadata", "generateName"]).unwrap_or_default();
    if !prefix.is_empty() {
        errors.each_invalid(&path.child("generateName"), prefix, names::check_name_prefix(rule, prefix));
    }
    match new.name() {
        "" => errors.required(&path.child("name"), "name or generateName is required"),
        name => errors.each_invalid(&path.child("name"), name, names::check_name(rule, name)),
    }
}

fn check_change(new: &Object, old: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    if old.deletion().is_some() {
        let before = old.finalizers();
        let mut added: Vec<&str> = new.finalizers().into_iter().filter(|name| !before.contains(name)).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            );
            errors.forbidden(&path.child("finalizers"), &detail);
        }
    }
    if new.generation() < old.generation() {
        errors.invalid(&path.child("generation"), new.generation(), "must not be decremented");
    }
    for name in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = |object: &Object| object.value_at(&["metadata", name]).cloned().unwrap_or_default();
        if value(new) != value(old) {
            errors.invalid(&path.child(name), value(new), "field is immutable");
        }
    }
}

/// Checks keys and the total size of annotations.
pub fn check_annotations(annotations: &BTreeMap<String, String>, path: &FieldPath, errors: &mut FieldErrors) {
    for key in annotations.keys() {
        errors.each_invalid(path, key.as_str(), names::qualified(&key.to_lowercase()));
    }
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_ANNOTATION_BYTES {
        errors.too_long(path, MAX_ANNOTATION_BYTES);
    }
}

/// Checks the metadata of a template for claims, which has labels and annotations only.
pub fn check_template(meta: &ObjectMeta, path: &FieldPath, errors: &mut FieldErrors) {
    check_annotations(meta.annotations.as_ref().unwrap_or(&BTreeMap::new()), &path.child("annotations"), errors);
    check_labels(meta.labels.as_ref().unwrap_or(&BTreeMap::new()), &path.child("labels"), errors);
    let set = serde_json::json!(meta);
    for (field, value) in set.as_object().into_iter().flatten() {
        let is_zero = value.is_null() || value == "" || value == 0;
        if !is_zero && !matches!(field.as_str(), "annotations" | "labels") {
            // Kubernetes derives the path from the name of the Go field.
            errors.forbidden(&path.child(if field == "uid" { "uID" } else { field }), "cannot be set");
        }
    }
}

fn check_owners(new: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    let mut first: Option<String> = None;
    // The message contains all owners, so it is added once.
    let mut has_several = false;
    for owner in new.owners() {
        let version = owner.api_version.rsplit('/').next().unwrap_or_default();
        if version.is_empty() || owner.api_version.matches('/').count() > 1 {
            errors.invalid(&path.child("apiVersion"), owner.api_version.as_str(), "version must not be empty");
        }
        for (field, value) in [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)] {
            if value.is_empty() {
                errors.invalid(&path.child(field), "", "must not be empty");
            }
        }
        if owner.api_version == "v1" && owner.kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.invalid_text(path, &owner_text(&owner.to_value()), detail);
        }
        if owner.controller {
            let owner_name = format!("{}/{}", owner.kind, owner.name);
            match &first {
                None => first = Some(owner_name),
                Some(_) if has_several => {}
                Some(first) => {
                    has_several = true;
                    let all: Vec<String> = new.items(&["metadata", "ownerReferences"]).iter().map(owner_text).collect();
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {owner_name}"
                    );
                    errors.invalid_text(path, &format!("[{}]", all.join(",")), &detail);
                }
            }
        }
    }
}

/// Prints an owner reference in Kubernetes' order of fields, which is not alphabetical.
fn owner_text(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let pairs: Vec<String> = fields.iter().filter_map(|name| Some(format!("{name:?}:{}", owner.get(name)?))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// Checks a finalizer outside the metadata.
pub fn check_finalizer(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    errors.each_invalid(path, name, names::qualified(name));
    check_finalizer_domain(name, path, errors);
}

/// Refuses a finalizer without a domain, except Kubernetes' own.
fn check_finalizer_domain(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if !name.contains('/') && !PLAIN_FINALIZERS.contains(&name) {
        errors.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn check_finalizer_domains(new: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, name) in new.finalizers().iter().enumerate() {
        check_finalizer_domain(name, &path.index(index), errors);
    }
}

/// Warns about new finalizers of a custom resource that have no domain.
pub fn finalizer_warnings(new: &Object, old: Option<&Object>) -> Vec<String> {
    let known: BTreeSet<&str> = old.into_iter().flat_map(Object::finalizers).collect();
    let added: BTreeSet<&str> = new.finalizers().into_iter().filter(|name| !known.contains(name)).collect();
    let unqualified = added.into_iter().filter(|name| !name.contains('/') && !PLAIN_FINALIZERS.contains(name));
    let warning = |name: &str| {
        let form = if name.contains('.') { " including a path (/)" } else { "" };
        let why = "to avoid accidental conflicts with other finalizer writers";
        format!("metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{form} {why}")
    };
    unqualified.map(warning).collect()
}

fn check_finalizers(finalizers: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    for name in finalizers {
        errors.each_invalid(path, *name, names::qualified(name));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid(path, serde_json::json!(finalizers), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::config_map;
    use serde_json::json;

    #[test]
    fn finalizers_are_checked_in_updates() {
        let old = object(json!({"name": "a", "namespace": "b"}));
        let updated = |finalizers: Value| {
            let new = object(json!({"name": "a", "namespace": "b", "finalizers": finalizers}));
            validate_metadata(&new, Some(&old), &config_map::KIND)
                .into_iter()
                .map(|error| error.field)
                .collect::<Vec<_>>()
        };
        assert_eq!(updated(json!(["x.y/z", "orphan"])), Vec::<String>::new());
        assert_eq!(updated(json!(["plain"])), ["metadata.finalizers[0]"]);
        assert_eq!(updated(json!(["orphan", "foregroundDeletion"])), ["metadata.finalizers"]);
    }

    #[test]
    fn version_of_an_owner_has_at_most_a_group() {
        let owner = |version: &str| {
            let owner = json!({"apiVersion": version, "kind": "K", "name": "n", "uid": "u"});
            let config_map = object(json!({"name": "a", "namespace": "b", "ownerReferences": [owner]}));
            validate_metadata(&config_map, None, &config_map::KIND)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")
        };
        assert_eq!(owner("v1"), "");
        assert_eq!(owner("a.b/v1"), "");
        let problem = "metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty";
        assert_eq!(owner("a/b/c"), problem);
    }

    fn object(metadata: Value) -> Object {
        Object(json!({"metadata": metadata}))
    }

    fn messages(new: Value, old: Option<Value>) -> Vec<String> {
        let old = old.map(object);
        let errors = validate_metadata(&object(new), old.as_ref(), &config_map::KIND);
        errors.iter().map(FieldError::to_string).collect()
    }

    #[test]
    fn good_metadata_has_no_errors() {
        let full = json!({
            "name": "a", "namespace": "b", "generateName": "a-", "labels": {"x.y/z": ""}, "annotations": {"X.y/Z": "any \n"},
            "finalizers": ["orphan", "x.y/z"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "K", "name": "n", "uid": "u", "controller": true}],
        });
        assert_eq!(messages(full, None), Vec::<String>::new());
    }

    #[test]
    fn name_and_namespace_are_required() {
        let missing =
            ["metadata.name: Required value: name or generateName is required", "metadata.namespace: Required value"];
        assert_eq!(messages(json!({}), None), missing);
    }

    #[test]
    fn several_controllers_are_reported_once() {
        let owner = |number: usize| json!({"apiVersion": "v1", "kind": "Node", "name": number.to_string(), "uid": "u", "controller": true});
        let owners: Vec<Value> = (0..100).map(owner).collect();
        let told = messages(json!({"name": "a", "namespace": "b", "ownerReferences": owners}), None);
        assert!(told.len() == 1 && told[0].contains("Only one reference can have Controller set to true"), "{told:?}");
    }

    #[test]
    fn annotations_have_a_size_limit() {
        let heavy = json!({"name": "a", "namespace": "b", "annotations": {"k": "x".repeat(MAX_ANNOTATION_BYTES)}});
        let limit = "metadata.annotations: Too long: may not be more than 262144 bytes";
        assert_eq!(messages(heavy, None), [limit]);
    }

    #[test]
    fn updates_are_checked_like_new_objects() {
        let old = json!({"name": "a", "namespace": "b"});
        let changed = |field: &str, value: Value| {
            let mut new = old.clone();
            new[field] = value;
            messages(new, Some(old.clone())).join("; ")
        };
        let grace = "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable";
        assert_eq!(changed("deletionGracePeriodSeconds", json!(5)), grace);
        assert!(changed("generateName", json!("a/b")).contains("may not contain '/'"));
        let rule = "metadata.generateName: Invalid value: \"A\": a lowercase RFC 1123 subdomain";
        assert!(changed("generateName", json!("A")).starts_with(rule));
        assert_eq!(changed("generateName", json!("a-")), "");
        let negative = json!({"name": "a", "namespace": "b", "generation": -1});
        let text = "metadata.generation: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(messages(negative, None), [text]);
    }

    #[test]
    fn some_metadata_fields_are_immutable() {
        let old = json!({"name": "a", "namespace": "b", "uid": "1", "generation": 2});
        let new = json!({"name": "a", "namespace": "b", "uid": "2", "generation": 1});
        let expected = [
            "metadata.generation: Invalid value: 1: must not be decremented",
            "metadata.uid: Invalid value: \"2\": field is immutable",
        ];
        assert_eq!(messages(new, Some(old.clone())), expected);
        assert_eq!(messages(old.clone(), Some(old)), Vec::<String>::new());
    }

    #[test]
    fn finalizers_of_core_kinds_need_a_domain() {
        let new = object(json!({"name": "a", "namespace": "b", "finalizers": ["x", "orphan", "x.y/z"]}));
        let refused = |kind: &Kind| -> Vec<String> {
            validate_metadata(&new, None, kind).iter().map(FieldError::to_string).collect()
        };
        let problem = "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified";
        assert_eq!(refused(&config_map::KIND), [problem]);
        let cluster_scoped = ["metadata.namespace: Forbidden: not allowed on this type"];
        assert_eq!(refused(&crate::kinds::custom_resource_definition::KIND), cluster_scoped);
    }

    #[test]
    fn new_finalizers_without_a_domain_are_warned_about() {
        let old = object(json!({"finalizers": ["known"]}));
        let new = object(json!({"finalizers": ["known", "orphan", "x.y/z", "plain", "dotted.name"]}));
        let why = "to avoid accidental conflicts with other finalizer writers";
        let expected = [
            format!(
                "metadata.finalizers: \"dotted.name\": prefer a domain-qualified finalizer name including a path (/) {why}"
            ),
            format!("metadata.finalizers: \"plain\": prefer a domain-qualified finalizer name {why}"),
        ];
        assert_eq!(finalizer_warnings(&new, Some(&old)), expected);
        assert_eq!(finalizer_warnings(&new, None).len(), 3);
    }

    #[test]
    fn deleted_object_takes_no_new_finalizers() {
        let old = json!({"name": "a", "deletionTimestamp": "2020-01-01T00:00:00Z", "finalizers": ["x.y/a"]});
        let mut new = old.clone();
        new["finalizers"] = json!(["x.y/b", "x.y/a"]);
        let detail = "no new finalizers can be added if the object is being deleted, found new finalizers \
                      []string{\"x.y/b\"}";
        assert_eq!(messages(new, Some(old.clone())), [format!("metadata.finalizers: Forbidden: {detail}")]);
        let mut fewer = old.clone();
        fewer["finalizers"] = json!([]);
        assert_eq!(messages(fewer, Some(old)), Vec::<String>::new());
    }
}
