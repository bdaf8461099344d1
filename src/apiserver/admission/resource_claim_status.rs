//! Permissions to change a part of a ResourceClaim's status (feature DRAResourceClaimGranularStatusAuthorization).
//!
//! Beside `resourceclaims/status`, a change of the allocation needs `resourceclaims/binding`, and a change of a driver's devices needs
//! `resourceclaims/driver` with the driver as the name of the resource. Neither is a path of the API. The verbs for drivers say whose
//! claims they are for: `associated-node:update` for those of the node that a service account's token names, `arbitrary-node:update`
//! for all. Kubernetes: `pkg/registry/resource/utils.go`.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::authorization::{AccessRequest, AccessedResource, authorize, refusal};
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::kinds::shared::field::invalid;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::{Object, Resource};
use crate::world::devices::CLAIMS;
use serde_json::Value;
use std::collections::BTreeSet;

/// The verbs of a write. Those who may use one may use the other: a role for a driver has both.
const WRITES: [&str; 2] = ["update", "patch"];

/// Refuses a change of the status that the user may not make.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let Some(user) = txn.user().filter(|_| request.kind.resource == CLAIMS && request.subresource == "status") else {
        return Ok(());
    };
    let (Some(old), new) = (request.old, &*request.object) else { return Ok(()) };
    let mut errors = FieldErrors::default();
    let status = FieldPath::root("status");
    let part =
        |object: &Object, field: &str| object.value_at(&["status", field]).filter(|part| !is_empty(part)).cloned();
    if ["allocation", "reservedFor"].iter().any(|field| part(old, field) != part(new, field)) {
        let accessed = AccessedResource { subresource: "binding".into(), ..claims("") };
        if let Some(why) = find_refusal(txn, user, &WRITES, accessed)? {
            let what = "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\"";
            errors.forbidden(&status, &format!("{what}, verb=\"update\" permission: {why}"));
        }
    }
    for driver in changed_drivers(new, old) {
        let is_associated = allocated_node(new).is_some_and(|node| user.is_on_node(node));
        let prefixes: &[&str] =
            if is_associated { &["associated-node:", "arbitrary-node:"] } else { &["arbitrary-node:"] };
        let verbs: Vec<String> =
            prefixes.iter().flat_map(|prefix| WRITES.map(|verb| format!("{prefix}{verb}"))).collect();
        let verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
        let name = driver.to_owned();
        let accessed = AccessedResource { subresource: "driver".into(), name, ..claims(&request.key.namespace) };
        if let Some(why) = find_refusal(txn, user, &verbs, accessed)? {
            let told: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}update")).collect();
            let what = "changing status.devices requires resource=\"resourceclaims/driver\"";
            let told = told.join(" ");
            errors.forbidden(&status.child("devices"), &format!("{what}, verb=\"[{told}]\" permission: {why}"));
        }
    }
    if errors.0.is_empty() {
        return Ok(());
    }
    Err(invalid(request.kind.kind, request.kind.resource, request.name(), &errors.0))
}

fn claims(namespace: &str) -> AccessedResource {
    let Resource(path) = Resource(CLAIMS);
    let (resource, group) = path.split_once('.').unwrap_or((path, ""));
    AccessedResource {
        group: group.into(),
        resource: resource.into(),
        namespace: namespace.into(),
        ..AccessedResource::default()
    }
}

/// Returns the refusal of the first verb, if the user may use none of them.
fn find_refusal(
    txn: &dyn Transaction,
    user: &User,
    verbs: &[&str],
    accessed: AccessedResource,
) -> ApiResult<Option<String>> {
    let mut first = None;
    for verb in verbs {
        let asked = AccessRequest::for_resource(verb, accessed.clone());
        let decision = authorize(txn, user, &asked)?;
        if decision.is_allowed {
            return Ok(None);
        }
        first.get_or_insert_with(|| refusal(&asked, user, &decision.reason).message);
    }
    Ok(first)
}

fn is_empty(part: &Value) -> bool {
    part.is_null() || part.as_array().is_some_and(Vec::is_empty)
}

/// Returns the drivers with a device whose status was added, removed or changed.
fn changed_drivers<'o>(new: &'o Object, old: &'o Object) -> BTreeSet<&'o str> {
    let devices = |object: &'o Object| object.items(&["status", "devices"]);
    let is_missing = |device: &&Value, others: &[Value]| !others.contains(device);
    let added = devices(new).iter().filter(|device| is_missing(device, devices(old)));
    let removed = devices(old).iter().filter(|device| is_missing(device, devices(new)));
    added.chain(removed).filter_map(|device| device["driver"].as_str()).collect()
}

/// Returns the node of an allocation that is for one node by its name.
fn allocated_node(claim: &Object) -> Option<&str> {
    let terms = claim.items(&["status", "allocation", "nodeSelector", "nodeSelectorTerms"]);
    let [term] = terms else { return None };
    let has_expressions = term["matchExpressions"].as_array().is_some_and(|list| !list.is_empty());
    let [field] = term["matchFields"].as_array()?.as_slice() else { return None };
    let is_name = field["key"] == "metadata.name" && field["operator"] == "In" && !has_expressions;
    match field["values"].as_array()?.as_slice() {
        [name] if is_name => name.as_str(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::apiserver::create::create;
    use crate::apiserver::update::{UpdatePart, update};
    use crate::apiserver::user::User;
    use crate::apiserver::{Api, ApiResult, WriteOptions, WriteReply};
    use crate::object::Object;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const SCHEDULER: &str = "system:kube-scheduler";
    const DRIVER: &str = "system:serviceaccount:default:driver";
    const CONTROLLER: &str = "system:serviceaccount:default:controller";

    fn write(api: &mut Api, object: &Value, part: Option<UpdatePart>) -> ApiResult<WriteReply> {
        let object = Object(object.clone());
        api.write(false, |txn| {
            let kind = txn.kinds().by_kind(object.api_version(), object.kind()).expect("a kind");
            match part {
                None => create(txn, kind, &object, &WriteOptions::default()),
                Some(part) => update(txn, kind, &object, part, &WriteOptions::default()),
            }
        })
    }

    /// Writes the status of the claim as a user, whose pod is on the node `n`.
    fn write_status(api: &mut Api, claim: &Value, user: &str, status: Value) -> Result<(), String> {
        let mut claim = claim.clone();
        claim["status"] = status;
        let node = BTreeMap::from([("authentication.kubernetes.io/node-name".to_owned(), vec!["n".to_owned()])]);
        api.set_user(Some(Arc::new(User { extra: node, ..User::impersonated(user, "", &[], BTreeMap::new()) })));
        let written = write(api, &claim, Some(UpdatePart::Status));
        api.set_user(None);
        written.map(drop).map_err(|status| status.message)
    }

    fn grant(api: &mut Api, name: &str, (user, resource): (&str, &str), verbs: &[&str]) {
        let rules = json!([{"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": verbs, "resourceNames": ["a.b"]}]);
        let (group, kind) = ("rbac.authorization.k8s.io", "ClusterRole");
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": kind, "name": name}, "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        [role, binding].iter().for_each(|object| drop(write(api, object, None).unwrap()));
    }

    fn allocation(node: &str) -> Value {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let results = json!([{"request": "r", "driver": "a.b", "pool": "p", "device": "d"}]);
        json!({"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}})
    }

    #[test]
    fn parts_of_the_status_need_their_own_permissions() {
        let mut api = Api::in_memory("test").unwrap();
        grant(&mut api, "node-driver", (DRIVER, "resourceclaims/driver"), &["associated-node:patch"]);
        grant(&mut api, "controller", (CONTROLLER, "resourceclaims/driver"), &["arbitrary-node:update"]);
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}}});
        write(&mut api, &claim, None).unwrap();
        let device = json!({"driver": "a.b", "pool": "p", "device": "d", "data": {"a": 1}});
        for (node, driver) in [("n", Ok(())), ("other", Err("[arbitrary-node:update]"))] {
            let allocated = json!({"allocation": allocation(node)});
            let in_use = json!({"allocation": allocation(node), "devices": [device]});
            let refused = write_status(&mut api, &claim, DRIVER, allocated.clone()).unwrap_err();
            assert_eq!(
                refused,
                "ResourceClaim.resource.k8s.io \"c\" is invalid: status: Forbidden: changing status.allocation or \
                 status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" permission: \
                 resourceclaims.resource.k8s.io is forbidden: User \"system:serviceaccount:default:driver\" cannot update resource \
                 \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
            );
            assert_eq!(write_status(&mut api, &claim, SCHEDULER, allocated.clone()), Ok(()));
            let refused = write_status(&mut api, &claim, SCHEDULER, in_use.clone()).unwrap_err();
            assert!(refused.contains("status.devices: Forbidden: changing status.devices requires"), "{refused}");
            assert!(refused.contains("resourceclaims.resource.k8s.io \"a.b\" is forbidden: User"), "{refused}");
            let by_driver = write_status(&mut api, &claim, DRIVER, in_use.clone());
            match driver {
                Ok(()) => assert_eq!(by_driver, Ok(()), "{node}"),
                Err(verbs) => {
                    assert!(by_driver.unwrap_err().contains(&format!("verb=\"{verbs}\" permission")), "{node}")
                }
            }
            assert_eq!(write_status(&mut api, &claim, CONTROLLER, in_use), Ok(()));
            // Taking the devices away needs the same permission.
            assert!(write_status(&mut api, &claim, SCHEDULER, allocated.clone()).is_err());
            assert_eq!(write_status(&mut api, &claim, CONTROLLER, allocated), Ok(()));
            assert_eq!(write_status(&mut api, &claim, SCHEDULER, json!({})), Ok(()));
        }
    }
}
