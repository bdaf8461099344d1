//! Admin access to devices that others use: only in namespaces whose label permits it (KEP-5018; Kubernetes:
//! `pkg/registry/resource/utils.go`).

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::kinds::shared::field::invalid;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::{Key, Object, Resource};
use crate::world::devices::{CLAIMS, TEMPLATES};

/// The label of a namespace whose claims may have admin access, with the value `true`.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Refuses a new claim or template with admin access, and an allocation with it, in other namespaces. Later changes of a spec are refused
/// anyway.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let path = match (request.kind.resource.0, request.subresource, request.operation) {
        (CLAIMS, "", Operation::Create) => requested_at(request.object, &["spec"]),
        (TEMPLATES, "", Operation::Create) => requested_at(request.object, &["spec", "spec"]),
        (CLAIMS, "status", _) if request.old.and_then(allocated_at).is_none() => allocated_at(request.object),
        _ => None,
    };
    let Some(path) = path else { return Ok(()) };
    let namespace = txn.get(&Key::new(Resource("namespaces"), "", request.namespace()))?;
    if namespace.is_some_and(|namespace| namespace.label(LABEL) == Some("true")) {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    let why = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    errors.forbidden(&path.child("adminAccess"), &why);
    Err(invalid(request.kind.kind, request.kind.resource, request.name(), &errors.0))
}

/// The first request for admin access in a claim's spec, which is at this path. Kubernetes names a template's like a claim's.
fn requested_at(object: &Object, spec: &[&str]) -> Option<FieldPath> {
    let path: Vec<&str> = spec.iter().copied().chain(["devices", "requests"]).collect();
    let first = object.items(&path).iter().position(|request| request["exactly"]["adminAccess"] == true)?;
    Some(FieldPath::root("spec").child("devices").child("requests").index(first))
}

/// The first device that is allocated to a claim with admin access.
fn allocated_at(claim: &Object) -> Option<FieldPath> {
    let results = claim.items(&["status", "allocation", "devices", "results"]);
    let first = results.iter().position(|result| result["adminAccess"] == true)?;
    Some(FieldPath::root("status").child("allocation").child("devices").child("results").index(first))
}
