//! ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1).

use super::admission_policy::{self, AdmissionPolicy};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed, omit, webhook};
use crate::object::Object;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    categories: &["api-extensions"],
    unconditional_update: false,
    warnings: admission_policy::warn_of_no_effect,
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
        if let Some(resources) = &mut spec.match_constraints {
            webhook::default_match(resources);
        }
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.set(&["status"], json!({}));
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        let Some(spec) = &self.spec else { return };
        let validates = spec.validations.as_ref().is_some_and(|all| !all.is_empty());
        let annotates = spec.audit_annotations.as_ref().is_some_and(|all| !all.is_empty());
        if !validates && !annotates {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.required(&path.child("validations"), detail);
            errors.required(&path.child("auditAnnotations"), detail);
        }
        let policy = AdmissionPolicy {
            failure_policy: spec.failure_policy.as_deref(),
            param_kind: spec.param_kind.as_ref(),
            constraints: spec.match_constraints.as_ref(),
            conditions: spec.match_conditions.as_deref().unwrap_or_default(),
            variables: spec.variables.as_deref().unwrap_or_default(),
        };
        admission_policy::check(&policy, &path, errors);
        for (index, validation) in spec.validations.iter().flatten().enumerate() {
            if validation.expression.trim().is_empty() {
                let path = path.child("validations").index(index).child("expression");
                errors.required(&path, "expression is not specified");
            }
        }
    }
}
