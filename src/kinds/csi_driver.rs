//! CSIDriver (storage.k8s.io/v1).

use super::catalogue::shapes;
use super::shared::{names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::storage::v1::{CSIDriver, TokenRequest};
use std::collections::BTreeSet;

/// Minimum number of seconds between two updates of a node's allocatable volumes.
const MIN_UPDATE_PERIOD: i64 = 10;

const MAX_NAME_BYTES: usize = 63;
const LEAST_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    generation: false,
    unconditional_update: false,
    shape: &SHAPE,
    warnings,
    ..Kind::new::<CSIDriver>("csidrivers.storage.k8s.io", "v1", "CSIDriver", &view::storage::CSI_DRIVER)
};

static SHAPE: StructShape = StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE)))]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("volumeLifecycleModes", shapes::SET)]);

/// Checks the name of a driver: a subdomain in upper or lower case of up to 63 characters (`ValidateCSIDriverName`).
pub fn check_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_NAME_BYTES {
        errors.too_long(path, MAX_NAME_BYTES);
    }
    errors.each_invalid(path, name, names::subdomain(&name.to_lowercase()));
}

/// Checks a driver's token requests: one per audience, valid for at least ten minutes.
fn check_token_requests(requests: &[TokenRequest], path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, request) in requests.iter().enumerate() {
        let path = path.index(index);
        if !seen.insert(request.audience.as_str()) {
            errors.duplicate(&path.child("audience"), request.audience.as_str());
            continue;
        }
        let at = path.child("expirationSeconds");
        match request.expiration_seconds {
            Some(seconds) if seconds < LEAST_TOKEN_SECONDS => {
                errors.invalid(&at, seconds, "may not specify a duration less than 10 minutes");
            }
            Some(seconds) if seconds > MAX_TOKEN_SECONDS => {
                errors.invalid(&at, seconds, "may not specify a duration larger than 2^32 seconds");
            }
            _ => {}
        }
    }
}

/// Warns of tokens that the driver gets in attributes of volumes.
fn warnings(driver: &Object) -> Vec<String> {
    let is_set = driver.value_at(&["spec", "serviceAccountTokenInSecrets"]).is_some_and(|value| !value.is_null());
    if driver.items(&["spec", "tokenRequests"]).is_empty() || is_set {
        return Vec::new();
    }
    let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of \
                tokens in volume attributes";
    vec![text.to_owned()]
}

impl Typed for CSIDriver {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = &mut self.spec;
        spec.attach_required.get_or_insert(true);
        spec.pod_info_on_mount.get_or_insert(false);
        spec.requires_republish.get_or_insert(false);
        spec.se_linux_mount.get_or_insert(false);
        spec.storage_capacity.get_or_insert(false);
        spec.fs_group_policy.get_or_insert_with(|| "ReadWriteOnceWithFSType".to_owned());
        omit::empty(&mut spec.volume_lifecycle_modes);
        spec.volume_lifecycle_modes.get_or_insert_with(|| vec!["Persistent".to_owned()]);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (spec, path) = (&self.spec, FieldPath::root("spec"));
        if self.metadata.name.as_deref().is_some_and(|name| name.len() > MAX_NAME_BYTES) {
            errors.too_long(&FieldPath::root("metadata").child("name"), MAX_NAME_BYTES);
        }
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        if let Some(other) = spec.fs_group_policy.as_deref().filter(|text| !policies.contains(text)) {
            errors.unsupported(&path.child("fsGroupPolicy"), other, &policies);
        }
        let modes = ["Persistent", "Ephemeral"];
        let chosen = spec.volume_lifecycle_modes.iter().flatten();
        for other in chosen.filter(|mode| !modes.contains(&mode.as_str())) {
            errors.unsupported_as_listed(&path.child("volumeLifecycleModes"), other.as_str(), &modes);
        }
        if let Some(seconds) =
            spec.node_allocatable_update_period_seconds.filter(|seconds| *seconds < MIN_UPDATE_PERIOD)
        {
            let path = path.child("nodeAllocatableUpdatePeriodSeconds");
            errors.invalid(&path, seconds, &format!("must be greater than or equal to {MIN_UPDATE_PERIOD} seconds"));
        }
        check_token_requests(spec.token_requests.as_deref().unwrap_or_default(), &path.child("tokenRequests"), errors);
        if let Some(old) = old {
            // The misspelt name is Kubernetes' own.
            errors.immutable(&path.child("attachedRequired"), &spec.attach_required, &old.spec.attach_required);
            let modes = path.child("volumeLifecycleModes");
            errors.immutable(&modes, &spec.volume_lifecycle_modes, &old.spec.volume_lifecycle_modes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_in_attributes_of_volumes_are_warned_about() {
        let warned = |spec: serde_json::Value| warnings(&Object(json!({"spec": spec}))).len();
        let requests = json!([{"audience": "a"}]);
        assert_eq!(warned(json!({"tokenRequests": requests})), 1);
        assert_eq!(warned(json!({"tokenRequests": requests, "serviceAccountTokenInSecrets": false})), 0);
        assert_eq!(warned(json!({"tokenRequests": []})), 0);
    }
}
