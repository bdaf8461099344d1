//! Answers that a write transaction has read and would read again for each of many writes: namespaces, lists without objects, and short
//! lists of priority classes. Also the last object that was not found, which the creation of an object looks for again.
//!
//! Nobody else writes while the transaction is open, so that only its own writes change the answers.
//!
//! Never: reads. Start reading at [`SeenObjects`].

use crate::object::{Key, Object, Resource, Str};
use crate::world::SEEN_WITH_EACH_POD;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of objects, and of lists, that are remembered.
const MAX_OBJECTS: usize = 100;

/// Maximum number of objects in such a list.
const MAX_IN_LIST: usize = 8;

/// The resource and the namespace of a list.
type ListKey = (Resource, Option<Str>);

/// Answers of one transaction.
#[derive(Default)]
pub(super) struct SeenObjects {
    objects: RefCell<HashMap<Key, Arc<Object>>>,
    /// Short lists.
    lists: RefCell<HashMap<ListKey, Vec<Object>>>,
    /// The last key without an object.
    absent: RefCell<Option<Key>>,
}

impl SeenObjects {
    /// Returns an object that was read before.
    pub fn find(&self, key: &Key) -> Option<Arc<Object>> {
        self.objects.borrow().get(key).cloned()
    }

    /// Remembers an object, of a kind that is read for many writes.
    pub fn remember(&self, key: &Key, object: &Arc<Object>) {
        let mut objects = self.objects.borrow_mut();
        if is_read_often(key.resource) && objects.len() < MAX_OBJECTS {
            objects.insert(key.clone(), object.clone());
        }
    }

    /// Whether the last read found no object, and was for this key.
    pub fn is_absent(&self, key: &Key) -> bool {
        self.absent.borrow().as_ref() == Some(key)
    }

    /// Remembers that there is no such object.
    pub fn remember_absent(&self, key: &Key) {
        self.absent.replace(Some(key.clone()));
    }

    /// Returns a list that was read before.
    pub fn find_list(&self, resource: Resource, namespace: Option<&str>) -> Option<Vec<Object>> {
        self.lists.borrow().get(&(resource, namespace.map(Str::from))).cloned()
    }

    /// Remembers a list if it has no objects, or few of a kind that is read for many writes.
    pub fn remember_list(&self, resource: Resource, namespace: Option<&str>, list: &[Object]) {
        let mut lists = self.lists.borrow_mut();
        let is_short = list.is_empty() || is_read_often(resource) && list.len() <= MAX_IN_LIST;
        if is_short && lists.len() < MAX_OBJECTS {
            lists.insert((resource, namespace.map(Str::from)), list.to_vec());
        }
    }

    /// Forgets the answers that the write of an object changes.
    pub fn forget(&self, written: &Key) {
        self.objects.borrow_mut().remove(written);
        self.absent.replace(None);
        self.lists.borrow_mut().retain(|(resource, _), _| *resource != written.resource);
    }

    /// Forgets all, after writes were undone.
    pub fn clear(&self) {
        self.objects.borrow_mut().clear();
        self.absent.replace(None);
        self.lists.borrow_mut().clear();
    }
}

fn is_read_often(resource: Resource) -> bool {
    SEEN_WITH_EACH_POD.contains(&resource.0)
}

#[cfg(test)]
mod tests {
    use super::super::{Api, Transaction};
    use super::*;
    use crate::object::{Reason, Status};
    use serde_json::json;

    #[test]
    fn write_invalidates_what_it_changes_and_nothing_else() {
        let seen = SeenObjects::default();
        let (maps, quotas) = (Resource("configmaps"), Resource("resourcequotas"));
        let keys = ["a", "b"].map(|name| Key::new(Resource("namespaces"), "", name));
        for key in &keys {
            seen.remember(key, &Arc::new(Object(json!({"metadata": {"name": &*key.name}}))));
        }
        seen.remember(&Key::new(maps, "a", "m"), &Arc::new(Object(json!({}))));
        seen.remember_list(quotas, Some("a"), &[]);
        seen.remember_list(maps, None, &[]);
        seen.remember_list(maps, Some("a"), &[Object(json!({}))]);
        let length = |resource, namespace| seen.find_list(resource, namespace).map(|list| list.len());
        assert!(
            seen.find(&Key::new(maps, "a", "m")).is_none() && length(maps, Some("a")).is_none(),
            "read for one write only"
        );
        assert_eq!([Some("a"), Some("b"), None].map(|place| length(quotas, place)), [Some(0), None, None]);
        seen.forget(&keys[0]);
        assert!(seen.find(&keys[0]).is_none() && seen.find(&keys[1]).is_some());
        seen.remember_absent(&keys[0]);
        assert_eq!([0, 1].map(|one| seen.is_absent(&keys[one])), [true, false]);
        seen.forget(&Key::new(quotas, "b", "q"));
        assert!(!seen.is_absent(&keys[0]));
        assert_eq!((length(quotas, Some("a")), length(maps, None)), (None, Some(0)));
        let classes = Resource("priorityclasses.scheduling.k8s.io");
        seen.remember_list(classes, None, &[Object(json!({"value": 1})), Object(json!({"value": 2}))]);
        assert_eq!(length(classes, None), Some(2));
        seen.clear();
        assert!(seen.find(&keys[1]).is_none() && length(maps, None).is_none() && length(classes, None).is_none());
    }

    #[test]
    fn objects_exist_from_their_write_to_their_removal() {
        let mut api = Api::in_memory("test").unwrap();
        let map = Key::new(Resource("configmaps"), "default", "m");
        let answers = api.write(false, |txn| {
            let look = |txn: &dyn Transaction| Ok((txn.exists(&map)?, txn.get(&map)?.is_some()));
            let before = [look(txn)?, look(txn)?];
            let stored =
                txn.put(&map, Object(json!({"metadata": {"name": "m", "namespace": "default", "uid": "u"}})))?;
            let between = look(txn)?;
            txn.remove(&map, Object::clone(&stored))?;
            Ok([before[0], before[1], between, look(txn)?])
        });
        assert_eq!(answers.unwrap(), [false, false, true, false].map(|is_there| (is_there, is_there)));
    }

    #[test]
    fn undone_write_is_not_remembered() {
        let mut api = Api::in_memory("test").unwrap();
        let class = Key::new(Resource("priorityclasses.scheduling.k8s.io"), "", "high");
        let write = |txn: &mut dyn Transaction, step: &&str| {
            let count = |txn: &dyn Transaction| txn.list(class.resource, None).map(|list| list.len());
            let before = count(txn)?;
            if *step != "read" {
                txn.put(&class, Object(json!({"metadata": {"name": "high", "uid": "u"}, "value": 1})))?;
            }
            let after = count(txn)?;
            if *step == "fail" { Err(Status::new(Reason::Invalid, after.to_string())) } else { Ok((before, after)) }
        };
        let mut steps = ["read", "fail", "read", "put", "read"].into_iter().peekable();
        let mut outcomes = Vec::new();
        while steps.peek().is_some() {
            outcomes.extend(api.write_next(false, &mut steps, write).into_iter().map(|(_, outcome)| outcome));
        }
        let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.map_err(|status| status.message)).collect();
        let failed = Err("3".to_owned());
        assert_eq!(outcomes, [Ok((2, 2)), failed, Ok((2, 2)), Ok((2, 3)), Ok((3, 3))]);
    }
}
