//! Subresources that replace some fields of the stored object: one file each.
//!
//! Knows which fields each one replaces and how they are checked; `update` admits and stores the result. Never reads or
//! writes the store. Start at [`ObjectPart`].

mod ephemeral_containers;
mod resize;

use super::ApiResult;
use crate::kinds::Kind;
use crate::object::Object;

pub use ephemeral_containers::EPHEMERAL_CONTAINERS;
pub use resize::RESIZE;

/// A subresource whose body is the object itself, of which a write takes some fields.
#[derive(Debug)]
pub struct ObjectPart {
    /// Its name in paths and in managed fields.
    pub subresource: &'static str,
    /// Whether objects of a kind have this subresource.
    pub applies_to: fn(&Kind) -> bool,
    /// Returns the stored object, the third argument, with the fields of the decoded body, the second; or refuses them.
    pub replace: fn(&Kind, &Object, &Object) -> ApiResult<Object>,
}

/// All subresources of this form.
pub const ALL: &[&ObjectPart] = &[&EPHEMERAL_CONTAINERS, &RESIZE];

impl PartialEq for ObjectPart {
    fn eq(&self, other: &ObjectPart) -> bool {
        self.subresource == other.subresource
    }
}

impl Eq for ObjectPart {}
