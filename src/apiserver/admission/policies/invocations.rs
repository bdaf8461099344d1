//! Finds the policies and bindings that a request matches, and their parameters (`plugin/policy/generic/policy_dispatcher.go`).

use super::PolicyType;
use super::definitions::{PolicyBinding, PolicyDefinition, bindings, policies};
use crate::apiserver::ApiResult;
use crate::apiserver::admission::AdmissionRequest;
use crate::apiserver::admission::matching::{MatchedVersion, Operation};
use crate::apiserver::admission::request::served_versions;
use crate::apiserver::transaction::Transaction;
use crate::object::{Key, Object, Resource, Selector};
use std::cell::OnceCell;
use std::sync::Arc;

/// The resource of namespaces.
pub const NAMESPACES: Resource = Resource("namespaces");

/// A policy that a request matches by one of its bindings, and the objects with its parameters.
pub struct Invocation {
    /// The policy.
    pub policy: Arc<PolicyDefinition>,
    /// The binding.
    pub binding: Arc<PolicyBinding>,
    /// The parameters, one evaluation for each; `None` for an evaluation without any. An error is one of the configuration.
    pub params: Result<Vec<Option<Arc<Object>>>, String>,
    /// The version in which the request matches.
    pub version: MatchedVersion,
}

impl Invocation {
    /// The policy and binding, for running again.
    pub fn key(&self) -> String {
        format!("{}/{}", self.policy.name, self.binding.name)
    }
}

/// Whether a policy may be about such requests.
pub fn may_match(
    txn: &dyn Transaction,
    kind: PolicyType,
    operation: Operation,
    resource: &str,
    subresource: &str,
) -> ApiResult<bool> {
    Ok(policies(txn, kind)?.iter().any(|policy| policy.criteria.may_match(operation, resource, subresource)))
}

/// Finds the policies that a request matches.
pub fn find(txn: &dyn Transaction, request: &AdmissionRequest<'_>, kind: PolicyType) -> ApiResult<Vec<Invocation>> {
    let policies = policies(txn, kind)?;
    if policies.is_empty() {
        return Ok(Vec::new());
    }
    let bindings = bindings(txn, kind)?;
    let versions = served_versions(request.kind);
    let asked = request.matched(&versions);
    let namespace = OnceCell::new();
    let own = || {
        let key = Key::new(NAMESPACES, "", request.namespace());
        namespace.get_or_init(|| txn.get_shared(&key).ok().flatten()).as_deref()
    };
    let label = |name: &str| own().and_then(|namespace: &Object| namespace.label(name));
    let mut found = Vec::new();
    for policy in policies {
        if !policy.criteria.may_match(request.operation, request.kind.resource.plural(), request.subresource) {
            continue;
        }
        let Some(version) = policy.criteria.find(&asked, label) else { continue };
        for binding in bindings.iter().filter(|binding| binding.policy == policy.name) {
            if binding.criteria.find(&asked, label).is_none() {
                continue;
            }
            let params = collect_params(txn, &policy, binding, request.namespace())?;
            let (policy, version) = (policy.clone(), version.clone());
            found.push(Invocation { policy, binding: binding.clone(), params, version });
        }
    }
    Ok(found)
}

/// The objects with the parameters of a binding.
fn collect_params(
    txn: &dyn Transaction,
    policy: &PolicyDefinition,
    binding: &PolicyBinding,
    namespace: &str,
) -> ApiResult<Result<Vec<Option<Arc<Object>>>, String>> {
    let param_ref = &binding.param_ref;
    let (Some((api_version, name)), false) = (&policy.param_kind, param_ref.is_null()) else {
        return Ok(Ok(vec![None]));
    };
    let Some(kind) = txn.kinds().by_kind(api_version, name) else {
        return Ok(Err(format!("failed to find resource referenced by paramKind: '{api_version}, Kind={name}'")));
    };
    let text = |field: &str| param_ref[field].as_str().unwrap_or_default();
    let namespace = match (kind.namespaced, text("namespace")) {
        (false, "") => "",
        (false, _) => {
            return Ok(Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into()));
        }
        (true, "") if namespace.is_empty() => {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Ok(Err(why.into()));
        }
        (true, "") => namespace,
        (true, other) => other,
    };
    let found: Vec<Option<Arc<Object>>> = match text("name") {
        "" => {
            let selector =
                Selector::from_label_selector(&param_ref["selector"]).unwrap_or_else(|_| Selector::nothing());
            let all = txn.list(kind.resource, kind.namespaced.then_some(namespace))?.into_iter();
            all.filter(|object| selector.matches(|label| object.label(label))).map(|one| Some(Arc::new(one))).collect()
        }
        name => txn.get_shared(&Key::new(kind.resource, namespace, name))?.map(Some).into_iter().collect(),
    };
    if found.is_empty() && text("parameterNotFoundAction") == "Deny" {
        return Ok(Err("no params found for policy binding with `Deny` parameterNotFoundAction".into()));
    }
    Ok(Ok(found))
}
