//! NamespaceLifecycle: nothing is created in a namespace that is missing or being deleted, and some namespaces cannot be deleted.

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::object::{Cause, Key, Resource, Status};

/// Namespaces that cannot be deleted.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Admits a write or a deletion.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let is_deletion = request.operation == Operation::Delete;
    if is_deletion && request.kind.resource == "namespaces" && PROTECTED.contains(&request.name()) {
        return Err(Status::forbidden(request.kind.resource, request.name(), "this namespace may not be deleted"));
    }
    if !request.kind.namespaced || request.operation != Operation::Create {
        return Ok(());
    }
    let name = request.object.namespace();
    let namespaces = Resource("namespaces");
    let Some(namespace) = txn.get_shared(&Key::new(namespaces, "", name))? else {
        return Err(Status::not_found(namespaces, name));
    };
    if namespace.deletion().is_none() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let mut status = request.forbidden_early(&why);
    let message = format!("namespace {name} is being terminated");
    status.causes.push(Cause { reason: "NamespaceTerminating".into(), field: "metadata.namespace".into(), message });
    Err(status)
}
