//! Copies of another server's objects in a store, each with the uid that it has at that server.
//!
//! Knows: the store's own pipeline is not asked, because the server has decoded, admitted and validated these objects already.
//! Never: changes an object that is not a copy. Start reading at [`CopyTxn`].

use super::rules::names::key_of;
use crate::kinds::Kind;
use crate::object::{Key, Object, Resource, Time};
use crate::store::{CommitError, StoreError, StoreRead, StoredObject, Txn};
use serde_json::Value;
use std::collections::HashSet;

/// A transaction of copies.
pub struct CopyTxn<'a> {
    txn: Txn<'a>,
    /// The writer's name in the log.
    actor: &'static str,
    now: Time,
    has_changed: bool,
}

impl<'a> CopyTxn<'a> {
    /// Writes in this transaction, under this name.
    pub fn new(txn: Txn<'a>, actor: &'static str) -> CopyTxn<'a> {
        CopyTxn { txn, actor, now: Time::now(), has_changed: false }
    }

    /// Returns the object in the store.
    pub fn get(&self, key: &Key) -> Result<Option<Object>, StoreError> {
        let stored = self.txn.get(key)?;
        Ok(stored.and_then(|stored| serde_json::from_str(&stored.body).ok()).map(Object))
    }

    /// Returns the copies of a kind.
    pub fn list(&self, resource: Resource) -> Result<Vec<StoredObject>, StoreError> {
        self.txn.list(resource, None)
    }

    /// Writes an object, unless the store has the same.
    pub fn put(&mut self, kind: &Kind, object: Object) -> Result<(), StoreError> {
        let key = key_of(kind, &object);
        let local = self.get(&key)?;
        self.put_over(kind, &key, object, local.as_ref())
    }

    /// Writes an object, unless it is `local`, the one in the store.
    pub fn put_over(
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
            Some(local) if !differs(local, &object) => return Ok(()),
            _ => {}
        }
        let uid = object.uid().to_owned();
        self.txn.put(key, &uid, |revision| object.text_at(revision), self.actor, self.now)?;
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

    /// Removes an object that the store has.
    pub fn remove_local(&mut self, key: &Key, local: &Object) -> Result<(), StoreError> {
        self.txn.remove(key, |revision| local.text_at(revision), self.actor, self.now)?;
        self.has_changed = true;
        Ok(())
    }

    /// Removes those of the stored objects that are not among these keys.
    pub fn remove_unlisted(&mut self, stored: Vec<StoredObject>, listed: &HashSet<Key>) -> Result<(), StoreError> {
        for stored in stored.into_iter().filter(|stored| !listed.contains(&stored.key)) {
            if let Ok(local) = serde_json::from_str(&stored.body).map(Object) {
                self.remove_local(&stored.key, &local)?;
            }
        }
        Ok(())
    }

    /// Sets an entry of the store's metadata.
    pub fn set_meta(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        self.has_changed = true;
        self.txn.set_meta(name, value)
    }

    /// Commits, if anything has changed.
    pub fn commit(self) -> Result<(), CommitError> {
        if self.has_changed { self.txn.commit().map(drop) } else { Ok(()) }
    }
}

/// Whether two states of an object differ in more than their revision.
pub fn differs(one: &Object, other: &Object) -> bool {
    let content = |object: &Object| {
        let mut value = object.0.clone();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        value
    };
    content(one) != content(other)
}
