//! The parts of an object: each write replaces one and keeps the others.
//!
//! Never: reads or writes the state.

use super::UpdatePart;
use crate::apiserver::ApiResult;
use crate::apiserver::create::refuse;
use crate::apiserver::rules::metadata;
use crate::kinds::shared::certificate_conditions;
use crate::kinds::{FieldErrors, Kind, deployment, pod};
use crate::object::{Object, Time};
use serde_json::{Value, json};

/// The object with another status and metadata.
pub fn with_status(changed: &Object, old: &Object) -> ApiResult<Object> {
    let mut object = old.clone();
    for field in ["metadata", "status"] {
        match changed.value_at(&[field]) {
            Some(value) => object.set(&[field], value.clone()),
            None => drop(object.unset(&[field])),
        }
    }
    Ok(object)
}

/// Pods, whose status has rules.
pub const PODS: &str = "pods";

/// Requests for certificates, whose status has rules, too.
pub const SIGNING_REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

/// The status of a CertificateSigningRequest after a write of `/status` or `/approval`.
pub fn signing_request_status(
    kind: &Kind,
    status: Option<Value>,
    old: &Object,
    part: UpdatePart,
    now: Time,
) -> ApiResult<Value> {
    let status = match part {
        UpdatePart::Approval => certificate_conditions::approval_status(status.as_ref(), old, now),
        // The loops approve and sign.
        UpdatePart::StatusAlone => status.unwrap_or_default(),
        _ => certificate_conditions::reported_status(status.unwrap_or_default(), old, now),
    };
    let mut errors = FieldErrors::default();
    let new = old.other_status(status.clone());
    certificate_conditions::check_conditions(&new, old, &mut errors);
    refuse(kind, old, &errors.0)?;
    Ok(status)
}

/// The status of a pod after a client's write.
pub fn pod_status(kind: &Kind, status: Option<Value>, old: &Object) -> ApiResult<Value> {
    let mut status = status.unwrap_or_else(|| json!({}));
    pod::status::complete(&mut status, old);
    refuse(kind, old, &pod::status::check(&status, old))?;
    Ok(status)
}

/// Raises the generation when the spec has changed. A write of the status does not.
pub fn raise_generation(kind: &Kind, object: &mut Object, old: &Object) {
    let counts = match kind.resource.0 {
        // It stays at 1.
        "priorityclasses.scheduling.k8s.io" => false,
        // Only updates count.
        "csidrivers.storage.k8s.io" => true,
        _ => kind.generation,
    };
    if counts && (metadata::spec_differs(object, old) || metadata_counts(kind, object, old)) {
        object.set(&["metadata", "generation"], old.generation() + 1);
    }
}

/// Whether changed metadata raises the generation: labels of an EndpointSlice, and annotations of a Deployment, which are copied to its
/// ReplicaSets. The controller's own annotations do not count.
fn metadata_counts(kind: &Kind, new: &Object, old: &Object) -> bool {
    if kind.resource == "endpointslices.discovery.k8s.io" {
        let labels = |object: &Object| object.value_at(&["metadata", "labels"]).cloned();
        return labels(new) != labels(old);
    }
    let own = |object: &Object| -> Vec<(String, String)> {
        let all = object.pairs(&["metadata", "annotations"]);
        let own = all.filter(|(key, _)| !key.starts_with(deployment::OWN_ANNOTATIONS));
        own.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    kind.resource == "deployments.apps" && own(new) != own(old)
}

/// Takes over the parts of the stored object that a write does not change.
pub fn keep_other_parts(kind: &Kind, object: &mut Object, old: &Object, part: UpdatePart) {
    let keep = |object: &mut Object, field: &str| match old.value_at(&[field]) {
        Some(value) => object.set(&[field], value.clone()),
        None => {
            object.unset(&[field]);
        }
    };
    match part {
        UpdatePart::Main => {
            if kind.status {
                keep(object, "status");
            }
            // A namespace's spec contains only its finalizers, which only `/finalize` changes.
            if kind.resource == "namespaces" {
                keep(object, "spec");
            }
        }
        // These parts replace their part of the stored object alone.
        UpdatePart::Status | UpdatePart::StatusAlone | UpdatePart::Approval | UpdatePart::Of(_) | UpdatePart::Scale => {
        }
        // A namespace's finalizers, and its metadata.
        UpdatePart::Finalize => {
            let finalizers = object.value_at(&["spec", "finalizers"]).cloned().unwrap_or(json!([]));
            object.set(&["spec", "finalizers"], finalizers);
            keep(object, "status");
        }
    }
}
