//! `/resize` of a pod: changes the resources of its containers.

use super::{ApiResult, ObjectPart};
use crate::kinds::Kind;
use crate::kinds::pod::resize;
use crate::kinds::shared::field;
use crate::object::Object;

/// Resources of a pod's containers.
pub const RESIZE: ObjectPart =
    ObjectPart { subresource: "resize", applies_to: |kind| kind.resource == "pods", replace };

/// Returns the pod with new container resources, validated as a whole. The pod is compared with itself: other changes
/// were refused before, and an existing pod may contain what a new one may not (ephemeral containers).
fn replace(kind: &Kind, decoded: &Object, old: &Object) -> ApiResult<Object> {
    let (object, mut errors) = resize::resized(decoded, old);
    errors.extend(kind.wrongs(&kind.api_version(), &object, Some(&object)));
    if errors.is_empty() {
        return Ok(object);
    }
    Err(field::invalid(kind.kind, kind.resource, object.name(), &errors))
}
