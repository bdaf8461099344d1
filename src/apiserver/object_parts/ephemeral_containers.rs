//! `/ephemeralcontainers` of a pod: only adds to `spec.ephemeralContainers`.

use super::{ApiResult, ObjectPart};
use crate::kinds::Kind;
use crate::kinds::pod::ephemeral;
use crate::object::Object;

/// `spec.ephemeralContainers` of a pod.
pub const EPHEMERAL_CONTAINERS: ObjectPart =
    ObjectPart { subresource: "ephemeralcontainers", applies_to: |kind| kind.resource == "pods", replace };

/// Returns the pod with the body's ephemeral containers; other fields of the body are ignored.
fn replace(_: &Kind, decoded: &Object, old: &Object) -> ApiResult<Object> {
    let mut object = old.clone();
    object.set(&["spec", "ephemeralContainers"], decoded.items(&["spec", "ephemeralContainers"]).to_vec());
    ephemeral::check(&object, old)?;
    Ok(object)
}
