//! ResourceQuota (core/v1).

use super::amount::quantity;
use super::{Errors, Kind, Path, Typed, omit, resource_names};
use crate::object::Object;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind =
    Kind { short: &["quota"], generation: false, ..Kind::of::<ResourceQuota>("resourcequotas", "v1", "ResourceQuota") };

impl Typed for ResourceQuota {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.hard);
        omit::empty(&mut spec.scopes);
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.set(&["status"], json!({}));
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut Errors) {
        let Some(spec) = &self.spec else { return };
        let path = Path::root("spec");
        for (name, amount) in spec.hard.iter().flatten() {
            let path = path.child("hard").key(name);
            resource_names::check(name, &path, errors);
            if !name.contains('/') && !resource_names::is_quota(name) {
                errors.invalid(&path, name.as_str(), "must be a standard resource for quota");
            }
            let exact = quantity(amount);
            if exact.is_negative() {
                errors.invalid(&path, amount.0.as_str(), "must be greater than or equal to 0");
            }
            if resource_names::is_integer(name) && exact.milli() % 1000 != 0 {
                errors.invalid(&path, amount.0.as_str(), "must be an integer");
            }
        }
        check_scopes(spec, &path.child("scopes"), errors);
        if let Some(old) = old.and_then(|old| old.spec.as_ref()) {
            errors.immutable(&path.child("scopes"), &spec.scopes, &old.scopes);
        }
    }
}

fn check_scopes(spec: &ResourceQuotaSpec, path: &Path, errors: &mut Errors) {
    let scopes = spec.scopes.as_deref().unwrap_or_default();
    for scope in scopes {
        let fits: fn(&str) -> bool = match scope.as_str() {
            "BestEffort" => |name| name == "pods",
            "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
                is_of_pods
            }
            "VolumeAttributesClass" => |name| matches!(name, "requests.storage" | "persistentvolumeclaims"),
            _ => {
                errors.invalid(path, json!(scopes), "unsupported scope");
                continue;
            }
        };
        let limited = spec.hard.iter().flatten().map(|(name, _)| name);
        if limited.into_iter().any(|name| resource_names::is_quota(name) && !fits(name)) {
            errors.invalid(path, json!(scopes), "unsupported scope applied to resource");
        }
    }
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        let has = |name: &str| scopes.iter().any(|scope| scope == name);
        if has(one) && has(other) {
            errors.invalid(path, json!(scopes), "conflicting scopes");
        }
    }
}

fn is_of_pods(name: &str) -> bool {
    let (kind, measured) = name.split_once('.').unwrap_or(("requests", name));
    name == "pods" || matches!(kind, "requests" | "limits") && matches!(measured, "cpu" | "memory")
}
