//! What a loop worked out from the picture and may go by again.
//!
//! Never: holds anything that could not be worked out anew. Whoever remembers also remembers from which rows, and asks whether they
//! are the same still ([`World::version_at`]): a plan is what it would be without.

use super::World;
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;

/// One thing of each type, which only the module that has the type can name.
#[derive(Default)]
pub(super) struct Memory(RefCell<HashMap<TypeId, Box<dyn Any + Send>>>);

impl World {
    /// Lets what is remembered be read and changed; at first it is empty. What runs meanwhile may not remember anything itself.
    pub fn remembering<T: Default + Send + 'static, A>(&self, within: impl FnOnce(&mut T) -> A) -> A {
        let mut all = self.memory.0.borrow_mut();
        let known = all.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        match known.downcast_mut() {
            Some(known) => within(known),
            None => within(&mut T::default()),
        }
    }
}
