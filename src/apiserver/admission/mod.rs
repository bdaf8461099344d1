//! Admission: changes and refuses writes that are well-formed in themselves.
//!
//! Two tables: plugins in [`MUTATING`] run before validation, plugins in [`VALIDATING`] after it. [`service_addresses`] changes objects
//! in the second, so that a refused Service takes no address.
//! A new plugin is one file, its `mod`, and one line in a table.

mod default_class;
mod default_toleration_seconds;
mod limit_ranger;
mod namespace_lifecycle;
pub mod pod_topology_labels;
mod priority;
mod rbac_escalation;
mod resource_quota;
mod runtime_class;
mod service_account;
mod service_addresses;
mod storage_object_in_use_protection;

use super::ApiResult;
use super::transaction::Transaction;
use crate::kinds::Kind;
use crate::object::Object;

/// A write on its way through admission.
pub struct AdmissionRequest<'a> {
    /// Its kind.
    pub kind: &'a Kind,
    /// The object as it is to be kept.
    pub object: &'a mut Object,
    /// The object as it stands; none on create.
    pub old: Option<&'a Object>,
    /// Warnings for the client.
    pub warnings: &'a mut Vec<String>,
    /// Whether nothing will be kept.
    pub dry_run: bool,
}

impl AdmissionRequest<'_> {
    /// Whether this creates an object of the resource.
    fn creates(&self, resource: &str) -> bool {
        self.old.is_none() && self.kind.resource.0 == resource
    }
}

/// One plugin.
type AdmissionPlugin = fn(&mut dyn Transaction, &mut AdmissionRequest<'_>) -> ApiResult<()>;

/// Plugins that may change the object, in order.
const MUTATING: &[AdmissionPlugin] = &[
    namespace_lifecycle::admit,
    limit_ranger::fill,
    service_account::admit,
    priority::admit,
    default_toleration_seconds::admit,
    pod_topology_labels::admit,
    default_class::admit,
    storage_object_in_use_protection::admit,
    runtime_class::admit,
];

/// Plugins that run on a valid object, in order. Addresses are given out last, so that nothing refused takes one.
const VALIDATING: &[AdmissionPlugin] =
    &[rbac_escalation::admit, limit_ranger::check, resource_quota::admit, service_addresses::admit];

/// Before validation.
pub fn mutate(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    MUTATING.iter().try_for_each(|plugin| plugin(txn, request))
}

/// After validation.
pub fn validate(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    VALIDATING.iter().try_for_each(|plugin| plugin(txn, request))
}
