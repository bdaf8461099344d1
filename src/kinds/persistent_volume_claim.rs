//! PersistentVolumeClaim (core/v1).

use super::amount::quantity;
use super::go::{self, Field, Shape};
use super::persistent_volume::{check_access_modes, check_volume_mode};
use super::{Errors, Kind, Path, Typed, names, omit, selector};
use crate::object::Object;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["pvc"],
    generation: false,
    ..Kind::of::<PersistentVolumeClaim>("persistentvolumeclaims", "v1", "PersistentVolumeClaim")
};

/// The spec as Go knows it, for the refusal that shows what was changed.
const SPEC: &[Field] = &[
    ("AccessModes", "accessModes", Shape::Pointer),
    ("Selector", "selector", Shape::Pointer),
    ("Resources", "resources", Shape::Struct(RESOURCES)),
    ("VolumeName", "volumeName", Shape::Text),
    ("StorageClassName", "storageClassName", Shape::Pointer),
    ("VolumeMode", "volumeMode", Shape::Pointer),
    ("DataSource", "dataSource", Shape::Plain),
    ("DataSourceRef", "dataSourceRef", Shape::Plain),
    ("VolumeAttributesClassName", "volumeAttributesClassName", Shape::Pointer),
];
const RESOURCES: &[Field] = &[("Limits", "limits", Shape::Pointer), ("Requests", "requests", Shape::Pointer)];

impl Typed for PersistentVolumeClaim {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        default_spec(spec);
        let status = self.status.get_or_insert_default();
        status.phase.get_or_insert_with(|| "Pending".to_owned());
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.set(&["status"], json!({"phase": "Pending"}));
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut Errors) {
        let path = Path::root("spec");
        let Some(spec) = &self.spec else { return };
        check_spec(spec, &path, errors);
        if let Some(old) = old {
            check_change(self, old, spec, &path, errors);
        }
    }
}

/// Defaults of a claim's spec, which pods and StatefulSets use in their templates too.
pub fn default_spec(spec: &mut PersistentVolumeClaimSpec) {
    omit::empty(&mut spec.access_modes);
    omit::empty(&mut spec.volume_name);
    spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
    let resources = spec.resources.get_or_insert_default();
    omit::empty(&mut resources.limits);
    omit::empty(&mut resources.requests);
}

/// Checks of a claim's spec.
pub fn check_spec(spec: &PersistentVolumeClaimSpec, path: &Path, errors: &mut Errors) {
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
}

/// What is asked for stays; a claim that is bound may ask for more of it.
fn check_change(
    new: &PersistentVolumeClaim,
    old: &PersistentVolumeClaim,
    spec: &PersistentVolumeClaimSpec,
    path: &Path,
    errors: &mut Errors,
) {
    let mut kept = old.spec.clone().unwrap_or_default();
    let bound = old.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let storage = |spec: &PersistentVolumeClaimSpec| {
        spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage").map(quantity))
    };
    let (before, after) = (storage(&kept), storage(spec));
    if bound {
        kept.resources.clone_from(&spec.resources);
        kept.volume_attributes_class_name.clone_from(&spec.volume_attributes_class_name);
    }
    // The binder names the volume once; a claim made before there was a default class may get its class later.
    if kept.volume_name.is_none() {
        kept.volume_name.clone_from(&spec.volume_name);
        if kept.storage_class_name.is_none() {
            kept.storage_class_name.clone_from(&spec.storage_class_name);
        }
    }
    if kept != *spec && new.metadata.deletion_timestamp.is_none() {
        let rule = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                    bound claims";
        let laid = |spec: &PersistentVolumeClaimSpec| go::lay_out(&json!(spec), SPEC);
        errors.forbidden(path, &format!("{rule}\n{}", go::difference(&laid(&kept), &laid(spec))));
    } else if after < before {
        let path = path.child("resources").child("requests").child("storage");
        errors.forbidden(&path, "field can not be less than status.capacity");
    }
    errors.immutable(&path.child("volumeMode"), &json!(spec.volume_mode), &json!(kept.volume_mode));
}
