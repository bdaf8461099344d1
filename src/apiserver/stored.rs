//! Stored bodies and errors of the store, as the API server returns them.

use super::ApiResult;
use crate::object::sparse::ReadPart;
use crate::object::{Object, Reason, Resource, Status};
use crate::store::{StoreError, StoredObject};

/// Kinds whose objects are partly computed on read.
const PARTLY_COMPUTED: [&str; 3] = ["nodes", "leases.coordination.k8s.io", "apiservices.apiregistration.k8s.io"];

/// Whether objects of a resource are read as they are stored, without computed parts.
pub fn is_stored(resource: Resource) -> bool {
    !PARTLY_COMPUTED.contains(&resource.0)
}

/// The status when a write or read that the caller passed was never called.
pub fn not_called() -> Status {
    Status::bug("the request was not run")
}

/// Converts a store error to an API error.
pub fn refused(error: &StoreError) -> Status {
    match error {
        StoreError::Expired { floor } => {
            Status::new(Reason::Expired, format!("too old resource version (the oldest one kept is {floor})"))
        }
        _ => {
            let is_busy =
                matches!(error, StoreError::Busy { .. } | StoreError::Unreachable { .. } | StoreError::Overtaken);
            let reason = if is_busy { Reason::Timeout } else { Reason::InternalError };
            Status {
                exit_code: Some(error.exit_code()).filter(|code| *code > 1),
                ..Status::new(reason, error.to_string())
            }
        }
    }
}

/// Returns a stored body as an object.
pub fn object_of(stored: &StoredObject) -> ApiResult<Object> {
    part_of(stored, &ReadPart::Whole)
}

/// Returns a part of a stored body as an object.
pub fn part_of(stored: &StoredObject, part: &ReadPart) -> ApiResult<Object> {
    let body = part.read(&stored.body);
    body.map(Object)
        .map_err(|error| Status::new(Reason::InternalError, format!("stored body of {}: {error}", stored.key)))
}

/// Returns stored bodies as objects.
pub fn objects_of(stored: Vec<StoredObject>) -> ApiResult<Vec<Object>> {
    stored.iter().map(object_of).collect()
}
