//! MutatingAdmissionPolicy (admissionregistration.k8s.io/v1).

use super::shared::admission_policy::{self, AdmissionPolicy, check_one_of};
use super::shared::policy_programs::{PolicyCheck, Wanted};
use super::shared::{omit, webhook};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::admissionregistration::v1::{MutatingAdmissionPolicy, Mutation};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    categories: &["api-extensions"],
    status: false,
    unconditional_update: false,
    merge_rules: &admission_policy::MERGE_RULES,
    shape: &admission_policy::SHAPE,
    ..Kind::new::<MutatingAdmissionPolicy>(
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy",
        &view::table_only::MUTATING_POLICY,
    )
};

/// Operations with an object that can be changed.
pub const OPERATIONS: &[&str] = &["CREATE", "UPDATE"];

impl Typed for MutatingAdmissionPolicy {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::default_text(&mut spec.failure_policy, "Fail");
        if let Some(resources) = &mut spec.match_constraints {
            webhook::default_match(resources);
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        let Some(spec) = &self.spec else { return };
        let policy = AdmissionPolicy {
            failure_policy: spec.failure_policy.as_deref(),
            param_kind: spec.param_kind.as_ref(),
            constraints: spec.match_constraints.as_ref(),
            conditions: spec.match_conditions.as_deref().unwrap_or_default(),
            variables: spec.variables.as_deref().unwrap_or_default(),
        };
        let expressions = admission_policy::check(&policy, true, &path, errors);
        if let Some(resources) = &spec.match_constraints {
            admission_policy::check_operations(resources, OPERATIONS, &path.child("matchConstraints"), errors);
        }
        let mutations = spec.mutations.as_deref().unwrap_or_default();
        if mutations.is_empty() {
            errors.required(&path.child("mutations"), "mutations must contain at least one item");
        }
        for (index, mutation) in mutations.iter().enumerate() {
            check_mutation(mutation, &expressions, &path.child("mutations").index(index), errors);
        }
        let policies = ["IfNeeded", "Never"];
        check_one_of(spec.reinvocation_policy.as_deref(), &policies, &path.child("reinvocationPolicy"), errors);
    }
}

fn check_mutation(mutation: &Mutation, expressions: &PolicyCheck, path: &FieldPath, errors: &mut FieldErrors) {
    let expression = |expression: &Option<String>| expression.clone().unwrap_or_default();
    let patch = ("jsonPatch", mutation.json_patch.as_ref().map(|patch| expression(&patch.expression)));
    let apply =
        ("applyConfiguration", mutation.apply_configuration.as_ref().map(|apply| expression(&apply.expression)));
    let patch_type = mutation.patch_type.as_str();
    let (wanted, other) = match patch_type {
        "JSONPatch" => (patch, apply),
        "ApplyConfiguration" => (apply, patch),
        _ => {
            return check_one_of(
                Some(patch_type),
                &["ApplyConfiguration", "JSONPatch"],
                &path.child("patchType"),
                errors,
            );
        }
    };
    match wanted.1.as_deref() {
        None => errors.required(&path.child(wanted.0), &format!("must be specified when patchType is {patch_type}")),
        Some(text) if text.trim().is_empty() => errors.required(&path.child(wanted.0).child("expression"), ""),
        Some(text) => {
            let kind = if patch_type == "JSONPatch" { Wanted::JsonPatch } else { Wanted::Configuration };
            expressions.check(text, kind, &path.child(wanted.0).child("expression"), errors);
        }
    }
    if other.1.is_some() {
        let detail = format!("must not be specified when patchType is {patch_type}");
        errors.invalid(&path.child(other.0), format!("{{{}}}", other.0), &detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use serde_json::{Value, json};

    fn wrong(patch: Value) -> Vec<String> {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let mut spec = json!({
            "matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}}],
        });
        json_patch::merge(&mut spec, &patch);
        let body = json!({"metadata": {"name": "a"}, "spec": spec});
        testing::field_errors::<MutatingAdmissionPolicy>(&body, None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn policies_are_checked_field_by_field() {
        assert_eq!(wrong(json!({})), Vec::<String>::new());
        let rule = |patch: Value| {
            let mut rule =
                json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
            json_patch::merge(&mut rule, &patch);
            json!({"matchConstraints": {"resourceRules": [rule]}})
        };
        let mutation = |mutation: Value| json!({"mutations": [mutation]});
        let cases = [
            (
                json!({"failurePolicy": "Odd"}),
                "spec.failurePolicy: Unsupported value: \"Odd\": supported values: \"Fail\", \"Ignore\"",
            ),
            (json!({"matchConstraints": null}), "spec.matchConstraints: Required value"),
            (
                json!({"matchConstraints": {"resourceRules": null}}),
                "spec.matchConstraints.resourceRules: Required value",
            ),
            (
                json!({"matchConstraints": {"matchPolicy": "Odd"}}),
                "spec.matchConstraints.matchPolicy: Unsupported value: \"Odd\": supported values: \"Equivalent\", \"Exact\"",
            ),
            (
                rule(json!({"operations": ["DELETE"]})),
                "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"CREATE\", \"UPDATE\"",
            ),
            (rule(json!({"apiGroups": []})), "spec.matchConstraints.resourceRules[0].apiGroups: Required value"),
            (
                rule(json!({"resourceNames": ["a", "a"]})),
                "spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: \"a\"",
            ),
            (json!({"mutations": []}), "spec.mutations: Required value: mutations must contain at least one item"),
            (mutation(json!({"patchType": ""})), "spec.mutations[0].patchType: Required value"),
            (
                mutation(json!({"patchType": "Odd"})),
                "spec.mutations[0].patchType: Unsupported value: \"Odd\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
            ),
            (
                mutation(json!({"patchType": "JSONPatch"})),
                "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            ),
            (
                mutation(json!({"patchType": "JSONPatch", "jsonPatch": {"expression": " "}})),
                "spec.mutations[0].jsonPatch.expression: Required value",
            ),
            (
                mutation(
                    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}, "jsonPatch": {}}),
                ),
                "spec.mutations[0].jsonPatch: Invalid value: \"{jsonPatch}\": must not be specified when patchType is ApplyConfiguration",
            ),
            (
                mutation(json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "object"}})),
                "spec.mutations[0].jsonPatch.expression: Invalid value: \"object\": must evaluate to list(JSONPatch) but got dyn",
            ),
            (json!({"reinvocationPolicy": null}), "spec.reinvocationPolicy: Required value"),
            (
                json!({"variables": [{"name": "a", "expression": ""}]}),
                "spec.variables[0].expression: Required value: expression is not specified",
            ),
            (
                json!({"variables": [{"name": "a-b", "expression": "1"}]}),
                "spec.variables[0].name: Invalid value: \"a-b\": must be a valid CEL identifier",
            ),
            (
                json!({"paramKind": {"apiVersion": "a/b/c", "kind": "A"}}),
                "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            ),
            (
                json!({"paramKind": {"apiVersion": "a/", "kind": "A"}}),
                "spec.paramKind.apiVersion: Invalid value: \"a/\": version must be specified",
            ),
            (json!({"paramKind": {"apiVersion": "v1"}}), "spec.paramKind.kind: Required value"),
        ];
        for (patch, expected) in cases {
            assert_eq!(wrong(patch.clone()), [expected], "{patch}");
        }
    }
}
