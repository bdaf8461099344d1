//! The roles and bindings of every cluster: `cluster-admin`, `admin`, `edit`, `view`, those of all users, of nodes and of controllers.
//!
//! Knows: a later version may have more of them, which an older state gets at the start of a server ([`reconciled`]). kloop's loops act
//! as the administrator: the roles of Kubernetes' controllers are there for programs that bind to them or take a loop's place.
//! Never: writes them itself.
//!
//! `default_roles.json` lists the roles (Kubernetes, "Using RBAC Authorization", default roles). It is JSON because each new state reads
//! it, and YAML takes longer to read. Beside the fields of a role, an entry may have `aggregateTo` (the role joins the rules of `admin`,
//! `edit` or `view`), `aggregates` (the role has the rules of those that join it), `subjects` (they have the role everywhere; an empty list
//! is a binding without subjects), `binding` (its name, if it is not the role's), `events` (the rule to write events) and `controller` (a
//! service account of kube-system has the role). Start reading at [`default_roles`].

use crate::object::{Object, Reason, Status};
use serde_json::{Value, json};

const ROLES: &str = include_str!("default_roles.json");
/// Beginning of the names of controllers' roles.
const CONTROLLER: &str = "system:controller:";
/// The annotation that keeps a role or binding as it is when it is false.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// Returns the default roles, each with its binding if it has one.
pub fn default_roles() -> Result<Vec<Object>, Status> {
    let roles: Vec<Value> = serde_json::from_str(ROLES)
        .map_err(|why| Status::new(Reason::InternalError, format!("default_roles.json: {why}")))?;
    Ok(roles.iter().flat_map(|entry| [Some(role(&roles, entry)), binding(entry)]).flatten().collect())
}

fn role(roles: &[Value], entry: &Value) -> Object {
    let kind = if entry["namespace"].is_string() { "Role" } else { "ClusterRole" };
    let metadata = metadata(entry, &entry["name"]);
    let mut role = json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "rules": rules(roles, entry)});
    if let Some(name) = entry["aggregateTo"].as_str() {
        role["metadata"]["labels"][aggregation_label(name)] = "true".into();
    }
    if let Some(name) = entry["aggregates"].as_str() {
        let selector = json!({"matchLabels": {aggregation_label(name): "true"}});
        role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
    }
    Object(role)
}

/// Returns the rules of a role with those that it aggregates: the loop that aggregates roles may not run yet.
fn rules(roles: &[Value], entry: &Value) -> Vec<Value> {
    let mut own = entry["rules"].as_array().cloned().unwrap_or_default();
    if entry["events"] == true {
        let verbs = ["create", "patch", "update"];
        own.push(json!({"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": verbs}));
    }
    let Some(name) = entry["aggregates"].as_str() else { return own };
    let parts = roles.iter().filter(|role| role["aggregateTo"] == name);
    parts.flat_map(|part| rules(roles, part)).collect()
}

fn binding(entry: &Value) -> Option<Object> {
    let subjects = match entry["controller"] == true {
        true => {
            let name = entry["name"].as_str()?.strip_prefix(CONTROLLER)?;
            json!([{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}])
        }
        false => entry.get("subjects")?.clone(),
    };
    let kind = if entry["namespace"].is_string() { "Role" } else { "ClusterRole" };
    let name = entry.get("binding").unwrap_or(&entry["name"]);
    let mut binding = json!({
        "apiVersion": API_VERSION, "kind": format!("{kind}Binding"), "metadata": metadata(entry, name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": entry["name"]},
    });
    if subjects.as_array().is_some_and(|list| !list.is_empty()) {
        binding["subjects"] = subjects;
    }
    Some(Object(binding))
}

fn metadata(entry: &Value, name: &Value) -> Value {
    let mut metadata = json!({
        "name": name,
        "annotations": {AUTOUPDATE: "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    });
    if entry["namespace"].is_string() {
        metadata["namespace"] = entry["namespace"].clone();
    }
    metadata
}

/// Returns an existing role or binding with the rules or subjects of the default that it lacks; `None` when it lacks none, or its
/// annotation says that it stays (kubernetes/pkg/registry/rbac/reconciliation). Rules of aggregated roles follow from their parts.
pub fn reconciled(existing: &Object, default: &Object) -> Option<Object> {
    let is_kept = existing.annotation(AUTOUPDATE) == Some("false");
    if is_kept || default.value_at(&["aggregationRule"]).is_some() {
        return None;
    }
    let mut reconciled = existing.clone();
    for field in ["rules", "subjects"] {
        let own = existing.items(&[field]);
        let lacking: Vec<Value> =
            default.items(&[field]).iter().filter(|item| !contains_item(own, item)).cloned().collect();
        if !lacking.is_empty() {
            reconciled.set(&[field], [own, &lacking].concat());
        }
    }
    (reconciled != *existing).then_some(reconciled)
}

/// Whether a list has a value, whose fields may have been completed.
fn contains_item(list: &[Value], wanted: &Value) -> bool {
    let fields = wanted.as_object().into_iter().flatten();
    list.iter().any(|item| fields.clone().all(|(name, value)| item[name] == *value))
}

fn aggregation_label(name: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{name}")
}
