//! A description as text.

use super::{columns, escape};
use crate::kinds::view::{self, Describe, RelatedObjects};
use crate::object::Object;

/// Describes one object of a resource.
pub fn describe(resource: &str, object: &Object, related: &dyn RelatedObjects) -> String {
    let mut out = Describe::new();
    (view::view_for(resource).describe)(object, related, &mut out);
    render(&out)
}

/// Renders a description, escaped and aligned.
pub fn render(description: &Describe) -> String {
    columns::align(&escape::text(description.raw()), columns::DESCRIPTION)
}

/// Between the descriptions of two objects.
pub const SEPARATOR: &str = "\n\n";
