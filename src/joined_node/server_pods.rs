//! The pods of this node as the server has them, and the last reports to the server about each.
//!
//! Never: sends or stores anything. Start reading at [`ServerPods`].

use crate::object::{IgnorePoison, Key, Object};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// A pod at the server.
#[derive(Clone, Debug, Default)]
pub struct ServerPod {
    /// Its name.
    pub key: Option<Key>,
    /// The last status that was sent to the server; at first the status that the server had.
    pub known_status: Value,
    /// Whether it is to end.
    pub is_deleting: bool,
    /// Whether the node has stored it. Once it is gone from there, its processes have ended.
    pub is_stored: bool,
    /// Whether the server was asked to remove it with a grace period of 0.
    pub is_removed: bool,
}

/// The pods by uid.
#[derive(Default)]
pub struct ServerPods {
    by_uid: Mutex<HashMap<String, ServerPod>>,
}

impl ServerPods {
    /// Adds a pod of the server. Returns whether the node stores it: it does not if the pod's processes have ended permanently.
    pub fn put(&self, pod: &Object, key: &Key, is_local: bool) -> bool {
        let mut pods = self.lock();
        let known = pods.entry(pod.uid().to_owned()).or_insert_with(|| ServerPod {
            key: Some(key.clone()),
            known_status: pod.0["status"].clone(),
            ..ServerPod::default()
        });
        known.is_deleting = pod.deletion().is_some();
        // It was stored and is gone: the kubelet was done with it.
        let is_finished = known.is_deleting && known.is_stored && !is_local;
        known.is_stored |= !is_finished;
        !is_finished
    }

    /// Removes a pod that no longer exists at the server.
    pub fn remove(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Returns a pod.
    pub fn get(&self, uid: &str) -> Option<ServerPod> {
        self.lock().get(uid).cloned()
    }

    /// Changes a pod, if it exists.
    pub fn change(&self, uid: &str, change: impl FnOnce(&mut ServerPod)) {
        if let Some(pod) = self.lock().get_mut(uid) {
            change(pod);
        }
    }

    /// Returns the pods that are to be removed at the server, since the node is done with them. `is_local`: whether the node stores a pod.
    pub fn finished(&self, is_local: impl Fn(&Key, &str) -> bool) -> Vec<(String, Key)> {
        let pods = self.lock();
        let done = pods.iter().filter(|(_, pod)| pod.is_deleting && pod.is_stored && !pod.is_removed);
        let named = done.filter_map(|(uid, pod)| Some((uid.clone(), pod.key.clone()?)));
        named.filter(|(uid, key)| !is_local(key, uid)).collect()
    }

    /// Returns the uids that the server has.
    pub fn uids(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ServerPod>> {
        self.by_uid.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use serde_json::json;

    #[test]
    fn pod_is_finished_when_it_is_gone_from_the_node() {
        let pods = ServerPods::default();
        let key = Key::new(Resource("pods"), "default", "a");
        let mut pod = Object(json!({"metadata": {"name": "a", "uid": "1"}, "status": {"phase": "Pending"}}));
        assert!(pods.put(&pod, &key, false));
        assert!(pods.finished(|_, _| false).is_empty(), "nobody has deleted it");
        pod.set(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        assert!(pods.put(&pod, &key, true));
        assert!(pods.finished(|_, _| true).is_empty(), "its processes run");
        assert_eq!(pods.finished(|_, _| false), [("1".to_owned(), key.clone())]);
        // A late event does not bring it back.
        assert!(!pods.put(&pod, &key, false));
        pods.change("1", |pod| pod.is_removed = true);
        assert!(pods.finished(|_, _| false).is_empty());
        pods.remove("1");
        assert!(pods.uids().is_empty());
        // After a restart it is unknown whether its processes have ended, so the kubelet checks it.
        assert!(pods.put(&pod, &key, false));
    }
}
