//! Descriptions of objects as text.

use super::{columns, escape};
use crate::kinds::Kind;
use crate::kinds::view::{Describe, KindView, RelatedObjects};
use crate::object::Object;

/// Describes one object of a kind.
pub fn describe(kind: &Kind, object: &Object, related: &dyn RelatedObjects) -> String {
    describe_with(kind.view, object, related)
}

/// Describes one object with a view.
pub fn describe_with(view: &KindView, object: &Object, related: &dyn RelatedObjects) -> String {
    let mut out = Describe::new();
    (view.describe)(object, related, &mut out);
    render(&out)
}

/// Renders a description, escaped and aligned.
pub fn render(description: &Describe) -> String {
    columns::align(&escape::text(description.raw()), columns::DESCRIPTION)
}

/// Text between the descriptions of two objects.
pub const SEPARATOR: &str = "\n\n";
