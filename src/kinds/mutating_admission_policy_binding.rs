//! MutatingAdmissionPolicyBinding (admissionregistration.k8s.io/v1).

use super::mutating_admission_policy::OPERATIONS;
use super::shared::{admission_policy, omit, webhook};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::admissionregistration::v1::MutatingAdmissionPolicyBinding;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    categories: &["api-extensions"],
    status: false,
    unconditional_update: false,
    shape: &admission_policy::BINDING_SHAPE,
    ..Kind::new::<MutatingAdmissionPolicyBinding>(
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicyBinding",
        &view::table_only::ADMISSION_POLICY_BINDING,
    )
};

impl Typed for MutatingAdmissionPolicyBinding {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        if let Some(resources) = &mut spec.match_resources {
            webhook::default_match(resources);
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        let Some(spec) = &self.spec else { return };
        let (policy, resources) = (spec.policy_name.as_deref().unwrap_or_default(), spec.match_resources.as_ref());
        admission_policy::check_binding(policy, spec.param_ref.as_ref(), resources, &path, errors);
        if let Some(resources) = resources {
            admission_policy::check_operations(resources, OPERATIONS, &path.child("matchResources"), errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use serde_json::{Value, json};

    fn wrong(spec: Value) -> Vec<String> {
        let body = json!({"metadata": {"name": "a"}, "spec": spec});
        testing::field_errors::<MutatingAdmissionPolicyBinding>(&body, None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn bindings_are_checked() {
        let parameters = |parameters: Value| json!({"policyName": "p", "paramRef": parameters});
        assert_eq!(wrong(parameters(json!({"name": "a", "parameterNotFoundAction": "Deny"}))), Vec::<String>::new());
        let cases = [
            (json!({}), "spec.policyName: Required value"),
            (parameters(json!({"name": "a"})), "spec.paramRef.parameterNotFoundAction: Required value"),
            (
                parameters(json!({"parameterNotFoundAction": "Deny"})),
                "spec.paramRef: Required value: one of name or selector must be specified",
            ),
            (
                parameters(json!({"name": "a/b", "parameterNotFoundAction": "Deny"})),
                "spec.paramRef.name: Invalid value: \"a/b\": may not contain '/'",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(wrong(spec.clone()), [expected], "{spec}");
        }
    }
}
