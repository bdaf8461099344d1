//! ServiceAccount: a pod has an account, and its token at the usual place.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::rules::names;
use crate::apiserver::transaction::Transaction;
use crate::object::{Key, MIRROR, Object, Resource, Status};
use serde_json::{Value, json};

/// Folder in which clients look for the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Admits a write.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates("pods") || request.object.annotation(MIRROR).is_some() {
        return Ok(());
    }
    if request.object.text(&["spec", "serviceAccountName"]).is_none_or(str::is_empty) {
        request.object.set(&["spec", "serviceAccountName"], "default");
    }
    let name = request.object.text(&["spec", "serviceAccountName"]).unwrap_or_default().to_owned();
    request.object.set(&["spec", "serviceAccount"], name.as_str());
    let namespace = request.object.namespace().to_owned();
    let account = txn.get_shared(&Key::new(Resource("serviceaccounts"), &namespace, &name))?;
    // The controller makes `default` in every namespace; a pod need not wait for a controller that does not run yet.
    if account.is_none() && name != "default" {
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(Status::forbidden(request.kind.resource, request.object.name(), &why));
    }
    let by_account =
        account.as_ref().and_then(|account| account.value_at(&["automountServiceAccountToken"])?.as_bool());
    let by_pod = request.object.value_at(&["spec", "automountServiceAccountToken"]).and_then(Value::as_bool);
    if by_pod.or(by_account).unwrap_or(true) {
        let volume = names::generate("kube-api-access-", txn.random());
        mount_token(request.object, &volume);
    }
    Ok(())
}

fn mount_token(pod: &mut Object, volume: &str) {
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
    if mounted {
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
