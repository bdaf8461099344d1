//! Parts that validating and mutating admission policies and their bindings share (admissionregistration.k8s.io/v1).

use super::super::catalogue::{merge_rules, shapes};
use super::super::{FieldErrors, FieldPath};
use super::policy_programs::PolicyCheck;
use super::{names, selector, webhook, webhook_rule};
use crate::cel::names::is_identifier;
use crate::object::merge::schema::MergeSchema;
use crate::object::split_api_version;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ParamKind, ParamRef, RuleWithOperations, Variable,
};
use std::collections::BTreeSet;

/// The merge rules of both kinds of policies.
pub static MERGE_RULES: MergeSchema =
    MergeSchema::new(&[merge_rules::META, ("spec", merge_rules::map(&SPEC_MERGE_RULES)), merge_rules::STATUS]);
static SPEC_MERGE_RULES: MergeSchema = MergeSchema::new(&[
    ("matchConditions", merge_rules::list("name", &merge_rules::ANY)),
    ("variables", merge_rules::list("name", &merge_rules::ANY)),
]);
/// The shape of both kinds of policies.
pub static SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))), shapes::STATUS]);
static SPEC_SHAPE: StructShape = StructShape::new(&[
    ("matchConditions", shapes::keyed_list(shapes::NAME, &shapes::ANY)),
    ("matchConstraints", shapes::ATOMIC),
    ("paramKind", shapes::ATOMIC),
    ("variables", shapes::keyed_list(shapes::NAME, &shapes::ANY)),
]);
/// The shape of both kinds of bindings.
pub static BINDING_SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&BINDING_SPEC_SHAPE)))]);
static BINDING_SPEC_SHAPE: StructShape = StructShape::new(&[
    ("matchResources", shapes::ATOMIC),
    ("paramRef", shapes::ATOMIC),
    ("validationActions", shapes::SET),
]);

/// The fields that both kinds of policy have.
pub struct AdmissionPolicy<'p> {
    /// `Fail` or `Ignore`.
    pub failure_policy: Option<&'p str>,
    /// The kind of the objects that hold parameters.
    pub param_kind: Option<&'p ParamKind>,
    /// The requests that the policy is about.
    pub constraints: Option<&'p MatchResources>,
    /// Further conditions.
    pub conditions: &'p [MatchCondition],
    /// Named expressions.
    pub variables: &'p [Variable],
}

/// Checks the fields that both kinds of policy have, and returns the variables that the other expressions can use.
pub fn check(policy: &AdmissionPolicy, mutates: bool, path: &FieldPath, errors: &mut FieldErrors) -> PolicyCheck {
    let has_params = policy.param_kind.is_some();
    let mut expressions = PolicyCheck::new(has_params, mutates);
    check_one_of(policy.failure_policy, &["Fail", "Ignore"], &path.child("failurePolicy"), errors);
    if let Some(kind) = policy.param_kind {
        check_param_kind(kind, &path.child("paramKind"), errors);
    }
    let constraints = path.child("matchConstraints");
    match policy.constraints {
        None => errors.required(&constraints, ""),
        Some(resources) => {
            check_resources(resources, &constraints, errors);
            if resources.resource_rules.as_ref().is_none_or(Vec::is_empty) {
                errors.required(&constraints.child("resourceRules"), "");
            }
        }
    }
    webhook::check_conditions(policy.conditions, has_params, &path.child("matchConditions"), errors);
    for (index, variable) in policy.variables.iter().enumerate() {
        let path = path.child("variables").index(index);
        match variable.name.trim() {
            "" => errors.required(&path.child("name"), "name is not specified"),
            _ if is_identifier(&variable.name) => {}
            _ => errors.invalid(&path.child("name"), variable.name.as_str(), "must be a valid CEL identifier"),
        }
        let at = path.child("expression");
        match variable.expression.trim() {
            "" => errors.required(&at, "expression is not specified"),
            _ => expressions.add_variable(&variable.name, &variable.expression, &at, errors),
        }
    }
    expressions
}

/// The operations of rules, where a policy that changes objects can have no others.
pub fn check_operations(resources: &MatchResources, known: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("resourceRules").child("operations");
    let rules = resources.resource_rules.iter().flatten();
    let operations = rules.filter_map(|rule| rule.operations.as_deref()).flatten();
    for other in operations.filter(|operation| !known.contains(&operation.as_str())) {
        errors.unsupported(&path, other.as_str(), known);
    }
}

/// Checks the policy that a binding names, its parameters and the requests that it narrows the policy to.
pub fn check_binding(
    policy: &str,
    parameters: Option<&ParamRef>,
    resources: Option<&MatchResources>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    match policy {
        "" => errors.required(&path.child("policyName"), ""),
        name => errors.each_invalid(&path.child("policyName"), name, names::subdomain(name)),
    }
    if let Some(parameters) = parameters {
        check_parameters(parameters, &path.child("paramRef"), errors);
    }
    if let Some(resources) = resources {
        check_resources(resources, &path.child("matchResources"), errors);
    }
}

/// Checks that a value is present and known.
pub fn check_one_of(value: Option<&str>, known: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    match value.unwrap_or_default() {
        "" => errors.required(path, ""),
        value if known.contains(&value) => {}
        other => errors.unsupported(path, other, known),
    }
}

fn check_param_kind(kind: &ParamKind, path: &FieldPath, errors: &mut FieldErrors) {
    let (api_version, name) = (path.child("apiVersion"), path.child("kind"));
    match kind.api_version.as_deref().unwrap_or_default() {
        "" => errors.required(&api_version, ""),
        text if text.matches('/').count() > 1 => {
            errors.invalid(&api_version, text, &format!("unexpected GroupVersion string: {text}"));
        }
        text => {
            let (group, version) = split_api_version(text);
            let problems = if group.is_empty() { Vec::new() } else { names::subdomain(group) };
            if !problems.is_empty() {
                errors.invalid(&api_version, group, &problems.join(","));
            }
            let problems = names::label_1035(version);
            if version.is_empty() {
                errors.invalid(&api_version, text, "version must be specified");
            } else if !problems.is_empty() {
                errors.invalid(&api_version, version, &problems.join(","));
            }
        }
    }
    let text = kind.kind.as_deref().unwrap_or_default();
    let problems = names::label_1035(&text.to_lowercase());
    if text.is_empty() {
        errors.required(&name, "");
    } else if !problems.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
        errors.invalid(&name, text, &detail);
    }
}

fn check_parameters(parameters: &ParamRef, path: &FieldPath, errors: &mut FieldErrors) {
    const BOTH: &str = "name and selector are mutually exclusive";
    let name = parameters.name.as_deref().filter(|name| !name.is_empty());
    if let Some(name) = name {
        errors.each_invalid(&path.child("name"), name, names::path_segment(name));
    }
    match (name, &parameters.selector) {
        (None, None) => errors.required(path, "one of name or selector must be specified"),
        (Some(_), Some(_)) => {
            errors.forbidden(&path.child("name"), BOTH);
            errors.forbidden(&path.child("selector"), BOTH);
        }
        _ => {}
    }
    if let Some(selector) = &parameters.selector {
        selector::check(selector, &path.child("selector"), errors);
    }
    let action = parameters.parameter_not_found_action.as_deref();
    check_one_of(action, &["Allow", "Deny"], &path.child("parameterNotFoundAction"), errors);
}

fn check_resources(resources: &MatchResources, path: &FieldPath, errors: &mut FieldErrors) {
    check_one_of(resources.match_policy.as_deref(), &["Equivalent", "Exact"], &path.child("matchPolicy"), errors);
    let selectors =
        [("namespaceSelector", &resources.namespace_selector), ("objectSelector", &resources.object_selector)];
    for (field, selector) in selectors {
        match selector {
            None => errors.required(&path.child(field), ""),
            Some(selector) => selector::check(selector, &path.child(field), errors),
        }
    }
    let rules =
        [("resourceRules", &resources.resource_rules), ("excludeResourceRules", &resources.exclude_resource_rules)];
    for (field, rules) in rules {
        for (index, rule) in rules.iter().flatten().enumerate() {
            check_rule(rule, &path.child(field).index(index), errors);
        }
    }
}

fn check_rule(rule: &NamedRuleWithOperations, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, name) in rule.resource_names.iter().flatten().enumerate() {
        let path = path.child("resourceNames").index(index);
        errors.each_invalid(&path, name.as_str(), names::path_segment(name));
        if !seen.insert(name) {
            errors.duplicate(&path, name.as_str());
        }
    }
    let plain = RuleWithOperations {
        api_groups: rule.api_groups.clone(),
        api_versions: rule.api_versions.clone(),
        operations: rule.operations.clone(),
        resources: rule.resources.clone(),
        scope: rule.scope.clone(),
    };
    webhook_rule::check(&plain, path, errors);
}
