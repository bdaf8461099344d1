//! Refuses roles and bindings that give rights which their writer lacks.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::authorization::escalation::check_escalation;
use crate::apiserver::transaction::Transaction;

/// Checks writes of users. The administrator and the loops hold every permission, so they are not checked.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let Some(user) = txn.user() else { return Ok(()) };
    check_escalation(txn, user, request.kind, request.object, request.old)
}
