//! Writes copies of the server's objects to the node's state, each with the uid that it has at the server.
//!
//! Knows: the state's own pipeline is not asked, because the server has decoded, admitted and validated these objects already.
//! Never: changes an object that is not a copy. Start reading at [`CopyTxn`].

use super::merge;
use crate::apiserver::{JOINED_NODE, NETWORK};
use crate::kinds::{self, Kind};
use crate::object::{Key, Object, Resource, Time};
use crate::store::{CommitError, StoreError, StoreRead, Txn};
use serde_json::json;
use std::collections::HashSet;

/// The writer's name in the log of the state.
pub const ACTOR: &str = "mirror";

/// A transaction of copies.
pub struct CopyTxn<'a> {
    txn: Txn<'a>,
    now: Time,
    has_changed: bool,
}

/// Returns the key of an object of a kind.
pub fn key_of(kind: &Kind, object: &Object) -> Key {
    let namespace = if kind.namespaced { object.namespace() } else { "" };
    Key::new(kind.resource, namespace, object.name())
}

impl<'a> CopyTxn<'a> {
    /// Writes in this transaction.
    pub fn new(txn: Txn<'a>) -> CopyTxn<'a> {
        CopyTxn { txn, now: Time::now(), has_changed: false }
    }

    /// Returns the object in the state.
    pub fn get(&self, key: &Key) -> Result<Option<Object>, StoreError> {
        let stored = self.txn.get(key)?;
        Ok(stored.and_then(|stored| serde_json::from_str(&stored.body).ok()).map(Object))
    }

    /// Writes an object, unless the state has the same. `local`: the one in the state.
    pub fn put(
        &mut self,
        kind: &Kind,
        key: &Key,
        mut object: Object,
        local: Option<&Object>,
    ) -> Result<(), StoreError> {
        // Items of lists have neither.
        object.set(&["apiVersion"], kind.api_version());
        object.set(&["kind"], kind.kind);
        match local {
            Some(local) if local.uid() != object.uid() => self.remove_local(key, local)?,
            Some(local) if !merge::differs(local, &object) => return Ok(()),
            _ => {}
        }
        let uid = object.uid().to_owned();
        self.txn.put(key, &uid, |revision| object.text_at(revision), ACTOR, self.now)?;
        self.has_changed = true;
        Ok(())
    }

    /// Removes an object with this uid; another one of the same name stays.
    pub fn remove(&mut self, key: &Key, uid: &str) -> Result<(), StoreError> {
        match self.get(key)? {
            Some(local) if local.uid() == uid => self.remove_local(key, &local),
            _ => Ok(()),
        }
    }

    fn remove_local(&mut self, key: &Key, local: &Object) -> Result<(), StoreError> {
        self.txn.remove(key, |revision| local.text_at(revision), ACTOR, self.now)?;
        self.has_changed = true;
        Ok(())
    }

    /// Removes the objects of a collection that the server has not: `RESOURCE`, or `RESOURCE/NAMESPACE/NAME` for a single object.
    pub fn remove_others(&mut self, source: &str, objects: &[Object]) -> Result<(), StoreError> {
        let mut parts = source.splitn(3, '/');
        let resource = Resource::intern(parts.next().unwrap_or_default());
        let Some(kind) = kinds::by_resource(resource) else { return Ok(()) };
        let single = parts.next().zip(parts.next());
        let stored = match single {
            Some((namespace, name)) => self.txn.get(&Key::new(resource, namespace, name))?.into_iter().collect(),
            None => self.txn.list(resource, None)?,
        };
        let there: HashSet<Key> = objects.iter().map(|object| key_of(kind, object)).collect();
        for stored in stored {
            if there.contains(&stored.key) {
                continue;
            }
            if let Ok(local) = serde_json::from_str(&stored.body).map(Object) {
                self.remove_local(&stored.key, &local)?;
            }
        }
        Ok(())
    }

    /// Removes the Nodes that the server has not, but not the node's own.
    pub fn remove_other_nodes(&mut self, objects: &[Object], own: &str) -> Result<(), StoreError> {
        let own = Object(json!({"metadata": {"name": own}}));
        self.remove_others("nodes", &[objects, &[own]].concat())
    }

    /// Removes the pods that the server has not, of the nodes that are meant.
    pub fn remove_other_pods(&mut self, objects: &[Object], is_meant: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        let there: HashSet<&str> = objects.iter().map(Object::uid).collect();
        for stored in self.txn.list(Resource("pods"), None)? {
            let Ok(local) = serde_json::from_str(&stored.body).map(Object) else { continue };
            let is_meant = is_meant(local.text(&["spec", "nodeName"]).unwrap_or_default());
            if is_meant && !there.contains(local.uid()) {
                self.remove_local(&stored.key, &local)?;
            }
        }
        Ok(())
    }

    /// Makes a namespace where the server lets the node read none: writes of the kubelet need one.
    pub fn ensure_namespace(&mut self, name: &str) -> Result<(), StoreError> {
        let kind = &kinds::namespace::KIND;
        let key = Key::new(kind.resource, "", name);
        if self.txn.get(&key)?.is_some() {
            return Ok(());
        }
        let namespace = Object(json!({
            "metadata": {"name": name, "uid": format!("copy-of-{name}"), "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        }));
        self.put(kind, &key, namespace, None)
    }

    /// Marks the state as the copy of a node.
    pub fn mark(&mut self, node: &str) -> Result<(), StoreError> {
        self.has_changed = true;
        self.txn.set_meta(JOINED_NODE, node)
    }

    /// Gives the state the addresses 127.N.0.0/16 of the cluster that the node has joined.
    pub fn set_network(&mut self, network: u8) -> Result<(), StoreError> {
        self.has_changed = true;
        self.txn.set_meta(NETWORK, &network.to_string())
    }

    /// Commits, if anything has changed.
    pub fn commit(self) -> Result<(), CommitError> {
        if self.has_changed { self.txn.commit().map(drop) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;
    use std::time::Duration;

    fn change(api: &mut Api, work: impl FnOnce(&mut CopyTxn<'_>) -> Result<(), StoreError>) -> u64 {
        let mut copy = CopyTxn::new(api.store_mut().write(Duration::from_secs(1)).unwrap());
        work(&mut copy).unwrap();
        copy.commit().unwrap();
        api.store().read().unwrap().revision().unwrap()
    }

    #[test]
    fn copies_keep_their_uid_and_are_written_once() {
        let mut api = Api::in_memory("test").unwrap();
        let kind = &kinds::config_map::KIND;
        let map = |name: &str, uid: &str| {
            Object(
                json!({"metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": "77"}, "data": {"a": "b"}}),
            )
        };
        let key = |name: &str| Key::new(kind.resource, "default", name);
        let put = |api: &mut Api, object: Object| {
            change(api, |copy| {
                let key = key_of(kind, &object);
                let local = copy.get(&key)?;
                copy.put(kind, &key, object.clone(), local.as_ref())
            })
        };
        let first = put(&mut api, map("a", "1"));
        assert_eq!(put(&mut api, map("a", "1")), first, "nothing has changed");
        // The same name with another uid is another object: the old one is removed first.
        assert_eq!(put(&mut api, map("a", "2")), first + 2);
        put(&mut api, map("b", "3"));
        change(&mut api, |copy| copy.remove_others("configmaps/default/a", &[]));
        let has = |api: &Api, name: &str| api.store().read().unwrap().get(&key(name)).unwrap().is_some();
        assert!(!has(&api, "a") && has(&api, "b"), "a single object is not the whole collection");
        change(&mut api, |copy| copy.remove(&key("b"), "other"));
        assert!(has(&api, "b"));
        change(&mut api, |copy| copy.remove_others("configmaps", &[]));
        assert!(!has(&api, "b"));
        change(&mut api, |copy| copy.ensure_namespace("shop"));
        assert!(api.read_view(|txn| txn.exists(&Key::new(Resource("namespaces"), "", "shop"))).unwrap());
    }
}
