//! ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1).

use super::shared::admission_policy::{self, AdmissionPolicy};
use super::shared::policy_programs::{PolicyCheck, Wanted};
use super::shared::{names, omit, webhook};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use k8s_openapi::api::admissionregistration::v1::{self as api, ValidatingAdmissionPolicy};
use serde_json::json;
use std::collections::BTreeSet;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    categories: &["api-extensions"],
    unconditional_update: false,
    status_metadata: &[],
    merge_rules: &admission_policy::MERGE_RULES,
    shape: &admission_policy::SHAPE,
    ..Kind::new::<ValidatingAdmissionPolicy>(
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        &view::table_only::ADMISSION_POLICY,
    )
};

impl Typed for ValidatingAdmissionPolicy {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        spec.failure_policy.get_or_insert_with(|| "Fail".to_owned());
        omit::empty(&mut spec.validations);
        omit::empty(&mut spec.audit_annotations);
        omit::empty(&mut spec.match_conditions);
        omit::empty(&mut spec.variables);
        if let Some(resources) = &mut spec.match_constraints {
            webhook::default_match(resources);
        }
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({}));
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
        let expressions = admission_policy::check(&policy, false, &path, errors);
        let validates = spec.validations.as_ref().is_some_and(|all| !all.is_empty());
        let annotates = spec.audit_annotations.as_ref().is_some_and(|all| !all.is_empty());
        if !validates && !annotates {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.required(&path.child("validations"), detail);
            errors.required(&path.child("auditAnnotations"), detail);
        }
        for (index, validation) in spec.validations.iter().flatten().enumerate() {
            check_validation(validation, &expressions, &path.child("validations").index(index), errors);
        }
        let annotations = spec.audit_annotations.as_deref().unwrap_or_default();
        check_annotations(annotations, &expressions, &path.child("auditAnnotations"), errors);
    }
}

fn check_validation(
    validation: &api::Validation,
    expressions: &PolicyCheck,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    let at = path.child("expression");
    match validation.expression.trim() {
        "" => errors.required(&at, "expression is not specified"),
        _ => expressions.check(&validation.expression, Wanted::Bool, &at, errors),
    }
    let at = path.child("messageExpression");
    match validation.message_expression.as_deref() {
        None | Some("") => {}
        Some(text) if text.trim().is_empty() => errors.invalid(&at, text, "must be non-empty if specified"),
        Some(text) => expressions.check_text(text, Wanted::String, &at, errors),
    }
    let at = path.child("message");
    match validation.message.as_deref() {
        None | Some("") => {}
        Some(text) if text.trim().is_empty() => errors.invalid(&at, text, "message must be non-empty if specified"),
        Some(text) if text.trim().contains(['\n', '\r']) => {
            errors.invalid(&at, text, "message must not contain line breaks");
        }
        Some(_) => {}
    }
    if let Some(reason) = validation.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        errors.unsupported(&path.child("reason"), reason, &REASONS);
    }
}

/// Maximum number of annotations of one policy.
const MAX_ANNOTATIONS: usize = 20;

fn check_annotations(
    annotations: &[api::AuditAnnotation],
    expressions: &PolicyCheck,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if annotations.len() > MAX_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        errors.invalid(path, annotations.len(), &detail);
    }
    let mut seen = BTreeSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let (path, key) = (path.index(index), annotation.key.as_str());
        if key.is_empty() {
            errors.required(&path.child("key"), "");
        } else {
            errors.each_invalid(&path.child("key"), key, names::qualified(key));
        }
        let at = path.child("valueExpression");
        match annotation.value_expression.trim() {
            "" => errors.required(&at, "valueExpression is not specified"),
            _ => expressions.check_text(&annotation.value_expression, Wanted::OptionalString, &at, errors),
        }
        if !key.is_empty() && !seen.insert(key) {
            errors.duplicate(&path.child("key"), key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use serde_json::Value;

    fn wrong(patch: Value) -> Vec<String> {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let mut spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]});
        json_patch::merge(&mut spec, &patch);
        let body = json!({"metadata": {"name": "a"}, "spec": spec});
        testing::field_errors::<ValidatingAdmissionPolicy>(&body, None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn expressions_of_a_policy_are_compiled() {
        let validation = |validation: Value| json!({"validations": [validation]});
        let cases = [
            (validation(json!({"expression": "object.a == request.name"})), ""),
            (
                validation(json!({"expression": "1 + 1"})),
                "spec.validations[0].expression: Invalid value: \"1 + 1\": must evaluate to bool but got int",
            ),
            (
                validation(json!({"expression": "params.a == 1"})),
                "spec.validations[0].expression: Invalid value: \"params.a == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.a == 1\n | ^",
            ),
            (
                json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "params.a == 1"}]}),
                "",
            ),
            (
                validation(json!({"expression": "true", "messageExpression": "1"})),
                "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
            ),
            (
                validation(json!({"expression": "true", "message": "a\nb"})),
                "spec.validations[0].message: Invalid value: \"a\\nb\": message must not contain line breaks",
            ),
            (
                validation(json!({"expression": "true", "reason": "Odd"})),
                "spec.validations[0].reason: Unsupported value: \"Odd\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
            ),
            (
                json!({"auditAnnotations": [{"key": "a", "valueExpression": "1"}]}),
                "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] but got int",
            ),
            (
                json!({"variables": [{"name": "a", "expression": "1"}, {"name": "b", "expression": "variables.a + 1"}],
                    "validations": [{"expression": "variables.b == 2 && has(variables.a)"}]}),
                "",
            ),
            (
                json!({"validations": [{"expression": "variables.none == 2"}]}),
                "spec.validations[0].expression: Invalid value: \"variables.none == 2\": compilation failed: ERROR: <input>:1:10: undefined field 'none'\n | variables.none == 2\n | .........^",
            ),
            (
                json!({"matchConditions": [{"name": "a", "expression": "variables"}]}),
                "spec.matchConditions[0].expression: Invalid value: \"variables\": must evaluate to bool but got kubernetes.variables",
            ),
        ];
        for (patch, expected) in cases {
            assert_eq!(wrong(patch.clone()).join("\n"), expected, "{patch}");
        }
    }
}
