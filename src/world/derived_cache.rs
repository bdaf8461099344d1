//! Results that a loop derived from the World and may reuse.
//!
//! Never: holds anything that could not be recomputed. A cached result records the rows it was derived from, and the
//! reader checks that they are unchanged ([`World::version_at`]), so a plan is the same with and without the cache.

use super::{Row, World};
use crate::object::{Object, Str};
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// So many bodies are kept open: one plan seldom writes to more pods than that.
const OPEN: usize = 8;

/// Parsed bodies, by uid and revision.
#[derive(Default)]
struct DecodedBodies(VecDeque<(Str, u64, Arc<Object>)>);

/// One thing of each type, which only the module that has the type can name.
#[derive(Default)]
pub(super) struct TypedMemory(RefCell<HashMap<TypeId, Box<dyn Any + Send>>>);

impl World {
    /// The whole object, to be read by a plan that most likely writes it: then it need not be parsed again.
    pub fn open(&self, row: &Row) -> Arc<Object> {
        let object = row.shared();
        // A staged row has a decoded body and no revision yet.
        if row.is_open() {
            return object;
        }
        self.remembering(|DecodedBodies(open): &mut DecodedBodies| {
            open.truncate(OPEN - 1);
            open.push_front((row.uid.clone(), row.revision, object.clone()));
        });
        object
    }

    /// The whole object, to be changed and written: as it was opened, if it was.
    pub fn opened(&self, row: &Row) -> Arc<Object> {
        if row.is_open() {
            return row.shared();
        }
        let known = self.remembering(|DecodedBodies(open): &mut DecodedBodies| {
            let place = open.iter().position(|(uid, revision, _)| *uid == row.uid && *revision == row.revision)?;
            open.remove(place).map(|(_, _, object)| object)
        });
        known.unwrap_or_else(|| row.shared())
    }

    /// Calls `within` with the cached value, which is the default at first. `within` must not call this function again.
    pub fn remembering<T: Default + Send + 'static, A>(&self, within: impl FnOnce(&mut T) -> A) -> A {
        let mut all = self.memory.0.borrow_mut();
        let known = all.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        match known.downcast_mut() {
            Some(known) => within(known),
            None => within(&mut T::default()),
        }
    }
}
