//! An index of the objects that the pods of each node need, updated from the log of changes. The node authorizer uses it for each request
//! of a kubelet.
//!
//! Knows: Kubernetes' authorizer keeps the same as a graph. Never: knows a change that is not committed. Start reading at [`NodePods`].

use crate::apiserver::ApiResult;
use crate::apiserver::stored::{object_of, refused};
use crate::object::{IgnorePoison, Key, Object, Resource};
use crate::store::{ChangeKind, StoreError, StoreRead, StoreResult, StoredObject};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

const PODS: Resource = Resource("pods");
/// Entries of the log that are read at once, and after how many all pods are read again instead.
const BATCH: usize = 1000;
const MAX_ENTRIES: u64 = 20_000;

/// Fields of a pod with the name of a Secret, and with that of a ConfigMap.
const SECRET_FIELDS: [&str; 6] =
    ["secret", "secretRef", "secretKeyRef", "nodePublishSecretRef", "azureFile", "imagePullSecrets"];
const CONFIG_MAP_FIELDS: [&str; 3] = ["configMap", "configMapRef", "configMapKeyRef"];

/// An object that a pod needs: its resource and name. It is in the pod's namespace.
type NeededObject = (&'static str, String);

/// The needs of all pods, which the connections of a process share.
#[derive(Clone, Default)]
pub struct NodePods(Arc<Mutex<Option<KnownPods>>>);

impl NodePods {
    /// Whether a pod of this node and namespace needs an object. The pods are those of the snapshot, or newer.
    pub(in crate::apiserver) fn need(
        &self,
        read: &dyn StoreRead,
        node: &str,
        namespace: &str,
        (resource, name): (&'static str, &str),
    ) -> ApiResult<bool> {
        let mut known = self.0.lock().ignore_poison();
        let pods = match known.take() {
            Some(pods) => pods.catch_up(read),
            None => KnownPods::load(read),
        };
        let pods = known.insert(pods.map_err(|error| refused(&error))?);
        Ok(pods.need(node, namespace, &(resource, name.to_owned())))
    }
}

/// The needs of pods at a revision.
struct KnownPods {
    revision: u64,
    nodes: HashMap<Key, String>,
    by_node: HashMap<String, HashMap<Key, BTreeSet<NeededObject>>>,
}

impl KnownPods {
    fn load(read: &dyn StoreRead) -> StoreResult<KnownPods> {
        let mut known = KnownPods { revision: read.revision()?, nodes: HashMap::new(), by_node: HashMap::new() };
        read.list(PODS, None)?.iter().for_each(|pod| known.put(pod));
        Ok(known)
    }

    fn catch_up(mut self, read: &dyn StoreRead) -> StoreResult<KnownPods> {
        let newest = read.revision()?;
        if newest.saturating_sub(self.revision) > MAX_ENTRIES {
            return KnownPods::load(read);
        }
        while self.revision < newest {
            let entries = match read.log_after(self.revision, BATCH) {
                Err(StoreError::Expired { .. }) => return KnownPods::load(read),
                entries => entries?,
            };
            let Some(last) = entries.last() else { break };
            self.revision = last.revision;
            for entry in entries.iter().filter(|entry| entry.change.stored().key.resource == PODS) {
                match &entry.change {
                    ChangeKind::Put(pod) => self.put(pod),
                    ChangeKind::Removed(pod) => self.remove(&pod.key),
                }
            }
        }
        Ok(self)
    }

    fn put(&mut self, stored: &StoredObject) {
        self.remove(&stored.key);
        // A pod that cannot be read gives its node no rights.
        let Ok(pod) = object_of(stored) else { return };
        let Some(node) = pod.text(&["spec", "nodeName"]).filter(|node| !node.is_empty()) else { return };
        self.nodes.insert(stored.key.clone(), node.to_owned());
        self.by_node.entry(node.to_owned()).or_default().insert(stored.key.clone(), needs_of_pod(&pod));
    }

    fn remove(&mut self, key: &Key) {
        let Some(node) = self.nodes.remove(key) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    fn need(&self, node: &str, namespace: &str, needed: &NeededObject) -> bool {
        let pods = self.by_node.get(node).into_iter().flatten();
        pods.into_iter().any(|(key, needs)| *key.namespace == *namespace && needs.contains(needed))
    }
}

/// Returns the objects that a pod needs.
pub fn needs_of_pod(pod: &Object) -> BTreeSet<NeededObject> {
    let mut needs = BTreeSet::new();
    let spec = &pod.0["spec"];
    each_name(spec, &SECRET_FIELDS, &["name", "secretName"], &mut |name| {
        needs.insert(("secrets", name.to_owned()));
    });
    each_name(spec, &CONFIG_MAP_FIELDS, &["name"], &mut |name| {
        needs.insert(("configmaps", name.to_owned()));
    });
    let mut need = |resource, name: Option<&str>| {
        needs.extend(name.map(|name| (resource, name.to_owned())));
    };
    need("serviceaccounts", pod.text(&["spec", "serviceAccountName"]));
    for volume in pod.items(&["spec", "volumes"]) {
        need("persistentvolumeclaims", volume["persistentVolumeClaim"]["claimName"].as_str());
        if !volume["ephemeral"].is_null() {
            let own = format!("{}-{}", pod.name(), volume["name"].as_str().unwrap_or_default());
            need("persistentvolumeclaims", Some(&own));
        }
    }
    let claims = pod.items(&["spec", "resourceClaims"]).iter().chain(pod.items(&["status", "resourceClaimStatuses"]));
    claims.for_each(|claim| need("resourceclaims", claim["resourceClaimName"].as_str()));
    need("resourceclaims", pod.text(&["status", "extendedResourceClaimStatus", "resourceClaimName"]));
    needs
}

/// Whether the spec of a pod names any Secret.
pub fn mentions_secrets(spec: &Value) -> bool {
    let mut is_any = false;
    each_name(spec, &SECRET_FIELDS, &["name", "secretName"], &mut |_| is_any = true);
    is_any
}

/// Calls `found` with the value of each field with one of these names, in an object or in a list of objects.
fn each_name(value: &Value, fields: &[&str], names: &[&str], found: &mut dyn FnMut(&str)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| each_name(item, fields, names, found)),
        Value::Object(object) => {
            for (field, value) in object {
                if fields.contains(&field.as_str()) {
                    let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                    let texts = items.iter().flat_map(|item| names.iter().filter_map(|name| item[*name].as_str()));
                    texts.for_each(&mut *found);
                }
                each_name(value, fields, names, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;
    use crate::object::Time;
    use serde_json::json;
    use std::time::Duration;

    fn pod(name: &str, node: &str, secret: &str) -> Object {
        Object(json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": {
            "nodeName": node, "serviceAccountName": "web", "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]}],
            "volumes": [
                {"name": "c", "configMap": {"name": "settings"}},
                {"name": "p", "projected": {"sources": [{"configMap": {"name": "root"}}, {"secret": {"name": "part"}}]}},
                {"name": "s", "secret": {"secretName": "mounted"}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "e", "ephemeral": {}},
            ],
            "resourceClaims": [{"name": "r", "resourceClaimName": "gpu"}],
        }}))
    }

    fn change(api: &mut Api, pod: &Object, is_there: bool) {
        let key = Key::new(PODS, pod.namespace(), pod.name());
        let mut txn = api.store_mut().write(Duration::from_secs(1)).unwrap();
        match is_there {
            true => drop(txn.put(&key, pod.uid(), |at| pod.text_at(at), "test", Time::UNIX_EPOCH).unwrap()),
            false => drop(txn.remove(&key, |at| pod.text_at(at), "test", Time::UNIX_EPOCH).unwrap()),
        }
        txn.commit().unwrap();
    }

    #[test]
    fn pods_need_what_they_name() {
        let needs = needs_of_pod(&pod("x", "n", "env"));
        let of = |resource: &str| -> Vec<&str> {
            needs.iter().filter(|(one, _)| *one == resource).map(|(_, name)| name.as_str()).collect()
        };
        assert_eq!(of("secrets"), ["env", "mounted", "part", "pull"]);
        assert_eq!(of("configmaps"), ["root", "settings"]);
        assert_eq!(of("persistentvolumeclaims"), ["data", "x-e"]);
        assert_eq!((of("serviceaccounts"), of("resourceclaims")), (vec!["web"], vec!["gpu"]));
    }

    #[test]
    fn needs_follow_the_pods() {
        let mut api = Api::in_memory("test").unwrap();
        let pods = NodePods::default();
        let need = |api: &Api, node: &str, namespace: &str, secret: &str| {
            pods.need(&api.store().read().unwrap(), node, namespace, ("secrets", secret)).unwrap()
        };
        assert!(!need(&api, "n", "a", "one"));
        change(&mut api, &pod("x", "n", "one"), true);
        assert!(need(&api, "n", "a", "one") && !need(&api, "m", "a", "one") && !need(&api, "n", "b", "one"));
        change(&mut api, &pod("x", "n", "two"), true);
        change(&mut api, &pod("y", "m", "one"), true);
        assert!(!need(&api, "n", "a", "one") && need(&api, "n", "a", "two") && need(&api, "m", "a", "one"));
        change(&mut api, &pod("x", "n", "two"), false);
        assert!(!need(&api, "n", "a", "two") && need(&api, "m", "a", "one"));
    }
}
