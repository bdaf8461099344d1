//! Results that a loop derived from the World and may reuse.
//!
//! Never: holds anything that could not be recomputed. A cached result records what it was derived from, the versions of rows
//! ([`World::version_at`]) or a text, and the reader checks that this is unchanged: a plan is the same with and without the cache. The
//! revision of a row is not a version, because a staged row gets another one at the commit.

use super::World;
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;

/// One thing of each type, which only the module that has the type can name.
#[derive(Default)]
pub(super) struct TypedMemory(RefCell<HashMap<TypeId, Box<dyn Any + Send>>>);

impl World {
    /// Calls `within` with the cached value, which is the default at first. `within` must not call this function again.
    pub fn with_cached<T: Default + Send + 'static, A>(&self, within: impl FnOnce(&mut T) -> A) -> A {
        let mut all = self.memory.0.borrow_mut();
        let known = all.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        match known.downcast_mut() {
            Some(known) => within(known),
            None => within(&mut T::default()),
        }
    }
}
