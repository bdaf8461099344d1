//! Policies and bindings as they are used: read and compiled once for each revision.

use super::PolicyType;
use crate::apiserver::ApiResult;
use crate::apiserver::admission::matching::MatchCriteria;
use crate::apiserver::transaction::Transaction;
use crate::kinds::custom::Uncompiled;
use crate::kinds::shared::policy_programs::PolicyPrograms;
use crate::object::{IgnorePoison, Object, Resource, Str};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// Maximum number of policies and bindings that are kept.
const MAX_KEPT: usize = 2000;

/// A policy.
pub struct PolicyDefinition {
    /// Its name.
    pub name: String,
    /// The requests to which the policy applies.
    pub criteria: MatchCriteria,
    /// `apiVersion` and `kind` of its parameters.
    pub param_kind: Option<(String, String)>,
    /// Whether an error refuses the request.
    pub fails: bool,
    /// Whether it runs again after later changes.
    pub reinvokes: bool,
    /// Its spec.
    spec: Value,
    /// Whether the policy changes objects.
    mutates: bool,
    programs: OnceLock<PolicyPrograms>,
}

impl PolicyDefinition {
    /// Its expressions.
    pub fn programs(&self) -> &PolicyPrograms {
        self.programs.get_or_init(|| PolicyPrograms::compile(&self.spec, self.mutates))
    }

    /// The expressions, unless this process has compiled them.
    pub fn find_uncompiled(&self) -> Option<Uncompiled> {
        let is_known = self.programs.get().is_some() || PolicyPrograms::are_compiled(&self.spec, self.mutates);
        (!is_known).then(|| Uncompiled::Policy(Box::new((self.spec.clone(), self.mutates))))
    }
}

/// A binding of a policy.
pub struct PolicyBinding {
    /// Its name.
    pub name: String,
    /// The name of the policy.
    pub policy: String,
    /// The requests to which it narrows the policy.
    pub criteria: MatchCriteria,
    /// `Deny`, `Warn` and `Audit`.
    pub actions: Vec<String>,
    /// The parameters; null without any.
    pub param_ref: Value,
}

/// A policy or a binding.
#[derive(Clone)]
enum Read {
    Policy(Arc<PolicyDefinition>),
    Binding(Arc<PolicyBinding>),
}

/// The policies and bindings of this process by uid and revision.
static KNOWN: LazyLock<Mutex<HashMap<(Str, u64), Read>>> = LazyLock::new(Mutex::default);

/// Reads the objects of a resource; those that are known at their revision are not read again.
fn read(txn: &dyn Transaction, resource: Resource, parse: fn(&Object) -> Read) -> ApiResult<Vec<Read>> {
    let mut all = Vec::new();
    txn.visit(resource, &mut |uid, revision, object| {
        let key = (Str::from(uid), revision);
        let kept = || KNOWN.lock().ignore_poison();
        let known = kept().get(&key).cloned();
        let read = match known {
            Some(read) => read,
            None => {
                let read = parse(&object()?);
                let mut kept = kept();
                if kept.len() >= MAX_KEPT {
                    kept.clear();
                }
                kept.insert(key, read.clone());
                read
            }
        };
        all.push(read);
        Ok(())
    })?;
    Ok(all)
}

/// The policies of a type, by name.
pub fn policies(txn: &dyn Transaction, kind: PolicyType) -> ApiResult<Vec<Arc<PolicyDefinition>>> {
    let parse = if kind.mutates { read_mutating } else { read_validating };
    let all = read(txn, kind.policies, parse)?.into_iter();
    Ok(all.filter_map(|read| if let Read::Policy(policy) = read { Some(policy) } else { None }).collect())
}

/// The bindings of a type, by name.
pub fn bindings(txn: &dyn Transaction, kind: PolicyType) -> ApiResult<Vec<Arc<PolicyBinding>>> {
    let all = read(txn, kind.bindings, read_binding)?.into_iter();
    Ok(all.filter_map(|read| if let Read::Binding(binding) = read { Some(binding) } else { None }).collect())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn read_validating(object: &Object) -> Read {
    read_policy(object, false)
}

fn read_mutating(object: &Object) -> Read {
    read_policy(object, true)
}

fn read_policy(object: &Object, mutates: bool) -> Read {
    let spec = &object.0["spec"];
    let param_kind = &spec["paramKind"];
    Read::Policy(Arc::new(PolicyDefinition {
        name: object.name().to_owned(),
        criteria: MatchCriteria::from_match_resources(&spec["matchConstraints"]),
        param_kind: (!param_kind.is_null()).then(|| (text(&param_kind["apiVersion"]), text(&param_kind["kind"]))),
        fails: spec["failurePolicy"] != "Ignore",
        reinvokes: spec["reinvocationPolicy"] == "IfNeeded",
        spec: spec.clone(),
        mutates,
        programs: OnceLock::new(),
    }))
}

fn read_binding(object: &Object) -> Read {
    let spec = &object.0["spec"];
    let actions = spec["validationActions"].as_array().into_iter().flatten();
    Read::Binding(Arc::new(PolicyBinding {
        name: object.name().to_owned(),
        policy: text(&spec["policyName"]),
        criteria: MatchCriteria::from_match_resources(&spec["matchResources"]),
        actions: actions.map(text).collect(),
        param_ref: spec["paramRef"].clone(),
    }))
}
