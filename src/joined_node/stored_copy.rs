//! The changes that only the copy of a joined node has: its mark, its network, namespaces, and the Nodes and pods of its own.
//!
//! Never: writes an object itself; [`CopyTxn`] does.

use crate::apiserver::rules::names::key_of;
use crate::apiserver::stored_copy::CopyTxn;
use crate::kinds;
use crate::object::{Key, Object, Resource};
use crate::store::meta_keys::{JOINED_NODE, NETWORK};
use crate::store::{StoreError, Txn};
use serde_json::json;
use std::collections::HashSet;

/// The writer's name in the log of the state.
pub const ACTOR: &str = "mirror";

/// Begins a transaction of copies.
pub fn begin(txn: Txn<'_>) -> CopyTxn<'_> {
    CopyTxn::new(txn, ACTOR)
}

/// Removes the objects of a collection that the server has not: `RESOURCE`, or `RESOURCE/NAMESPACE/NAME` for a single object.
pub fn remove_others(copy: &mut CopyTxn<'_>, source: &str, objects: &[Object]) -> Result<(), StoreError> {
    let mut parts = source.splitn(3, '/');
    let resource = Resource::intern(parts.next().unwrap_or_default());
    let Some(kind) = kinds::by_resource(resource) else { return Ok(()) };
    let single = parts.next().zip(parts.next()).map(|(namespace, name)| Key::new(resource, namespace, name));
    let mut stored = copy.list(resource)?;
    stored.retain(|stored| single.as_ref().is_none_or(|key| stored.key == *key));
    let listed: HashSet<Key> = objects.iter().map(|object| key_of(kind, object)).collect();
    copy.remove_unlisted(stored, &listed)
}

/// Removes the Nodes that the server has not, but not the node's own.
pub fn remove_other_nodes(copy: &mut CopyTxn<'_>, objects: &[Object], own: &str) -> Result<(), StoreError> {
    let own = Object(json!({"metadata": {"name": own}}));
    remove_others(copy, "nodes", &[objects, &[own]].concat())
}

/// Removes pods of the given nodes that the server does not have.
pub fn remove_other_pods(
    copy: &mut CopyTxn<'_>,
    objects: &[Object],
    is_meant: impl Fn(&str) -> bool,
) -> Result<(), StoreError> {
    let there: HashSet<&str> = objects.iter().map(Object::uid).collect();
    for stored in copy.list(Resource("pods"))? {
        let Ok(local) = serde_json::from_str(&stored.body).map(Object) else { continue };
        let is_meant = is_meant(local.text(&["spec", "nodeName"]).unwrap_or_default());
        if is_meant && !there.contains(local.uid()) {
            copy.remove_local(&stored.key, &local)?;
        }
    }
    Ok(())
}

/// Makes a namespace where the server lets the node read none: writes of the kubelet need one.
pub fn ensure_namespace(copy: &mut CopyTxn<'_>, name: &str) -> Result<(), StoreError> {
    let kind = &kinds::namespace::KIND;
    let key = Key::new(kind.resource, "", name);
    if copy.get(&key)?.is_some() {
        return Ok(());
    }
    let namespace = Object(json!({
        "metadata": {"name": name, "uid": format!("copy-of-{name}"), "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    }));
    copy.put_over(kind, &key, namespace, None)
}

/// Marks the state as the copy of a node.
pub fn mark(copy: &mut CopyTxn<'_>, node: &str) -> Result<(), StoreError> {
    copy.set_meta(JOINED_NODE, node)
}

/// Gives the state the addresses 127.N.0.0/16 of the cluster that the node has joined.
pub fn set_network(copy: &mut CopyTxn<'_>, network: u8) -> Result<(), StoreError> {
    copy.set_meta(NETWORK, &network.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;
    use crate::store::StoreRead;
    use std::time::Duration;

    fn change(api: &mut Api, work: impl FnOnce(&mut CopyTxn<'_>) -> Result<(), StoreError>) -> u64 {
        let mut copy = begin(api.store_mut().write(Duration::from_secs(1)).unwrap());
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
        let put = |api: &mut Api, object: Object| change(api, |copy| copy.put(kind, object.clone()));
        let first = put(&mut api, map("a", "1"));
        assert_eq!(put(&mut api, map("a", "1")), first, "nothing has changed");
        // The same name with another uid is another object: the old one is removed first.
        assert_eq!(put(&mut api, map("a", "2")), first + 2);
        put(&mut api, map("b", "3"));
        change(&mut api, |copy| remove_others(copy, "configmaps/default/a", &[]));
        let has = |api: &Api, name: &str| api.store().read().unwrap().get(&key(name)).unwrap().is_some();
        assert!(!has(&api, "a") && has(&api, "b"), "a single object is not the whole collection");
        change(&mut api, |copy| copy.remove(&key("b"), "other"));
        assert!(has(&api, "b"));
        change(&mut api, |copy| remove_others(copy, "configmaps", &[]));
        assert!(!has(&api, "b"));
        change(&mut api, |copy| ensure_namespace(copy, "shop"));
        assert!(api.read_view(|txn| txn.exists(&Key::new(Resource("namespaces"), "", "shop"))).unwrap());
    }
}
