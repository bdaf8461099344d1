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
mod device_admin_access;
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
mod resource_claim_status;
mod resource_quota;
mod runtime_class;
mod server_flags;
mod service_account;
mod service_addresses;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
#[cfg(test)]
mod tests;
mod webhooks;

pub use matching::Operation;
pub use request::{AdmissionRequest, AdmissionTarget, RequestOptions};
pub use server_flags::set_disabled;

use super::ApiResult;
use super::rules::metadata;
use super::transaction::Transaction;
use crate::kinds::Kind;
use Operation::{Connect, Create, Delete, Update};
use policies::Reinvocations;
use webhooks::WebhookRound;

/// One plugin, and the requests that it handles.
struct AdmissionPlugin {
    /// The plugin's name in Kubernetes; empty for code that is not a plugin of its own there.
    name: &'static str,
    admit: fn(&mut dyn Transaction, &mut AdmissionRequest<'_>) -> ApiResult<()>,
    operations: &'static [Operation],
    /// Whether it handles writes to subresources, too.
    subresources: bool,
}

/// A step of admission.
type Admit = fn(&mut dyn Transaction, &mut AdmissionRequest<'_>) -> ApiResult<()>;

/// A plugin that handles writes of whole objects.
const fn writes(name: &'static str, admit: Admit) -> AdmissionPlugin {
    AdmissionPlugin { name, admit, operations: &[Create, Update], subresources: false }
}

/// A plugin that handles writes of whole objects and of their subresources.
const fn all_writes(name: &'static str, admit: Admit) -> AdmissionPlugin {
    AdmissionPlugin { subresources: true, ..writes(name, admit) }
}

/// A plugin that handles writes and deletions of whole objects.
const fn writes_and_deletions(name: &'static str, admit: Admit) -> AdmissionPlugin {
    AdmissionPlugin { operations: &[Create, Update, Delete], ..writes(name, admit) }
}

/// A plugin that handles every request.
const fn all_requests(name: &'static str, admit: Admit) -> AdmissionPlugin {
    AdmissionPlugin { name, admit, operations: &[Create, Update, Delete, Connect], subresources: true }
}

/// Plugins that may change the object. The order is that of Kubernetes (`pkg/kubeapiserver/options/plugins.go`: `AllOrderedPlugins`), of
/// which every plugin that a 1.36 has by default is in one of the two tables, with these exceptions. NodeDeclaredFeatureValidator has
/// nothing to refuse, because kloop runs the pods of all nodes itself. Plugins of alpha features (JobValidation, PodGroupWorkloadExists,
/// PodGroupProtection), and ClusterTrustBundleAttest, whose kind is not served by default, act in no default cluster. NodeRestriction and
/// OwnerReferencesPermissionEnforcement act here although they are off by default.
const MUTATING: &[AdmissionPlugin] = &[
    writes_and_deletions("NamespaceLifecycle", namespace_lifecycle::admit),
    all_writes("LimitRanger", limit_ranger::fill),
    writes("ServiceAccount", service_account::admit),
    AdmissionPlugin { subresources: true, ..writes_and_deletions("NodeRestriction", node_restriction::admit) },
    writes("TaintNodesByCondition", taint_nodes_by_condition::admit),
    writes("Priority", priority::admit),
    writes("DefaultTolerationSeconds", default_toleration_seconds::admit),
    writes("DefaultStorageClass", default_class::set_storage_class),
    writes("StorageObjectInUseProtection", storage_object_in_use_protection::admit),
    writes("RuntimeClass", runtime_class::admit),
    writes("DefaultIngressClass", default_class::set_ingress_class),
    writes("PodTopologyLabels", pod_topology_labels::admit),
    // The strategy of the kind, and no plugin, does this in Kubernetes.
    writes("", certificate_requests::set_requester),
];

/// Plugins that run on a valid object, in the same order.
const VALIDATING: &[AdmissionPlugin] = &[
    // The storage of roles and bindings does this in Kubernetes.
    writes("", rbac_escalation::admit),
    all_writes("LimitRanger", limit_ranger::check),
    all_writes("ServiceAccount", service_account::check),
    all_writes("PodSecurity", pod_security::admit),
    writes("Priority", priority::check_class),
    writes("OwnerReferencesPermissionEnforcement", owner_references::admit),
    writes("PersistentVolumeClaimResize", persistent_volume_claim_resize::admit),
    writes("RuntimeClass", runtime_class::check),
    all_writes("CertificateApproval", certificate_requests::check_approval),
    all_writes("CertificateSigning", certificate_requests::check_signing),
    // The strategies of the kinds do this in Kubernetes.
    all_writes("", device_admin_access::admit),
    all_writes("", resource_claim_status::admit),
    writes("CertificateSubjectRestriction", certificate_requests::restrict_subject),
    all_writes("PodResizeValidator", pod_resize::admit),
    all_requests(VALIDATING_POLICIES, policies::validate),
    all_requests(VALIDATING_WEBHOOKS, webhooks::validate),
    writes("", service_addresses::admit),
    // It writes the usage, so nothing may refuse the object after it.
    all_writes("ResourceQuota", resource_quota::admit),
];

const VALIDATING_POLICIES: &str = "ValidatingAdmissionPolicy";
const VALIDATING_WEBHOOKS: &str = "ValidatingAdmissionWebhook";
const MUTATING_POLICIES: &str = "MutatingAdmissionPolicy";
const MUTATING_WEBHOOKS: &str = "MutatingAdmissionWebhook";

/// Whether a plugin of this name can be disabled.
pub fn is_plugin(name: &str) -> bool {
    let mut tables = MUTATING.iter().chain(VALIDATING).map(|plugin| plugin.name);
    [MUTATING_POLICIES, MUTATING_WEBHOOKS].contains(&name) || !name.is_empty() && tables.any(|known| known == name)
}

/// Whether a policy or a webhook may want to see such requests; cheap to ask before writes that loops make often.
pub fn may_concern(txn: &dyn Transaction, kind: &Kind, operation: Operation, subresource: &str) -> ApiResult<bool> {
    Ok(webhooks::may_match(txn, kind, operation, subresource)?
        || policies::may_match(txn, kind, operation, subresource)?)
}

/// Before validation. When a policy or a webhook changes the object, all plugins see it once more.
pub fn mutate(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let mut round = WebhookRound::default();
    let mut reinvocations = Reinvocations::default();
    let (has_policies, has_webhooks) =
        (!server_flags::is_disabled(MUTATING_POLICIES), !server_flags::is_disabled(MUTATING_WEBHOOKS));
    run(MUTATING, txn, request)?;
    let is_changed = has_policies && policies::mutate(txn, request, &mut reinvocations, false)?;
    if has_webhooks && webhooks::mutate(txn, request, &mut round)? || is_changed {
        run(MUTATING, txn, request)?;
        if has_policies {
            policies::mutate(txn, request, &mut reinvocations, true)?;
        }
        if has_webhooks {
            webhooks::mutate(txn, request, &mut round)?;
        }
    }
    metadata::drop_duplicate_owners(request.object, " after mutating admission happens", request.warnings);
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
    let handles = |plugin: &&AdmissionPlugin| {
        plugin.operations.contains(&operation)
            && (plugin.subresources || !is_part)
            && !server_flags::is_disabled(plugin.name)
    };
    plugins.iter().filter(handles).try_for_each(|plugin| (plugin.admit)(txn, request))
}
