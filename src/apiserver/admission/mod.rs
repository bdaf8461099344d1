//! Admission: changes and refuses writes that are well-formed in themselves.
//!
//! Two tables: plugins in [`MUTATING`] run before validation, plugins in [`VALIDATING`] after it. [`service_addresses`] changes objects
//! in the second, so that a refused Service takes no address. Every stage sees the same [`AdmissionRequest`]; deletions, connections and
//! subresources pass the plugins that handle them.
//! A new plugin is one file, its `mod`, and one line in a table.

mod activation;
mod certificate_requests;
mod default_class;
mod default_toleration_seconds;
mod limit_ranger;
pub mod matching;
mod namespace_lifecycle;
mod node_restriction;
mod owner_references;
mod persistent_volume_claim_resize;
mod pod_resize;
mod pod_security;
pub mod pod_topology_labels;
mod policies;
mod priority;
mod rbac_escalation;
mod request;
mod resource_quota;
mod runtime_class;
mod service_account;
mod service_addresses;
mod storage_object_in_use_protection;
#[cfg(test)]
mod tests;
mod webhooks;

pub use matching::Operation;
pub use request::{AdmissionRequest, AdmissionTarget, RequestOptions};

use super::ApiResult;
use super::transaction::Transaction;
use crate::kinds::Kind;
use Operation::{Connect, Create, Delete, Update};
use policies::Reinvocations;
use webhooks::WebhookRound;

/// One plugin, and the requests that it handles.
struct AdmissionPlugin {
    admit: fn(&mut dyn Transaction, &mut AdmissionRequest<'_>) -> ApiResult<()>,
    operations: &'static [Operation],
    /// Whether it handles writes to subresources, too.
    subresources: bool,
}

/// A plugin that handles writes of whole objects.
const fn writes(admit: fn(&mut dyn Transaction, &mut AdmissionRequest<'_>) -> ApiResult<()>) -> AdmissionPlugin {
    AdmissionPlugin { admit, operations: &[Create, Update], subresources: false }
}

/// A plugin that handles writes and deletions of whole objects.
const fn writes_and_deletions(
    admit: fn(&mut dyn Transaction, &mut AdmissionRequest<'_>) -> ApiResult<()>,
) -> AdmissionPlugin {
    AdmissionPlugin { operations: &[Create, Update, Delete], ..writes(admit) }
}

/// A plugin that handles every request.
const fn all_requests(admit: fn(&mut dyn Transaction, &mut AdmissionRequest<'_>) -> ApiResult<()>) -> AdmissionPlugin {
    AdmissionPlugin { admit, operations: &[Create, Update, Delete, Connect], subresources: true }
}

/// Plugins that may change the object. The order is that of Kubernetes (`pkg/kubeapiserver/options/plugins.go`: `AllOrderedPlugins`), of
/// which every plugin that a 1.36 has by default is in one of the two tables, with these exceptions. TaintNodesByCondition is no plugin here:
/// the loop that watches over nodes taints a new one in the tick that sees it. NodeDeclaredFeatureValidator has nothing to refuse, because
/// kloop runs the pods of all nodes itself. Plugins of alpha features (JobValidation, PodGroupWorkloadExists, PodGroupProtection), and
/// ClusterTrustBundleAttest, whose kind is not served by default, act in no default cluster. NodeRestriction and
/// OwnerReferencesPermissionEnforcement act here although they are off by default.
const MUTATING: &[AdmissionPlugin] = &[
    writes_and_deletions(namespace_lifecycle::admit),
    AdmissionPlugin { subresources: true, ..writes(limit_ranger::fill) },
    writes(service_account::admit),
    AdmissionPlugin { subresources: true, ..writes_and_deletions(node_restriction::admit) },
    writes(priority::admit),
    writes(default_toleration_seconds::admit),
    writes(default_class::admit),
    writes(storage_object_in_use_protection::admit),
    writes(runtime_class::admit),
    writes(pod_topology_labels::admit),
    // The strategy of the kind, and no plugin, does this in Kubernetes.
    writes(certificate_requests::set_requester),
];

/// Plugins that run on a valid object, in the same order.
const VALIDATING: &[AdmissionPlugin] = &[
    // The storage of roles and bindings does this in Kubernetes.
    writes(rbac_escalation::admit),
    AdmissionPlugin { subresources: true, ..writes(limit_ranger::check) },
    writes(service_account::check),
    AdmissionPlugin { subresources: true, ..writes(pod_security::admit) },
    writes(priority::check_class),
    writes(owner_references::admit),
    writes(persistent_volume_claim_resize::admit),
    writes(runtime_class::check),
    AdmissionPlugin { subresources: true, ..writes(certificate_requests::check_approval) },
    AdmissionPlugin { subresources: true, ..writes(certificate_requests::check_signing) },
    writes(certificate_requests::restrict_subject),
    AdmissionPlugin { subresources: true, ..writes(pod_resize::admit) },
    all_requests(policies::validate),
    all_requests(webhooks::validate),
    writes(service_addresses::admit),
    // It writes the usage, so nothing may refuse the object after it.
    AdmissionPlugin { subresources: true, ..writes(resource_quota::admit) },
];

/// Whether a policy or a webhook may want to see such requests; cheap to ask before writes that loops make often.
pub fn may_concern(txn: &dyn Transaction, kind: &Kind, operation: Operation, subresource: &str) -> ApiResult<bool> {
    Ok(webhooks::may_match(txn, kind, operation, subresource)?
        || policies::may_match(txn, kind, operation, subresource)?)
}

/// Before validation. When a policy or a webhook changes the object, all plugins see it once more.
pub fn mutate(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let mut round = WebhookRound::default();
    let mut reinvocations = Reinvocations::default();
    run(MUTATING, txn, request)?;
    let is_changed = policies::mutate(txn, request, &mut reinvocations, false)?;
    if webhooks::mutate(txn, request, &mut round)? || is_changed {
        run(MUTATING, txn, request)?;
        policies::mutate(txn, request, &mut reinvocations, true)?;
        webhooks::mutate(txn, request, &mut round)?;
    }
    Ok(())
}

/// After validation.
pub fn validate(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    run(VALIDATING, txn, request)
}

/// Admits a request without validation in between: a deletion, a connection, or the body of a subresource that is not stored.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    mutate(txn, request)?;
    validate(txn, request)
}

fn run(plugins: &[AdmissionPlugin], txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let (operation, is_part) = (request.operation, !request.subresource.is_empty());
    let handles =
        |plugin: &&AdmissionPlugin| plugin.operations.contains(&operation) && (plugin.subresources || !is_part);
    plugins.iter().filter(handles).try_for_each(|plugin| (plugin.admit)(txn, request))
}
