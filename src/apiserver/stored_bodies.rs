//! Stored bodies of single objects, which all readers of a process share: an object that many clients get is read from the log once.
//!
//! The store is asked for the object's revision each time, so that no answer is older than the last commit of any process. A revision is
//! given to one write only; the checksum of the object's row, which the store has verified when the body was read, has to be the same.
//! When there is no room, the newest revisions stay. Start reading at [`StoredBodies::get`].

use crate::object::{IgnorePoison, Key};
use crate::store::{Store, StoreResult};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Maximum size of all bodies with their encodings.
const MAX_TOTAL_BYTES: usize = 16 << 20;
/// Maximum size of a body that is kept.
const MAX_BYTES: usize = 32 << 10;
/// Approximate memory of an entry in addition to its bytes.
const ENTRY_OVERHEAD_BYTES: usize = 80;

/// Bodies by revision; clones share their content.
#[derive(Clone, Default)]
pub struct StoredBodies(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    size: usize,
    /// Bodies with the checksums of their rows.
    by_revision: BTreeMap<u64, (i64, StoredBody)>,
}

/// The body of an object, and the revision that wrote it. Clones share their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBody {
    /// The revision.
    pub revision: u64,
    /// The body.
    pub body: Arc<str>,
    encoded: Arc<OnceLock<Option<Box<[u8]>>>>,
}

impl StoredBody {
    fn new(revision: u64, body: Arc<str>) -> StoredBody {
        StoredBody { revision, body, encoded: Arc::default() }
    }

    /// Returns the only other encoding of the body, which the first caller makes; it is not larger than the body. `None` where it cannot be
    /// made.
    pub fn encoded(&self, encode: impl FnOnce() -> Option<Vec<u8>>) -> Option<&[u8]> {
        self.encoded.get_or_init(|| encode().map(Vec::into_boxed_slice)).as_deref()
    }

    /// Returns the memory that the body takes with its encoding.
    fn size(&self) -> usize {
        2 * self.body.len() + ENTRY_OVERHEAD_BYTES
    }
}

impl StoredBodies {
    /// Returns an object at the latest revision of a store.
    pub fn get(&self, store: &Store, key: &Key) -> StoreResult<Option<StoredBody>> {
        let mark = store.get_latest_mark(key)?;
        if let Some((revision, sum)) = mark
            && let Some(body) = self.find(revision, sum)
        {
            return Ok(Some(body));
        }
        // The object itself decides where its row shows none, or a damaged one.
        let Some(stored) = store.get_latest(key)? else { return Ok(None) };
        let read = StoredBody::new(stored.revision, stored.body);
        if let Some((_, sum)) = mark.filter(|(marked, _)| *marked == read.revision) {
            self.keep(sum, read.clone());
        }
        Ok(Some(read))
    }

    fn find(&self, revision: u64, sum: i64) -> Option<StoredBody> {
        let kept = self.0.lock().ignore_poison();
        kept.by_revision.get(&revision).filter(|(known, _)| *known == sum).map(|(_, body)| body.clone())
    }

    fn keep(&self, sum: i64, read: StoredBody) {
        if read.body.len() > MAX_BYTES {
            return;
        }
        let mut kept = self.0.lock().ignore_poison();
        kept.size += read.size();
        if let Some((_, replaced)) = kept.by_revision.insert(read.revision, (sum, read)) {
            kept.size -= replaced.size();
        }
        while kept.size > MAX_TOTAL_BYTES {
            let Some((_, (_, oldest))) = kept.by_revision.pop_first() else { return };
            kept.size -= oldest.size();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::create::create;
    use crate::apiserver::delete::delete;
    use crate::apiserver::{Api, DeleteOptions, WriteOptions};
    use crate::kinds::config_map::KIND;
    use crate::object::{Object, Resource};
    use serde_json::json;

    #[test]
    fn body_is_that_of_the_latest_revision() {
        let mut api = Api::in_memory("test").unwrap();
        let key = Key::new(Resource("configmaps"), "default", "a");
        let map =
            Object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}));
        assert_eq!(api.get_stored(&key).unwrap(), None);
        for _ in 0..2 {
            api.write(false, |txn| create(txn, &KIND, &map, &WriteOptions::default())).unwrap();
            let first = api.get_stored(&key).unwrap().unwrap();
            assert_eq!(*first.body, *api.store().get_latest(&key).unwrap().unwrap().body);
            let again = api.get_stored(&key).unwrap().unwrap();
            assert!(Arc::ptr_eq(&first.body, &again.body), "it is read once");
            api.write(false, |txn| delete(txn, &KIND, &key, &DeleteOptions::default())).unwrap();
            assert_eq!(api.get_stored(&key).unwrap(), None);
        }
    }

    #[test]
    fn body_with_another_checksum_is_not_found() {
        let bodies = StoredBodies::default();
        bodies.keep(1, StoredBody::new(7, "seven".into()));
        assert_eq!(bodies.find(7, 1).map(|found| found.body).as_deref(), Some("seven"));
        assert_eq!((bodies.find(7, 2), bodies.find(8, 1)), (None, None));
    }

    #[test]
    fn body_is_encoded_once_for_all_readers() {
        let bodies = StoredBodies::default();
        bodies.keep(1, StoredBody::new(7, "seven".into()));
        let [first, second] = [(); 2].map(|()| bodies.find(7, 1).unwrap());
        assert_eq!(first.encoded(|| Some(b"7".to_vec())), Some(&b"7"[..]));
        assert_eq!(second.encoded(|| panic!("known")), Some(&b"7"[..]));
    }

    #[test]
    fn newest_revisions_stay_when_there_is_no_room() {
        let bodies = StoredBodies::default();
        let body: Arc<str> = "x".repeat(MAX_BYTES).into();
        let most = (MAX_TOTAL_BYTES / (2 * MAX_BYTES + ENTRY_OVERHEAD_BYTES)) as u64;
        (0..most + 2).for_each(|revision| bodies.keep(0, StoredBody::new(revision, body.clone())));
        assert_eq!((bodies.find(1, 0).is_none(), bodies.find(2, 0).is_some()), (true, true));
        bodies.keep(0, StoredBody::new(most + 5, "x".repeat(MAX_BYTES + 1).into()));
        assert!(bodies.find(most + 5, 0).is_none() && bodies.find(2, 0).is_some(), "it is too large");
    }
}
