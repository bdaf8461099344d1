//! The devices that a claim asks for: requests, constraints between them, and configuration.
//!
//! Never: looks at a device or a class; the scheduler does. Start reading at [`check`].

use super::{
    MAX_ITEMS, check_configuration, check_items, check_label, check_qualified, check_selectors, check_tolerations,
    check_unique, default_tolerations,
};
use crate::kinds::shared::{names, omit};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceConstraint, DeviceRequest, DeviceSelector, DeviceToleration, ResourceClaimSpec,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of alternatives of a request (Kubernetes: `FirstAvailableDeviceRequestMaxSize`).
pub const MAX_ALTERNATIVES: usize = 8;
const UNKNOWN: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// The requests of a claim, each with the names of its alternatives.
pub struct RequestNames<'c>(BTreeMap<&'c str, BTreeSet<&'c str>>);

impl<'c> RequestNames<'c> {
    /// Collects the names of a claim's requests.
    pub fn from_claim(spec: &'c ResourceClaimSpec) -> RequestNames<'c> {
        let requests = spec.devices.iter().filter_map(|devices| devices.requests.as_ref()).flatten();
        let alternatives = |request: &'c DeviceRequest| {
            request.first_available.iter().flatten().map(|part| part.name.as_str()).collect()
        };
        RequestNames(requests.map(|request| (request.name.as_str(), alternatives(request))).collect())
    }

    /// Checks a reference to a request, `gpu` or `gpu/small`.
    pub fn check(&self, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
        let parts: Vec<&str> = name.split('/').collect();
        let is_known = match parts[..] {
            [request] => self.0.contains_key(request),
            [request, part] => self.0.get(request).is_some_and(|parts| parts.contains(part)),
            _ => return errors.invalid(path, name, UNKNOWN),
        };
        parts.iter().for_each(|part| check_label(part, path, errors));
        if !is_known {
            errors.invalid(path, name, UNKNOWN);
        }
    }

    /// Checks a list of references.
    pub fn check_all(&self, names: Option<&[String]>, path: &FieldPath, errors: &mut FieldErrors) {
        let (names, path) = (names.unwrap_or_default(), path.child("requests"));
        check_items(names, MAX_ITEMS, &path, errors, |name, path, errors| self.check(name, path, errors));
        if names.len() <= MAX_ITEMS {
            check_unique(names, String::clone, &path, errors);
        }
    }
}

/// The fields that a request and its alternatives share.
struct DeviceQuery<'r> {
    class: &'r str,
    selectors: Option<&'r [DeviceSelector]>,
    mode: Option<&'r str>,
    count: Option<i64>,
    tolerations: Option<&'r [DeviceToleration]>,
}

/// Fills in one device for each request.
pub fn default(spec: &mut ResourceClaimSpec) {
    let devices = spec.devices.get_or_insert_default();
    omit::empty(&mut devices.constraints);
    omit::empty(&mut devices.config);
    for request in devices.requests.iter_mut().flatten() {
        if let Some(exact) = &mut request.exactly {
            default_count(&mut exact.allocation_mode, &mut exact.count);
            default_tolerations(&mut exact.tolerations);
        }
        omit::empty(&mut request.first_available);
        for part in request.first_available.iter_mut().flatten() {
            default_count(&mut part.allocation_mode, &mut part.count);
            default_tolerations(&mut part.tolerations);
        }
    }
}

fn default_count(mode: &mut Option<String>, count: &mut Option<i64>) {
    omit::default_text(mode, "ExactCount");
    omit::empty(count);
    if mode.as_deref() == Some("ExactCount") {
        count.get_or_insert(1);
    }
}

/// Checks a claim, or that of a template.
pub fn check(spec: &ResourceClaimSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let (path, empty) = (path.child("devices"), DeviceClaim::default());
    let (devices, names) = (spec.devices.as_ref().unwrap_or(&empty), RequestNames::from_claim(spec));
    let requests = devices.requests.as_deref().unwrap_or_default();
    check_items(requests, MAX_ITEMS, &path.child("requests"), errors, check_request);
    if requests.len() <= MAX_ITEMS {
        check_unique(requests, |request| request.name.clone(), &path.child("requests"), errors);
    }
    let constraints = devices.constraints.as_deref().unwrap_or_default();
    check_items(constraints, MAX_ITEMS, &path.child("constraints"), errors, |constraint, path, errors| {
        names.check_all(constraint.requests.as_deref(), path, errors);
        check_constraint(constraint, path, errors);
    });
    let config = devices.config.as_deref().unwrap_or_default();
    check_items(config, MAX_ITEMS, &path.child("config"), errors, |config, path, errors| {
        names.check_all(config.requests.as_deref(), path, errors);
        check_configuration(config.opaque.as_ref(), path, errors);
    });
}

fn check_request(request: &DeviceRequest, path: &FieldPath, errors: &mut FieldErrors) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    check_label(&request.name, &path.child("name"), errors);
    match (&request.exactly, request.first_available.as_deref().unwrap_or_default()) {
        (None, []) => errors.required(path, ONE),
        (Some(exact), []) => {
            let query = DeviceQuery {
                class: &exact.device_class_name,
                selectors: exact.selectors.as_deref(),
                mode: exact.allocation_mode.as_deref(),
                count: exact.count,
                tolerations: exact.tolerations.as_deref(),
            };
            query.check(&path.child("exactly"), errors);
        }
        (Some(_), _) => errors.invalid(path, Value::Null, &format!("{ONE}, but multiple fields are set")),
        (None, parts) => {
            let path = path.child("firstAvailable");
            check_items(parts, MAX_ALTERNATIVES, &path, errors, |part, path, errors| {
                check_label(&part.name, &path.child("name"), errors);
                let query = DeviceQuery {
                    class: &part.device_class_name,
                    selectors: part.selectors.as_deref(),
                    mode: part.allocation_mode.as_deref(),
                    count: part.count,
                    tolerations: part.tolerations.as_deref(),
                };
                query.check(path, errors);
            });
            if parts.len() <= MAX_ALTERNATIVES {
                check_unique(parts, |part| part.name.clone(), &path, errors);
            }
        }
    }
}

impl DeviceQuery<'_> {
    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        match self.class {
            "" => errors.required(&path.child("deviceClassName"), ""),
            class => errors.each_invalid(&path.child("deviceClassName"), class, names::subdomain(class)),
        }
        check_selectors(self.selectors.unwrap_or_default(), &path.child("selectors"), errors);
        let count = self.count.unwrap_or_default();
        match self.mode.unwrap_or_default() {
            "All" if count != 0 => {
                let detail = "must not be specified when allocationMode is 'All'";
                errors.invalid(&path.child("count"), count, detail);
            }
            "ExactCount" if count <= 0 => errors.invalid(&path.child("count"), count, "must be greater than zero"),
            "All" | "ExactCount" => {}
            other => errors.unsupported(&path.child("allocationMode"), other, &["All", "ExactCount"]),
        }
        check_tolerations(self.tolerations, path, errors);
    }
}

fn check_constraint(constraint: &DeviceConstraint, path: &FieldPath, errors: &mut FieldErrors) {
    let mut full = |field: &str, name: &str| {
        let path = path.child(field);
        check_qualified(name, &path, errors);
        if !name.contains('/') {
            let detail = "a fully qualified name must be a domain and a name separated by a slash";
            errors.invalid(&path, name, detail);
        }
    };
    match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(name), _) => full("matchAttribute", name),
        (None, Some(name)) => full("distinctAttribute", name),
        (None, None) => {
            let detail =
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
            errors.required(path, detail);
        }
    }
}
