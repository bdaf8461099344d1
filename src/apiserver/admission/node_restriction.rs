//! NodeRestriction: a kubelet changes its own Node, the pods that are bound to it, and its own leases, ResourceSlices and CSINode alone.
//!
//! Not on by default in Kubernetes; every tool that sets clusters up turns it on. Only users of the group `system:nodes` are checked.

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::authorization::node::node_of;
use crate::apiserver::read::exact;
use crate::apiserver::transaction::Transaction;
use crate::kinds::pod::api_references::find_api_reference;
use crate::object::{Key, MIRROR, Object, Resource, Status};
use serde_json::Value;
use std::collections::BTreeSet;

/// Domains whose labels a kubelet may not choose freely.
const PROTECTED: [&str; 2] = ["kubernetes.io", "k8s.io"];
/// Labels and namespaces of labels in these domains that it may set.
const OWN_LABELS: [&str; 14] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/windows-build",
];
const OWN_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Admits a write or a deletion.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    // The loop that is this machine's kubelet is not a user of the transaction.
    let Some(user) = txn.user() else { return Ok(()) };
    let Some(node) = node_of(user) else { return Ok(()) };
    let why = match (request.kind.resource.0, request.subresource) {
        _ if node.is_empty() => Some(format!("could not determine node from user {:?}", user.name)),
        ("pods", "") => check_pod(txn, node, request)?,
        ("pods", "status") => check_pod_status(node, request),
        ("pods", "eviction") => {
            let what = format!("node {node} can only evict pods with spec.nodeName set to itself");
            (!is_bound(request.old, node)).then_some(what)
        }
        ("pods", subresource) => {
            Some(format!("unexpected pod subresource {subresource:?}, only 'status' and 'eviction' are allowed"))
        }
        ("nodes", _) => check_node(node, request),
        ("leases.coordination.k8s.io", _) => {
            let is_own = request.name() == node && request.namespace() == "kube-node-lease";
            let what = "can only access node lease with the same name as the requesting node";
            (!is_own).then(|| what.to_owned())
        }
        ("resourceslices.resource.k8s.io", _) => check_slice(node, request),
        ("csinodes.storage.k8s.io", _) => {
            let what = "can only access CSINode with the same name as the requesting node";
            (request.name() != node).then(|| what.to_owned())
        }
        _ => None,
    };
    match why {
        None => Ok(()),
        Some(why) => Err(Status::forbidden(request.kind.resource, request.name(), &why)),
    }
}

fn is_bound(object: Option<&Object>, node: &str) -> bool {
    object.is_some_and(|object| object.text(&["spec", "nodeName"]) == Some(node))
}

fn check_pod(txn: &dyn Transaction, node: &str, request: &AdmissionRequest<'_>) -> ApiResult<Option<String>> {
    Ok(match request.operation {
        Operation::Create => match check_new_pod(node, request.object) {
            None => check_owner_uid(txn, node, request.object)?,
            why => why,
        },
        Operation::Delete => (!is_bound(request.old, node))
            .then(|| format!("node {node:?} can only delete pods with spec.nodeName set to itself")),
        other => {
            let operation = format!("{other:?}").to_uppercase();
            Some(format!("unexpected operation {operation:?}, node {node:?} can only create and delete mirror pods"))
        }
    })
}

/// Compares the uid of a mirror pod's owner with that of the Node.
fn check_owner_uid(txn: &dyn Transaction, node: &str, pod: &Object) -> ApiResult<Option<String>> {
    let object = exact(txn, &Key::new(Resource("nodes"), "", node))?;
    let owner = pod.items(&["metadata", "ownerReferences"]).first().and_then(|owner| owner["uid"].as_str());
    let owner = owner.unwrap_or_default();
    let uid = object.uid();
    Ok((owner != uid).then(|| format!("node {node} UID mismatch: expected {uid} got {owner}")))
}

fn check_new_pod(node: &str, pod: &Object) -> Option<String> {
    if pod.annotation(MIRROR).is_none() {
        return Some(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"));
    }
    if !is_bound(Some(pod), node) {
        return Some(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod.items(&["metadata", "ownerReferences"]);
    match owners {
        [owner] if owner["kind"] == "Node" && owner["name"] == node && owner["controller"] == true => {
            if owner["blockOwnerDeletion"] == true {
                return Some(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
            }
        }
        [] => {
            return Some(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
        _ => {
            return Some(format!("node {node:?} can only create pods with a single owner reference set to itself"));
        }
    }
    find_api_reference(pod).map(|resource| format!("node {node} can not create pods that reference {resource}"))
}

/// Refuses slices of other nodes. The authorizer does not see the content of a new one, nor each of several that are deleted.
fn check_slice(node: &str, request: &AdmissionRequest<'_>) -> Option<String> {
    let (verb, slice) = match request.operation {
        Operation::Create => ("create", Some(&*request.object)),
        Operation::Delete => ("delete", request.old),
        _ => return None,
    };
    let what = format!("can only {verb} ResourceSlice with the same NodeName as the requesting node");
    (!is_bound(slice, node)).then_some(what)
}

fn check_pod_status(node: &str, request: &AdmissionRequest<'_>) -> Option<String> {
    if !is_bound(request.old, node) {
        return Some(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    let labels = |object: &Object| object.value_at(&["metadata", "labels"]).cloned();
    if request.old.is_none_or(|old| labels(old) != labels(request.object)) {
        return Some(format!("node {node:?} cannot update labels through pod status"));
    }
    // By them a kubelet may read claims.
    let claims = |object: &Object, field: &str| object.value_at(&["status", field]).cloned();
    let is_changed = |field: &str| request.old.is_some_and(|old| claims(old, field) != claims(request.object, field));
    let changed = ["resourceClaimStatuses", "extendedResourceClaimStatus"].into_iter().any(is_changed);
    changed.then(|| format!("node {node:?} cannot update resource claim statues"))
}

fn check_node(node: &str, request: &AdmissionRequest<'_>) -> Option<String> {
    if request.name() != node {
        return Some(format!("node {node:?} is not allowed to modify node {:?}", request.name()));
    }
    let Some(new) = request.new_object() else {
        return Some(format!("node {node:?} is not allowed to delete nodes"));
    };
    let label = |object: &Object, key: &str| object.label(key).map(str::to_owned);
    let keys: BTreeSet<&str> =
        new.labels().chain(request.old.into_iter().flat_map(Object::labels)).map(|(key, _)| key).collect();
    let changed = keys.into_iter().filter(|key| request.old.and_then(|old| label(old, key)) != label(new, key));
    let forbidden: Vec<&str> = changed.filter(|key| !is_own_label(key)).collect();
    if !forbidden.is_empty() {
        let verb = if request.old.is_none() { "set the following labels" } else { "modify labels" };
        return Some(format!("is not allowed to {verb}: {}", forbidden.join(", ")));
    }
    let old = request.old?;
    let taints = |object: &Object| object.value_at(&["spec", "taints"]).cloned().unwrap_or(Value::Null);
    if taints(old) != taints(new) {
        return Some(format!("node {node:?} is not allowed to modify taints"));
    }
    let owners = |object: &Object| object.items(&["metadata", "ownerReferences"]).to_vec();
    (owners(old) != owners(new)).then(|| format!("node {node:?} is not allowed to modify ownerReferences"))
}

/// Whether a kubelet may set a label: its domain is not one of Kubernetes' own, or the label is meant for kubelets.
fn is_own_label(key: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else { return true };
    let is_in =
        |domain: &str| namespace == domain || namespace.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    !PROTECTED.iter().any(|domain| is_in(domain))
        || OWN_LABELS.contains(&key)
        || OWN_NAMESPACES.iter().any(|own| is_in(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::authorization::authorize;
    use crate::apiserver::authorization::testing::request;
    use crate::apiserver::create::create;
    use crate::apiserver::update::{UpdatePart, update};
    use crate::apiserver::user::User;
    use crate::apiserver::{Api, WriteOptions};
    use crate::kinds;
    use crate::object::{Key, Resource};
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn add(api: &mut Api, object: Value) -> Result<(), String> {
        let object = Object(object);
        let kind = kinds::by_kind(object.api_version(), object.kind()).unwrap();
        let made = api.write(false, |txn| create(txn, kind, &object, &WriteOptions::default()));
        made.map(|_| ()).map_err(|status| status.message)
    }

    fn kubelet(name: &str) -> User {
        User::impersonated(&format!("system:node:{name}"), "", &["system:nodes".to_owned()], BTreeMap::new())
    }

    fn slice(name: &str, node: &str) -> Value {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": {
            "driver": "gpu.example.com", "nodeName": node, "pool": {"name": name, "generation": 0, "resourceSliceCount": 1}}})
    }

    fn cluster() -> Api {
        let mut api = Api::in_memory("test").unwrap();
        for name in ["a", "b"] {
            add(&mut api, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})).unwrap();
        }
        for name in ["used", "other"] {
            let metadata = json!({"name": name, "namespace": "default"});
            add(&mut api, json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).unwrap();
        }
        let volumes = json!([{"name": "v", "secret": {"secretName": "used"}}]);
        let claims = json!([{"name": "g", "resourceClaimName": "gpu"}]);
        let spec = json!({"nodeName": "a", "containers": [{"name": "c", "image": "x"}], "volumes": volumes, "resourceClaims": claims});
        add(&mut api, slice("s", "a")).unwrap();
        add(
            &mut api,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}),
        )
        .unwrap();
        api
    }

    #[test]
    fn kubelet_reads_what_its_pods_need() {
        let api = cluster();
        let stranger = |node: &str| format!("no relationship found between node '{node}' and this object");
        let by_field = |what: &str| format!("can only {what} field selector");
        let (pods, slices) = (
            by_field("list/watch pods with spec.nodeName"),
            by_field("list/watch/deletecollection resourceslices with nodeName"),
        );
        for (node, text, expected) in [
            ("a", "get secrets used in default", "allowed"),
            ("b", "get secrets used in default", &stranger("b")),
            ("a", "get secrets other in default", &stranger("a")),
            ("a", "list secrets in default", "No Object name found"),
            ("a", "update secrets used in default", "can only read resources of this type"),
            ("a", "get pods p in default", "allowed"),
            ("b", "get pods p in default", &stranger("b")),
            ("a", "list pods in default", &pods),
            ("a", "watch pods with spec.nodeName=b", &pods),
            ("a", "watch pods with spec.nodeName==a,status.phase=Running", "allowed"),
            ("a", "list pods with spec.nodeName!=a", &pods),
            ("a", "watch pods p in default with metadata.name=p", "allowed"),
            ("b", "watch pods p in default with metadata.name=p", &stranger("b")),
            ("a", "get nodes a", "allowed"),
            ("a", "get nodes b", "node 'a' cannot read 'b', only its own Node object"),
            ("a", "list nodes", "node 'a' cannot read all nodes, only its own Node object"),
            ("a", "list services in default", "allowed"),
            ("a", "delete configmaps x in default", "can only read resources of this type"),
            ("a", "get resourceclaims.resource.k8s.io gpu in default", "allowed"),
            ("b", "get resourceclaims.resource.k8s.io gpu in default", &stranger("b")),
            ("a", "list resourceclaims.resource.k8s.io in default", "can only get individual resources of this type"),
            ("a", "delete resourceslices.resource.k8s.io s", "allowed"),
            ("b", "delete resourceslices.resource.k8s.io s", &stranger("b")),
            ("a", "list resourceslices.resource.k8s.io", &slices),
            ("a", "list resourceslices.resource.k8s.io with spec.nodeName=a", "allowed"),
        ] {
            let decision = api.read_view(|txn| authorize(txn, &kubelet(node), &request(text))).unwrap();
            let said = if decision.is_allowed { "allowed" } else { &decision.reason };
            assert_eq!(said, expected, "{node}: {text}");
        }
    }

    #[test]
    fn kubelet_changes_its_own_objects_alone() {
        let mut api = cluster();
        api.set_user(Some(Arc::new(kubelet("a"))));
        // The taint of a new node, which its kubelet may not remove.
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let node = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": [taint]}});
        let mut change = |object: Value| -> String {
            let object = Object(object);
            let written = api.write(false, |txn| {
                update(txn, &kinds::node::KIND, &object, UpdatePart::Main, &WriteOptions::default())
            });
            written.map_or_else(|status| status.message, |_| "done".to_owned())
        };
        assert_eq!(change(node("a", json!({"own": "1", "kubernetes.io/os": "linux"}))), "done");
        assert_eq!(
            change(node("b", json!({"own": "1"}))),
            "nodes \"b\" is forbidden: node \"a\" is not allowed to modify node \"b\""
        );
        let told = change(node(
            "a",
            json!({"node-restriction.kubernetes.io/x": "1", "own": "1", "kubernetes.io/os": "linux"}),
        ));
        assert_eq!(told, "nodes \"a\" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/x");
        let mut tainted = node("a", json!({"own": "1", "kubernetes.io/os": "linux"}));
        tainted["spec"] = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        assert_eq!(change(tainted), "nodes \"a\" is forbidden: node \"a\" is not allowed to modify taints");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q", "namespace": "default"},
            "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "x"}]}});
        let told = add(&mut api, pod).unwrap_err();
        assert_eq!(
            told,
            "pods \"q\" is forbidden: pod does not have \"kubernetes.io/config.mirror\" annotation, node \"a\" can only create \
             mirror pods"
        );
        let told = add(&mut api, slice("t", "b")).unwrap_err();
        assert!(
            told.ends_with("can only create ResourceSlice with the same NodeName as the requesting node"),
            "{told}"
        );
        assert_eq!(add(&mut api, slice("t", "a")), Ok(()));
    }

    #[test]
    fn kubelet_gains_no_relation_by_what_it_writes() {
        let mut api = cluster();
        api.set_user(Some(Arc::new(kubelet("a"))));
        let node = api.read_view(|txn| exact(txn, &Key::new(Resource("nodes"), "", "a"))).unwrap();
        let uid = node.uid();
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": uid, "controller": true});
        let owned = |owner: &Value, volume: Value| {
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "m", "namespace": "default", "annotations": {MIRROR: "x"}, "ownerReferences": [owner]},
                "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "x"}], "volumes": [volume]}})
        };
        let mirror = |volume: Value| owned(&owner, volume);
        let mut other = owner.clone();
        other["uid"] = "other".into();
        let told = add(&mut api, owned(&other, json!({"name": "v", "emptyDir": {}}))).unwrap_err();
        assert_eq!(told, format!("pods \"m\" is forbidden: node a UID mismatch: expected {uid} got other"));
        let map = mirror(json!({"name": "v", "configMap": {"name": "any"}}));
        let told = add(&mut api, map).unwrap_err();
        assert_eq!(told, "pods \"m\" is forbidden: node a can not create pods that reference configmaps");
        assert_eq!(add(&mut api, mirror(json!({"name": "v", "emptyDir": {}}))), Ok(()));
        let written = api.write(false, |txn| {
            let key = Key::new(Resource("pods"), "default", "p");
            let mut pod = txn.get(&key)?.expect("a pod");
            pod.set(&["status", "resourceClaimStatuses"], json!([{"name": "g", "resourceClaimName": "any"}]));
            update(txn, &kinds::pod::KIND, &pod, UpdatePart::Status, &WriteOptions::default())
        });
        let told = written.unwrap_err().message;
        assert_eq!(told, "pods \"p\" is forbidden: node \"a\" cannot update resource claim statues");
    }
}
