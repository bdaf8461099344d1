//! Connections to subresources (`pods/exec`): nothing is stored, and admission is asked.

use super::admission::{self, AdmissionTarget, Operation, RequestOptions};
use super::authorization::check_verb;
use super::{Api, ApiResult};
use crate::kinds;
use crate::object::{Key, Object, Status};

/// Checks a connection (`exec`, `attach`, `portforward`): the user's right, then admission. `options` is the object that admission
/// receives, such as PodExecOptions. Returns warnings for the client.
pub fn connect(api: &mut Api, key: &Key, subresource: &str, options: &Object) -> ApiResult<Vec<String>> {
    let kind = kinds::by_resource(key.resource).ok_or_else(|| Status::not_found(key.resource, &key.name))?;
    let operation = Operation::Connect;
    api.read_view(|txn| check_verb(txn, "create", subresource, key))?;
    if !api.read_as_server(|txn| admission::may_concern(txn, kind, operation, subresource))? {
        return Ok(Vec::new());
    }
    api.write(true, |txn| {
        let (mut options, mut warnings) = (options.clone(), Vec::new());
        let target = AdmissionTarget {
            operation,
            kind,
            api_version: kind.version,
            subresource,
            key,
            options: RequestOptions::None,
        };
        let mut request = target.request(txn, &mut options, None, &mut warnings);
        admission::admit(txn, &mut request)?;
        Ok(warnings)
    })
}
