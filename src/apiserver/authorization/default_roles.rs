//! The roles and bindings of every cluster: `cluster-admin`, `admin`, `edit`, `view`, those of all users, of nodes and of controllers.

use crate::object::{Object, Reason, Status, yaml};
use serde_json::{Value, json};

const ROLES: &str = include_str!("default_roles.yaml");
/// Beginning of the names of controllers' roles.
const CONTROLLER: &str = "system:controller:";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// Returns the default roles, each with its binding if it has one.
pub fn default_roles() -> Result<Vec<Object>, Status> {
    let wrong = |why: String| Status::new(Reason::InternalError, format!("default roles: {why}"));
    let documents = yaml::documents(ROLES).map_err(|why| wrong(why.to_string()))?;
    let roles = documents.first().and_then(|document| document.value.as_array());
    let roles = roles.ok_or_else(|| wrong("no list".into()))?;
    Ok(roles.iter().flat_map(|entry| [Some(role(roles, entry)), binding(entry)]).flatten().collect())
}

fn role(roles: &[Value], entry: &Value) -> Object {
    let mut role = json!({
        "apiVersion": API_VERSION, "kind": "ClusterRole", "metadata": metadata(entry), "rules": rules(roles, entry),
    });
    if let Some(name) = entry["aggregateTo"].as_str() {
        role["metadata"]["labels"][aggregation_label(name)] = "true".into();
    }
    if let Some(name) = entry["aggregates"].as_str() {
        let selector = json!({"matchLabels": {aggregation_label(name): "true"}});
        role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
    }
    Object(role)
}

/// The rules of a role. The rules that it aggregates are there from the start: no control plane may run.
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
    Some(Object(json!({
        "apiVersion": API_VERSION, "kind": "ClusterRoleBinding", "metadata": metadata(entry),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": entry["name"]},
        "subjects": subjects,
    })))
}

fn metadata(entry: &Value) -> Value {
    json!({
        "name": entry["name"],
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    })
}

fn aggregation_label(name: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{name}")
}
