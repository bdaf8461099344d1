//! OwnerReferencesPermissionEnforcement: a user who sets an owner needs the right to delete the object, and a user who sets
//! `blockOwnerDeletion` needs the right to change the owner's finalizers.
//!
//! Not on by default in Kubernetes. Only users with RBAC rights are checked: loops and the administrator may do everything.

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::authorization::{AccessDecision, AccessRequest, AccessedResource, authorize};
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::object::{Object, Status};
use serde_json::Value;
use std::collections::BTreeSet;

/// Admits a write.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let owners = |object: &Object| object.items(&["metadata", "ownerReferences"]).to_vec();
    let (new, old) = (owners(request.object), request.old.map(owners).unwrap_or_default());
    // Loops have a name for webhooks, but no limits.
    if new == old || txn.user().is_none_or(User::is_administrator) {
        return Ok(());
    }
    let refuse = |what: &str, decision: &AccessDecision| {
        // Go shows the absence of an error.
        let why = format!("{what}: {}, <nil>", decision.reason);
        Err(Status::forbidden(request.kind.resource, request.object.name(), &why))
    };
    if request.operation != Operation::Create {
        let accessed = AccessedResource {
            group: request.kind.resource.group().to_owned(),
            resource: request.kind.resource.plural().to_owned(),
            namespace: request.object.namespace().to_owned(),
            name: request.object.name().to_owned(),
            ..AccessedResource::default()
        };
        let decision = authorize(txn, &request.user, &AccessRequest::for_resource("delete", accessed))?;
        if !decision.is_allowed {
            return refuse("cannot set an ownerRef on a resource you can't delete", &decision);
        }
    }
    let blocks = |owner: &&Value| owner["blockOwnerDeletion"] == true;
    let uid = |owner: &Value| owner["uid"].as_str().unwrap_or_default().to_owned();
    let was_blocking: BTreeSet<String> = old.iter().filter(blocks).map(uid).collect();
    for owner in new.iter().filter(blocks).filter(|owner| !was_blocking.contains(&uid(owner))) {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let (api_version, owner_kind) = (text("apiVersion"), text("kind"));
        let Some(kind) = txn.kinds().by_kind(api_version, owner_kind) else {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind \
                 {owner_kind}: no matches for kind {owner_kind:?} in version {api_version:?}"
            );
            return Err(Status::forbidden(request.kind.resource, request.object.name(), &why));
        };
        let accessed = AccessedResource {
            group: kind.resource.group().to_owned(),
            resource: kind.resource.plural().to_owned(),
            subresource: "finalizers".to_owned(),
            namespace: if kind.namespaced { request.object.namespace().to_owned() } else { String::new() },
            name: text("name").to_owned(),
            ..AccessedResource::default()
        };
        let decision = authorize(txn, &request.user, &AccessRequest::for_resource("update", accessed))?;
        if !decision.is_allowed {
            let what =
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
            return refuse(what, &decision);
        }
    }
    Ok(())
}
