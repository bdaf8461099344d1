//! NamespaceLifecycle: nothing is created in a namespace that is missing or on its way out.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::object::{Cause, Key, Resource, Status};

/// Admits a write.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.kind.namespaced || request.old.is_some() {
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
    let mut status = Status::forbidden(request.kind.resource, request.object.name(), &why);
    let message = format!("namespace {name} is being terminated");
    status.causes.push(Cause { reason: "NamespaceTerminating".into(), field: "metadata.namespace".into(), message });
    Err(status)
}
