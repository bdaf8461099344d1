//! PersistentVolumeClaim (core/v1).

use super::catalogue::{merge_rules, shapes};
use super::shared::amount::{self, quantity};
pub use super::shared::default_class::CLASS_ANNOTATION;
use super::shared::go::{self, GoField, GoShape};
use super::shared::volume_source::{check_access_modes, check_volume_mode};
use super::shared::{metadata, names, omit, selector};
use super::{FieldErrors, FieldPath, Kind, Typed, view};
use crate::object::struct_shape::StructShape;
use crate::object::{Object, Quantity};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate};
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["pvc"],
    warnings,
    generation: false,
    merge_rules: &merge_rules::WITH_CONDITIONS,
    shape: &SHAPE,
    returns_deleted: true,
    ..Kind::new::<PersistentVolumeClaim>(
        "persistentvolumeclaims",
        "v1",
        "PersistentVolumeClaim",
        &view::persistent_volume_claim::VIEW,
    )
};

static SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&shapes::CLAIM_SPEC))), shapes::STATUS]);

/// The finalizer of claims, which stays while a pod uses one.
pub const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The warning about the deprecated annotation with the class of a volume or claim.
pub fn class_annotation(object: &Object) -> Option<String> {
    object.annotation(CLASS_ANNOTATION)?;
    let text = "deprecated since v1.8; use \"storageClassName\" attribute instead";
    Some(format!("metadata.annotations[{CLASS_ANNOTATION}]: {text}"))
}

fn warnings(claim: &Object) -> Vec<String> {
    let mut warnings = Vec::from_iter(class_annotation(claim));
    for field in ["requests", "limits"] {
        let Some(text) = claim.text(&["spec", "resources", field, "storage"]) else { continue };
        if Quantity::parse(text).is_ok_and(|amount| amount.milli() % 1000 != 0) {
            let warning = format!("fractional byte value {text:?} is invalid, must be an integer");
            warnings.push(format!("spec.resources.{field}[storage]: {warning}"));
        }
    }
    warnings
}

/// The fields of Go's spec, for the message that shows a forbidden change.
const SPEC: &[GoField] = &[
    ("AccessModes", "accessModes", GoShape::Pointer),
    ("Selector", "selector", GoShape::Pointer),
    ("Resources", "resources", GoShape::Struct(RESOURCES)),
    ("VolumeName", "volumeName", GoShape::Text),
    ("StorageClassName", "storageClassName", GoShape::Pointer),
    ("VolumeMode", "volumeMode", GoShape::Pointer),
    ("DataSource", "dataSource", GoShape::Optional(SOURCE)),
    ("DataSourceRef", "dataSourceRef", GoShape::Optional(SOURCE_IN_NAMESPACE)),
    ("VolumeAttributesClassName", "volumeAttributesClassName", GoShape::Pointer),
];
const SOURCE: &[GoField] =
    &[("APIGroup", "apiGroup", GoShape::Pointer), ("Kind", "kind", GoShape::Text), ("Name", "name", GoShape::Text)];
const SOURCE_IN_NAMESPACE: &[GoField] =
    &[SOURCE[0], SOURCE[1], SOURCE[2], ("Namespace", "namespace", GoShape::Pointer)];
const RESOURCES: &[GoField] = &[("Limits", "limits", GoShape::Pointer), ("Requests", "requests", GoShape::Pointer)];

impl Typed for PersistentVolumeClaim {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        default_spec(spec);
        let status = self.status.get_or_insert_default();
        status.phase.get_or_insert_with(|| "Pending".to_owned());
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({"phase": "Pending"}));
        pair_sources(new, old);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        let Some(spec) = &self.spec else { return };
        check_spec(spec, &path, errors);
        if let Some(old) = old {
            let mut old = old.clone();
            // A claim from before the two data sources were paired has only one of them.
            if let Some(before) =
                old.spec.as_mut().filter(|before| before.data_source.is_none() != before.data_source_ref.is_none())
            {
                before.data_source.clone_from(&spec.data_source);
                before.data_source_ref.clone_from(&spec.data_source_ref);
            }
            check_change(self, &old, spec, &path, errors);
        }
    }
}

/// Sets the defaults of a claim's spec, also in templates of pods and StatefulSets.
pub fn default_spec(spec: &mut PersistentVolumeClaimSpec) {
    omit::empty(&mut spec.access_modes);
    omit::empty(&mut spec.volume_name);
    spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
    let resources = spec.resources.get_or_insert_default();
    omit::empty(&mut resources.limits);
    omit::empty(&mut resources.requests);
    amount::round_up(&mut resources.limits);
    amount::round_up(&mut resources.requests);
}

/// Gives a claim both of its data sources (KEP-1495): `dataSource` holds only claims and snapshots, `dataSourceRef` everything.
fn pair_sources(new: &mut Object, old: Option<&Object>) {
    const SOURCE: &[&str] = &["spec", "dataSource"];
    const REFERENCE: &[&str] = &["spec", "dataSourceRef"];
    let at = |claim: &Object, field: &[&str]| claim.value_at(field).filter(|value| !value.is_null()).cloned();
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let known = |value: &Value| {
        let (group, kind) = (text(value, "apiGroup"), text(value, "kind"));
        matches!((&*group, &*kind), ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
    };
    // References to other namespaces belong to a feature that is off by default.
    let is_remote = |reference: &Value| !text(reference, "namespace").is_empty();
    if at(new, REFERENCE).is_some_and(|reference| is_remote(&reference))
        && old.is_none_or(|old| at(old, REFERENCE).is_none())
    {
        new.unset(REFERENCE);
    }
    match (at(new, SOURCE), at(new, REFERENCE)) {
        (Some(source), None)
            if known(&source) || old.is_some_and(|old| at(old, SOURCE).is_some() || at(old, REFERENCE).is_some()) =>
        {
            new.set(REFERENCE, source);
        }
        (Some(_), None) => {
            new.unset(SOURCE);
        }
        (None, Some(reference)) if !is_remote(&reference) => {
            let mut source = reference;
            source.as_object_mut().map(|fields| fields.remove("namespace"));
            new.set(SOURCE, source);
        }
        _ => {}
    }
}

/// Checks a claim's spec.
pub fn check_spec(spec: &PersistentVolumeClaimSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if modes.is_empty() {
        errors.required(&path.child("accessModes"), "at least 1 access mode is required");
    }
    if let Some(selector) = &spec.selector {
        selector::check(selector, &path.child("selector"), errors);
    }
    check_access_modes(modes, &path.child("accessModes"), errors);
    let storage = path.child("resources").key("storage");
    let request = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage"));
    match request {
        None => errors.required(&storage, ""),
        Some(amount) if quantity(amount).is_zero() || quantity(amount).is_negative() => {
            errors.invalid(&storage, amount.0.as_str(), "must be greater than zero");
        }
        Some(_) => {}
    }
    if let Some(class) = spec.storage_class_name.as_deref().filter(|class| !class.is_empty()) {
        errors.each_invalid(&path.child("storageClassName"), class, names::subdomain(class));
    }
    check_volume_mode(spec.volume_mode.as_deref(), &path.child("volumeMode"), errors);
    check_sources(spec, path, errors);
    if let Some(class) = spec.volume_attributes_class_name.as_deref().filter(|class| !class.is_empty()) {
        errors.each_invalid(&path.child("volumeAttributesClassName"), class, names::subdomain(class));
    }
}

/// Checks the claim template of an ephemeral volume.
pub fn check_template(template: &PersistentVolumeClaimTemplate, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(meta) = &template.metadata {
        metadata::check_template(meta, &path.child("metadata"), errors);
    }
    check_spec(&template.spec, &path.child("spec"), errors);
}

/// Checks the data source: another claim, a snapshot, or a custom resource.
fn check_sources(spec: &PersistentVolumeClaimSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let source = spec.data_source.as_ref().map(|from| ("dataSource", &from.api_group, &from.kind, &from.name));
    let referred = spec.data_source_ref.as_ref();
    let namespace = referred.and_then(|from| from.namespace.as_deref()).filter(|name| !name.is_empty());
    let reference = referred.map(|from| ("dataSourceRef", &from.api_group, &from.kind, &from.name));
    for (field, group, kind, name) in source.into_iter().chain(reference) {
        let path = path.child(field);
        for (field, _) in [("name", name), ("kind", kind)].into_iter().filter(|(_, text)| text.is_empty()) {
            errors.required(&path.child(field), "");
        }
        match group.as_deref().unwrap_or_default() {
            "" if kind != "PersistentVolumeClaim" => {
                let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
                errors.invalid(&path, kind.as_str(), detail);
            }
            "" => {}
            group => errors.each_invalid(&path.child("apiGroup"), group, names::subdomain(group)),
        }
    }
    if let Some(namespace) = namespace {
        errors.each_invalid(&path.child("dataSourceRef").child("namespace"), namespace, names::label(namespace));
    }
    if let (Some((_, group, kind, name)), Some((_, other_group, other_kind, other_name))) = (source, reference) {
        let same = (group.as_deref().unwrap_or_default(), kind, name)
            == (other_group.as_deref().unwrap_or_default(), other_kind, other_name);
        if namespace.is_some() {
            let detail = "may not be specified when dataSourceRef.namespace is specified";
            errors.invalid(path, json!({}), detail);
        } else if !same {
            errors.invalid(path, json!({}), "must match dataSourceRef");
        }
    }
}

/// The spec is immutable, except that a bound claim may request more storage.
fn check_change(
    new: &PersistentVolumeClaim,
    old: &PersistentVolumeClaim,
    spec: &PersistentVolumeClaimSpec,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let mut expected = old.spec.clone().unwrap_or_default();
    let bound = old.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let storage = |spec: &PersistentVolumeClaimSpec| {
        spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage").map(quantity))
    };
    let (before, after) = (storage(&expected), storage(spec));
    if bound {
        expected.resources.clone_from(&spec.resources);
        expected.volume_attributes_class_name.clone_from(&spec.volume_attributes_class_name);
    }
    // The binder sets the volume's name once. A claim from before there was a default class may get its class later.
    if expected.volume_name.is_none() {
        expected.volume_name.clone_from(&spec.volume_name);
        if expected.storage_class_name.is_none() {
            expected.storage_class_name.clone_from(&spec.storage_class_name);
        }
    }
    if expected != *spec && new.metadata.deletion_timestamp.is_none() {
        let rule = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                    bound claims";
        let laid = |spec: &PersistentVolumeClaimSpec| go::lay_out(&json!(spec), SPEC);
        errors.forbidden(path, &format!("{rule}\n{}", go::difference(&laid(&expected), &laid(spec))));
    } else if after < before {
        let path = path.child("resources").child("requests").child("storage");
        errors.forbidden(&path, "field can not be less than status.capacity");
    }
    errors.immutable(&FieldPath::root("volumeMode"), &json!(spec.volume_mode), &json!(expected.volume_mode));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;

    fn wrong(patch: Value) -> Vec<String> {
        let mut body = json!({
            "metadata": {"name": "a", "namespace": "b"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        json_patch::merge(&mut body, &patch);
        testing::field_errors::<PersistentVolumeClaim>(&body, None).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn template_has_only_labels_and_annotations() {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let meta = json!({"name": "a", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}});
        let template = serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap();
        let mut errors = FieldErrors::default();
        check_template(&template, &FieldPath::root("t"), &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["name", "uID"].map(|field| format!("t.metadata.{field}: Forbidden: cannot be set")));
    }

    #[test]
    fn data_sources_are_paired() {
        let prepared = |spec: Value, old: Option<&Object>| {
            let mut claim = Object(json!({"metadata": {"name": "a"}, "spec": spec}));
            (KIND.prepare)(&mut claim, old);
            (claim.0["spec"]["dataSource"].clone(), claim.0["spec"]["dataSourceRef"].clone())
        };
        let claim = json!({"kind": "PersistentVolumeClaim", "name": "n"});
        let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "n"});
        let custom = json!({"apiGroup": "a.b", "kind": "K", "name": "n"});
        let remote = json!({"apiGroup": "a.b", "kind": "K", "name": "n", "namespace": "x"});
        for source in [&claim, &snapshot] {
            assert_eq!(prepared(json!({"dataSource": source}), None), (source.clone(), source.clone()));
        }
        assert_eq!(
            prepared(json!({"dataSource": custom}), None),
            (Value::Null, Value::Null),
            "only a reference may name it"
        );
        assert_eq!(prepared(json!({"dataSourceRef": custom}), None), (custom.clone(), custom.clone()));
        assert_eq!(prepared(json!({"dataSourceRef": remote}), None), (Value::Null, Value::Null));
        let old = Object(json!({"spec": {"dataSourceRef": remote}}));
        assert_eq!(prepared(json!({"dataSourceRef": remote}), Some(&old)), (Value::Null, remote));
        let old = Object(json!({"spec": {"dataSource": custom, "dataSourceRef": custom}}));
        assert_eq!(prepared(json!({"dataSource": custom}), Some(&old)), (custom.clone(), custom), "of an older client");
    }

    #[test]
    fn claim_from_before_the_pairing_can_be_updated() {
        let claim = json!({"kind": "PersistentVolumeClaim", "name": "n"});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "dataSource": claim});
        let body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        let old = Object((KIND.normalize)(&body, &mut |_| {}).unwrap());
        let mut new = old.clone();
        (KIND.prepare)(&mut new, Some(&old));
        assert_eq!(new.0["spec"]["dataSourceRef"], claim);
        assert_eq!((KIND.validate)(&new, Some(&old)), []);
    }

    #[test]
    fn sources_of_data_are_checked() {
        let source = json!({"apiGroup": "a.b", "kind": "K", "name": "n"});
        let good = [
            json!({"dataSource": source}),
            json!({"dataSourceRef": source}),
            json!({"dataSource": source, "dataSourceRef": source}),
            json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "n"}}),
            json!({"dataSourceRef": {"apiGroup": "a.b", "kind": "K", "name": "n", "namespace": "x"}}),
        ];
        for spec in good {
            assert_eq!(wrong(json!({"spec": spec})), Vec::<String>::new(), "{spec}");
        }
        let cases = [
            (json!({"dataSource": {"kind": "K", "name": "n"}}), "spec.dataSource"),
            (json!({"dataSource": {"apiGroup": "A", "kind": "K", "name": "n"}}), "spec.dataSource.apiGroup"),
            (json!({"dataSource": {"apiGroup": "a.b", "kind": "K", "name": ""}}), "spec.dataSource.name"),
            (json!({"dataSourceRef": {"apiGroup": "a.b", "kind": "", "name": "n"}}), "spec.dataSourceRef.kind"),
            (json!({"dataSourceRef": {"kind": "K", "name": "n"}}), "spec.dataSourceRef"),
            (
                json!({"dataSourceRef": {"apiGroup": "a.b", "kind": "K", "name": "n", "namespace": "X"}}),
                "spec.dataSourceRef.namespace",
            ),
            (json!({"dataSource": source, "dataSourceRef": {"apiGroup": "a.b", "kind": "K", "name": "m"}}), "spec"),
            (
                json!({"dataSource": source, "dataSourceRef": {"apiGroup": "a.b", "kind": "K", "name": "n", "namespace": "x"}}),
                "spec",
            ),
        ];
        for (spec, field) in cases {
            assert_eq!(wrong(json!({"spec": spec})), [field], "{spec}");
        }
    }
}
