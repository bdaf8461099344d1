//! Encodings of stored bodies, which all readers of a process share: an object that many clients read is encoded once.
//!
//! A revision belongs to one write, so it identifies one body. When the cache is full, it drops the oldest revisions: replaced bodies are
//! dropped before current ones, and a list larger than the cache still finds its newest part.
//! Knows no encoding. Start reading at [`EncodedBodies::find`].

use crate::object::IgnorePoison;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Maximum size of all encodings.
const MAX_TOTAL_BYTES: usize = 24 << 20;
/// Maximum size of one encoding that is kept.
const MAX_BYTES: usize = 32 << 10;
/// Approximate memory of an entry in addition to its bytes.
const ENTRY_OVERHEAD_BYTES: usize = 64;

/// Encodings by revision; clones share their content.
#[derive(Clone, Default)]
pub struct EncodedBodies(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    size: usize,
    by_revision: BTreeMap<u64, Arc<[u8]>>,
}

impl EncodedBodies {
    /// Returns the cached encodings of the bodies of these revisions.
    pub fn find(&self, revisions: impl Iterator<Item = Option<u64>>) -> Vec<Option<Arc<[u8]>>> {
        let kept = self.0.lock().ignore_poison();
        revisions.map(|revision| kept.by_revision.get(&revision?).cloned()).collect()
    }

    /// Returns the encoding of the body of a revision, which is made where it is not known.
    pub fn find_or_encode(&self, revision: u64, encode: impl FnOnce() -> Option<Vec<u8>>) -> Option<Arc<[u8]>> {
        let known = self.0.lock().ignore_poison().by_revision.get(&revision).cloned();
        if known.is_some() {
            return known;
        }
        let encoded: Arc<[u8]> = encode()?.into();
        self.keep([(revision, encoded.clone())]);
        Some(encoded)
    }

    /// Keeps encodings while there is room.
    pub fn keep(&self, encoded: impl IntoIterator<Item = (u64, Arc<[u8]>)>) {
        let mut kept = self.0.lock().ignore_poison();
        for (revision, bytes) in encoded {
            kept.insert(revision, bytes);
        }
    }
}

impl Kept {
    fn insert(&mut self, revision: u64, bytes: Arc<[u8]>) {
        let size = bytes.len() + ENTRY_OVERHEAD_BYTES;
        let is_older = self.by_revision.first_key_value().is_some_and(|(oldest, _)| revision < *oldest);
        if bytes.len() > MAX_BYTES || is_older && self.size + size > MAX_TOTAL_BYTES {
            return;
        }
        self.size += size;
        if let Some(replaced) = self.by_revision.insert(revision, bytes) {
            self.size -= replaced.len() + ENTRY_OVERHEAD_BYTES;
        }
        while self.size > MAX_TOTAL_BYTES {
            let Some((_, oldest)) = self.by_revision.pop_first() else { return };
            self.size -= oldest.len() + ENTRY_OVERHEAD_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revisions(bodies: &EncodedBodies) -> Vec<u64> {
        bodies.0.lock().unwrap().by_revision.keys().copied().collect()
    }

    #[test]
    fn body_of_a_revision_is_encoded_once() {
        let bodies = EncodedBodies::default();
        let first = bodies.find_or_encode(7, || Some(b"seven".to_vec()));
        assert_eq!(first.as_deref(), Some(&b"seven"[..]));
        assert_eq!(bodies.find_or_encode(7, || panic!("known")), first);
        assert_eq!(bodies.clone().find([Some(7), None, Some(8)].into_iter()), [first, None, None]);
        assert_eq!(bodies.find_or_encode(9, || None), None);
    }

    #[test]
    fn newest_revisions_stay_when_there_is_no_room() {
        let bodies = EncodedBodies::default();
        let bytes: Arc<[u8]> = vec![0; MAX_BYTES].into();
        let most = (MAX_TOTAL_BYTES / (MAX_BYTES + ENTRY_OVERHEAD_BYTES)) as u64;
        bodies.keep((10..10 + most).map(|revision| (revision, bytes.clone())));
        bodies.keep([(1, bytes.clone())]);
        assert_eq!(revisions(&bodies), Vec::from_iter(10..10 + most), "an older one is not kept");
        bodies.keep([(1000 + most, bytes.clone()), (2000 + most, bytes)]);
        let kept = revisions(&bodies);
        assert_eq!((kept.len() as u64, kept[0], kept.last()), (most, 12, Some(&(2000 + most))));
        bodies.keep([(5000 + most, vec![0; MAX_BYTES + 1].into())]);
        assert_eq!(revisions(&bodies), kept, "it is too large");
    }

    #[test]
    fn size_is_counted_once_for_a_revision() {
        let bodies = EncodedBodies::default();
        for length in [100, 5, 30] {
            bodies.keep([(3, vec![0; length].into())]);
            assert_eq!(bodies.0.lock().unwrap().size, length + ENTRY_OVERHEAD_BYTES);
        }
    }
}
