//! A set of keys that often has a single one: the pods at an address, the slices of a Service.

use crate::object::{Key, Resource};
use hashbrown::HashMap;
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::Hash;

/// Keys in their order. A single key takes no allocation, whereas a tree of one has room for eleven.
#[derive(Default)]
pub enum KeySet {
    /// No key.
    #[default]
    Empty,
    /// One key.
    One(Key),
    /// Several keys; after removals maybe one or none.
    Many(BTreeSet<Key>),
}

impl KeySet {
    /// Adds a key, unless the set has it.
    pub(super) fn insert(&mut self, key: Key) {
        match self {
            KeySet::Empty => *self = KeySet::One(key),
            KeySet::One(known) if *known == key => {}
            KeySet::Many(keys) => drop(keys.insert(key)),
            KeySet::One(_) => {
                let KeySet::One(known) = std::mem::take(self) else { return };
                *self = KeySet::Many(BTreeSet::from([known, key]));
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        match self {
            KeySet::One(known) if known == key => *self = KeySet::Empty,
            KeySet::Many(keys) => drop(keys.remove(key)),
            KeySet::Empty | KeySet::One(_) => {}
        }
    }

    /// Whether the set has this key.
    pub fn contains(&self, key: &Key) -> bool {
        match self {
            KeySet::Empty => false,
            KeySet::One(known) => known == key,
            KeySet::Many(keys) => keys.contains(key),
        }
    }

    /// The keys, in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Key> {
        let (one, many) = match self {
            KeySet::Empty => (None, None),
            KeySet::One(key) => (Some(key), None),
            KeySet::Many(keys) => (None, Some(keys)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Lists the keys of one resource, in their order.
    pub fn list(&self, resource: Resource) -> impl Iterator<Item = &Key> {
        let (one, many) = match self {
            KeySet::Empty => (None, None),
            KeySet::One(key) => (Some(key), None),
            KeySet::Many(keys) => (None, Some(keys)),
        };
        let from = Key::new(resource, "", "");
        let keys = one.into_iter().chain(many.map(|keys| keys.range(from..)).into_iter().flatten());
        keys.take_while(move |key| key.resource == resource)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        match self {
            KeySet::Empty => 0,
            KeySet::One(_) => 1,
            KeySet::Many(keys) => keys.len(),
        }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Removes a key from the set of an index, and the set once it is empty.
pub(super) fn drop_from<K, Q>(index: &mut HashMap<K, KeySet>, at: &Q, key: &Key)
where
    K: Borrow<Q> + Hash + Eq,
    Q: Hash + Eq + ?Sized,
{
    if let Some(keys) = index.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pod(number: u8) -> Key {
        Key::new(Resource("pods"), "default", &format!("p{number}"))
    }

    proptest! {
        #[test]
        fn key_set_is_like_a_tree(steps in proptest::collection::vec((any::<bool>(), 0..4u8), 0..20)) {
            let (mut set, mut tree) = (KeySet::default(), BTreeSet::new());
            for (adds, number) in steps {
                let key = pod(number);
                if adds {
                    set.insert(key.clone());
                    tree.insert(key);
                } else {
                    set.remove(&key);
                    tree.remove(&key);
                }
                prop_assert!(set.iter().eq(&tree), "{tree:?}");
                prop_assert!(tree.iter().all(|key| set.contains(key)) && !set.contains(&pod(9)));
                prop_assert_eq!((set.len(), set.is_empty()), (tree.len(), tree.is_empty()));
            }
        }
    }

    #[test]
    fn emptied_set_leaves_its_index() {
        let [first, second] = [1, 2].map(pod);
        let mut index: HashMap<u8, KeySet> = HashMap::new();
        for key in [&first, &second] {
            index.entry(1).or_default().insert(key.clone());
        }
        drop_from(&mut index, &1, &first);
        assert_eq!(index[&1].len(), 1);
        drop_from(&mut index, &1, &second);
        assert!(index.is_empty());
    }
}
