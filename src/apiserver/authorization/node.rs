//! The node authorizer: a kubelet may read what the pods of its node need, and write its own objects
//! (`plugin/pkg/auth/authorizer/node`).
//!
//! Knows: users `system:node:NAME` in the group `system:nodes`. Never: restricts the content of a write; admission does.
//! Start reading at [`authorize_node`].

use super::{AccessDecision, AccessRequest, AccessTarget, AccessedResource};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::kinds::node::GROUP;
use crate::object::{Key, Object, Resource};

/// The group of all kubelets, and the beginning of their names.
const PREFIX: &str = "system:node:";
/// The role with the rules of all requests that have no check of their own.
const ROLE: &str = "system:node";

/// The field that a kubelet has to select by.
const NODE_NAME: &str = "spec.nodeName";

/// Answer for a request: allowed, or the reason why nothing allows it here.
type NodeOpinion = Result<(), String>;

/// Returns the node whose kubelet a user is; `None` for other users.
pub fn node_of(user: &User) -> Option<&str> {
    let is_node = user.groups.iter().any(|group| group == GROUP);
    user.name.strip_prefix(PREFIX).filter(|_| is_node)
}

/// Decides about a request of a kubelet; `None` for all other users. RBAC may still allow a request that this does not.
pub fn authorize_node(
    txn: &dyn Transaction,
    user: &User,
    request: &AccessRequest,
) -> ApiResult<Option<AccessDecision>> {
    let Some(node) = node_of(user) else { return Ok(None) };
    let opinion = match (&request.target, node) {
        (_, "") => Err(format!("unknown node for user {:?}", user.name)),
        (AccessTarget::Resource(accessed), node) => authorize_object(txn, node, request, accessed)?,
        (AccessTarget::Path(_), _) => check_role(txn, request)?,
    };
    let (is_allowed, reason) = (opinion.is_ok(), opinion.err().unwrap_or_default());
    Ok(Some(AccessDecision { is_allowed, reason }))
}

fn authorize_object(
    txn: &dyn Transaction,
    node: &str,
    request: &AccessRequest,
    accessed: &AccessedResource,
) -> ApiResult<NodeOpinion> {
    let (verb, subresource) = (request.verb.as_str(), accessed.subresource.as_str());
    match (accessed.group.as_str(), accessed.resource.as_str()) {
        ("", "secrets" | "configmaps") => read_object(txn, node, verb, accessed),
        ("", "persistentvolumeclaims") if subresource == "status" => match verb {
            "update" | "patch" => check_relation(txn, node, accessed),
            _ => refuse("can only get, update, or patch persistentvolumeclaims/status"),
        },
        ("", "persistentvolumeclaims" | "persistentvolumes") | ("storage.k8s.io", "volumeattachments") => {
            match (verb, subresource) {
                ("get", "") => check_relation(txn, node, accessed),
                ("get", _) => refuse("cannot get subresource"),
                _ => refuse("can only get individual resources of this type"),
            }
        }
        ("", "serviceaccounts") => match (verb, subresource) {
            ("create", "token") if !accessed.name.is_empty() => check_relation(txn, node, accessed),
            ("create", "token") => refuse("can only create tokens for individual service accounts"),
            _ => refuse("can only create token subresource of service account"),
        },
        ("coordination.k8s.io", "leases") => Ok(check_lease(node, verb, accessed)),
        ("storage.k8s.io", "csinodes") => Ok(check_csi_node(node, verb, accessed)),
        ("", "nodes") if subresource.is_empty() && matches!(verb, "get" | "list" | "watch") => {
            let what = match accessed.name.as_str() {
                own if own == node => return Ok(Ok(())),
                "" => "all nodes".to_owned(),
                other => format!("'{other}'"),
            };
            refuse(&format!("node '{node}' cannot read {what}, only its own Node object"))
        }
        ("", "pods") if subresource.is_empty() => match verb {
            "get" => check_relation(txn, node, accessed),
            "list" | "watch" if accessed.requires_field(NODE_NAME, node) => Ok(Ok(())),
            "list" | "watch" if !accessed.name.is_empty() => check_relation(txn, node, accessed),
            "list" | "watch" => refuse("can only list/watch pods with spec.nodeName field selector"),
            _ => check_role(txn, request),
        },
        ("resource.k8s.io", "resourceclaims") => match (verb, subresource) {
            ("get", "") => check_relation(txn, node, accessed),
            ("get", _) => refuse("cannot get subresource"),
            _ => refuse("can only get individual resources of this type"),
        },
        ("resource.k8s.io", "resourceslices") => authorize_slices(txn, node, verb, accessed),
        _ => check_role(txn, request),
    }
}

/// Allows the ResourceSlices of the node. Admission looks at the content of new ones.
fn authorize_slices(
    txn: &dyn Transaction,
    node: &str,
    verb: &str,
    accessed: &AccessedResource,
) -> ApiResult<NodeOpinion> {
    match verb {
        _ if !accessed.subresource.is_empty() => refuse("cannot authorize ResourceSlice subresources"),
        "create" => Ok(Ok(())),
        "get" | "update" | "patch" | "delete" => check_relation(txn, node, accessed),
        "list" | "watch" | "deletecollection" if accessed.requires_field(NODE_NAME, node) => Ok(Ok(())),
        "list" | "watch" | "deletecollection" => {
            refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
        }
        _ => refuse(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    }
}

fn refuse(reason: &str) -> ApiResult<NodeOpinion> {
    Ok(Err(reason.to_owned()))
}

/// Allows a request that the rules of all nodes allow.
fn check_role(txn: &dyn Transaction, request: &AccessRequest) -> ApiResult<NodeOpinion> {
    let rules = txn.access_index()?.find_rules("ClusterRole", ROLE, "");
    let is_allowed = rules.is_ok_and(|rules| rules.iter().any(|rule| rule.allows(request)));
    Ok(if is_allowed { Ok(()) } else { Err(String::new()) })
}

fn read_object(txn: &dyn Transaction, node: &str, verb: &str, accessed: &AccessedResource) -> ApiResult<NodeOpinion> {
    match (verb, accessed.subresource.as_str()) {
        ("get" | "list" | "watch", "") if accessed.namespace.is_empty() => {
            refuse("can only read namespaced object of this type")
        }
        ("get" | "list" | "watch", "") => check_relation(txn, node, accessed),
        ("get" | "list" | "watch", _) => refuse("cannot read subresource"),
        _ => refuse("can only read resources of this type"),
    }
}

fn check_lease(node: &str, verb: &str, accessed: &AccessedResource) -> NodeOpinion {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".to_owned());
    }
    if accessed.namespace != "kube-node-lease" {
        return Err("can only access leases in the \"kube-node-lease\" system namespace".to_owned());
    }
    match verb == "create" || accessed.name == node {
        true => Ok(()),
        false => Err("can only access node lease with the same name as the requesting node".to_owned()),
    }
}

fn check_csi_node(node: &str, verb: &str, accessed: &AccessedResource) -> NodeOpinion {
    if !accessed.subresource.is_empty() {
        return Err("cannot authorize CSINode subresources".to_owned());
    }
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a CSINode".to_owned());
    }
    match verb == "create" || accessed.name == node {
        true => Ok(()),
        false => Err("can only access CSINode with the same name as the requesting node".to_owned()),
    }
}

/// Allows an object that a pod of the node needs.
fn check_relation(txn: &dyn Transaction, node: &str, accessed: &AccessedResource) -> ApiResult<NodeOpinion> {
    if accessed.name.is_empty() {
        return refuse("No Object name found");
    }
    let name = accessed.name.as_str();
    let need = |resource: &'static str| txn.pods_need(node, &accessed.namespace, (resource, name));
    let is_related = match accessed.resource.as_str() {
        "pods" => {
            let pod = txn.get_shared(&Key::new(Resource("pods"), &accessed.namespace, name))?;
            pod.is_some_and(|pod| is_on_node(&pod, node))
        }
        "secrets" => need("secrets")?,
        "configmaps" => need("configmaps")?,
        "persistentvolumeclaims" => need("persistentvolumeclaims")?,
        "serviceaccounts" => need("serviceaccounts")?,
        "persistentvolumes" => is_volume_used(txn, node, name)?,
        "resourceclaims" => need("resourceclaims")?,
        "resourceslices" => {
            let slice = txn.get_shared(&Key::new(Resource("resourceslices.resource.k8s.io"), "", name))?;
            slice.is_some_and(|slice| is_on_node(&slice, node))
        }
        "volumeattachments" => {
            let key = Key::new(Resource("volumeattachments.storage.k8s.io"), "", name);
            txn.get_shared(&key)?.is_some_and(|one| one.text(&["spec", "nodeName"]) == Some(node))
        }
        _ => false,
    };
    match is_related {
        true => Ok(Ok(())),
        false => Ok(Err(format!("no relationship found between node '{node}' and this object"))),
    }
}

fn is_on_node(object: &Object, node: &str) -> bool {
    object.text(&["spec", "nodeName"]) == Some(node)
}

fn is_volume_used(txn: &dyn Transaction, node: &str, volume: &str) -> ApiResult<bool> {
    let key = Key::new(Resource("persistentvolumes"), "", volume);
    let Some(volume) = txn.get_shared(&key)? else { return Ok(false) };
    let claim = |field: &str| volume.text(&["spec", "claimRef", field]).unwrap_or_default();
    txn.pods_need(node, claim("namespace"), ("persistentvolumeclaims", claim("name")))
}
