//! ServiceAccount: a pod has an account, its token at the usual place, and its pull secrets.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::node_pods::mentions_secrets;
use crate::apiserver::rules::names;
use crate::apiserver::transaction::Transaction;
use crate::kinds::pod::part_counts::TOKEN_VOLUME;
use crate::object::{Key, MIRROR, Object, Resource, Status};
use serde_json::{Value, json};
use std::sync::Arc;

/// Folder in which clients expect the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lists of containers, and the words for their items in errors.
const CONTAINERS: [(&str, &str); 3] =
    [("initContainers", "init container"), ("containers", "container"), ("ephemeralContainers", "ephemeral container")];

/// Gives a new pod its account, the token of it, and its pull secrets. A mirror pod stays as it is.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates("pods") {
        return Ok(());
    }
    if request.object.annotation(MIRROR).is_some() {
        return check_mirror_pod(request.object).map_err(|why| request.forbidden_early(why));
    }
    if request.object.text(&["spec", "serviceAccountName"]).is_none_or(str::is_empty) {
        request.object.set(&["spec", "serviceAccountName"], "default");
    }
    let name = request.object.text(&["spec", "serviceAccountName"]).unwrap_or_default().to_owned();
    request.object.set(&["spec", "serviceAccount"], name.as_str());
    let account = find_account(txn, request.object).map_err(|why| refuse_early(request, &why))?;
    let by_account =
        account.as_ref().and_then(|account| account.value_at(&["automountServiceAccountToken"])?.as_bool());
    let by_pod = request.object.value_at(&["spec", "automountServiceAccountToken"]).and_then(Value::as_bool);
    if by_pod.or(by_account).unwrap_or(true) {
        let volume = names::generate(TOKEN_VOLUME, txn.random());
        mount_token(request.object, &volume);
    }
    let Some(account) = account else { return Ok(()) };
    if request.object.items(&["spec", "imagePullSecrets"]).is_empty() {
        let secrets: Vec<Value> =
            account.items(&["imagePullSecrets"]).iter().map(|secret| json!({"name": secret["name"]})).collect();
        if !secrets.is_empty() {
            request.object.set(&["spec", "imagePullSecrets"], secrets);
        }
    }
    check_secrets(&account, request.object).map_err(|why| request.forbidden_early(&why))
}

/// Checks a valid pod again: policies and webhooks may have changed it. Also checks new ephemeral containers.
pub fn check(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates("pods") && (request.kind.resource.0, request.subresource) != ("pods", "ephemeralcontainers") {
        return Ok(());
    }
    if request.object.annotation(MIRROR).is_some() {
        return check_mirror_pod(request.object).map_err(|why| request.forbidden(why));
    }
    let account = find_account(txn, request.object).map_err(|error| match error {
        AccountError::Missing(why) => request.forbidden(&why),
        AccountError::Failed(status) => status,
    })?;
    match account {
        Some(account) => check_secrets(&account, request.object).map_err(|why| request.forbidden(&why)),
        None => Ok(()),
    }
}

enum AccountError {
    Missing(String),
    Failed(Status),
}

fn refuse_early(request: &AdmissionRequest<'_>, error: &AccountError) -> Status {
    match error {
        AccountError::Missing(why) => request.forbidden_early(why),
        AccountError::Failed(status) => status.clone(),
    }
}

/// The account of a pod. The controller makes `default` in every namespace; a pod need not wait for a controller that does not run yet.
fn find_account(txn: &dyn Transaction, pod: &Object) -> Result<Option<Arc<Object>>, AccountError> {
    let (namespace, name) = (pod.namespace(), pod.text(&["spec", "serviceAccountName"]).unwrap_or_default());
    let found =
        txn.get_shared(&Key::new(Resource("serviceaccounts"), namespace, name)).map_err(AccountError::Failed)?;
    if found.is_none() && name != "default" {
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(AccountError::Missing(why));
    }
    Ok(found)
}

/// Refuses a mirror pod that needs more of the API than the kubelet may give it.
fn check_mirror_pod(pod: &Object) -> Result<(), &'static str> {
    if pod.text(&["spec", "serviceAccountName"]).is_some_and(|name| !name.is_empty()) {
        return Err("a mirror pod may not reference service accounts");
    }
    if mentions_secrets(&pod.0["spec"]) {
        return Err("a mirror pod may not reference secrets");
    }
    let sources = pod.items(&["spec", "volumes"]).iter().filter_map(|volume| volume["projected"]["sources"].as_array());
    match sources.flatten().any(|source| source["serviceAccountToken"].is_object()) {
        true => Err("a mirror pod may not use ServiceAccountToken volume projections"),
        false => Ok(()),
    }
}

/// Refuses secrets that the account does not list, where it says so by an annotation.
fn check_secrets(account: &Object, pod: &Object) -> Result<(), String> {
    let is_enforced = account.annotation("kubernetes.io/enforce-mountable-secrets");
    if !is_enforced.is_some_and(|text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return Ok(());
    }
    let lists = |field: &str, name: &Value| account.items(&[field]).iter().any(|secret| secret["name"] == *name);
    let refuse = |what: String, list: &str| {
        Err(format!("{what} is not allowed because service account {} does not reference that {list}", account.name()))
    };
    for volume in pod.items(&["spec", "volumes"]) {
        let name = &volume["secret"]["secretName"];
        if volume["secret"].is_object() && !lists("secrets", name) {
            return refuse(format!("volume with secret.secretName={}", quoted(name)), "secret");
        }
    }
    for (list, word) in CONTAINERS {
        for container in pod.items(&["spec", list]) {
            let secrets = list_env_secrets(container);
            if let Some((by, name)) = secrets.iter().find(|(_, name)| !lists("secrets", name)) {
                let container = container["name"].as_str().unwrap_or_default();
                let secret = quoted(name);
                return refuse(
                    format!("{word} {container} with {by} referencing secret.secretName={secret}"),
                    "secret",
                );
            }
        }
    }
    for (index, secret) in pod.items(&["spec", "imagePullSecrets"]).iter().enumerate() {
        if !lists("imagePullSecrets", &secret["name"]) {
            return refuse(format!("imagePullSecrets[{index}].name={}", quoted(&secret["name"])), "imagePullSecret");
        }
    }
    Ok(())
}

/// The secrets of a container's variables: the field that refers to each one, and its name.
fn list_env_secrets(container: &Value) -> Vec<(String, &Value)> {
    let items = |field: &str| container[field].as_array().into_iter().flatten();
    let single = items("env").filter(|variable| variable["valueFrom"]["secretKeyRef"].is_object()).map(|variable| {
        let name = variable["name"].as_str().unwrap_or_default();
        (format!("envVar {name}"), &variable["valueFrom"]["secretKeyRef"]["name"])
    });
    let whole = items("envFrom").filter(|source| source["secretRef"].is_object());
    single.chain(whole.map(|source| ("envFrom".to_owned(), &source["secretRef"]["name"]))).collect()
}

fn quoted(name: &Value) -> String {
    format!("\"{}\"", name.as_str().unwrap_or_default())
}

fn mount_token(pod: &mut Object, generated: &str) {
    let named = |volume: &&Value| volume["name"].as_str().is_some_and(|name| name.starts_with(TOKEN_VOLUME));
    let known = pod.items(&["spec", "volumes"]).iter().find(named).and_then(|volume| volume["name"].as_str());
    let known = known.map(str::to_owned);
    let volume = known.as_deref().unwrap_or(generated);
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        let mut containers = pod.items(&["spec", list]).to_vec();
        for container in &mut containers {
            mounted |= mount(container, volume);
        }
        if !containers.is_empty() {
            pod.set(&["spec", list], containers);
        }
    }
    if mounted && known.is_none() {
        let mut volumes = pod.items(&["spec", "volumes"]).to_vec();
        volumes.push(token_volume(volume));
        pod.set(&["spec", "volumes"], volumes);
    }
}

/// Mounts the token unless the container has something else at its place.
fn mount(container: &mut Value, volume: &str) -> bool {
    let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
    if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
        return false;
    }
    mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
    container["volumeMounts"] = mounts.into();
    true
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]}})
}
