//! ValidatingAdmissionPolicyBinding (admissionregistration.k8s.io/v1).

use super::shared::{admission_policy, omit, webhook};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use serde_json::json;
use std::collections::BTreeSet;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    categories: &["api-extensions"],
    status: false,
    unconditional_update: false,
    shape: &admission_policy::BINDING_SHAPE,
    ..Kind::new::<ValidatingAdmissionPolicyBinding>(
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        &view::table_only::ADMISSION_POLICY_BINDING,
    )
};

impl Typed for ValidatingAdmissionPolicyBinding {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        if let Some(resources) = &mut self.spec.match_resources {
            webhook::default_match(resources);
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        let (policy, resources) = (self.spec.policy_name.as_str(), self.spec.match_resources.as_ref());
        admission_policy::check_binding(policy, self.spec.param_ref.as_ref(), resources, &path, errors);
        let actions = path.child("validationActions");
        let known = ["Audit", "Deny", "Warn"];
        if self.spec.validation_actions.is_empty() {
            errors.required(&actions, "at least one validation action is required");
        }
        for action in self.spec.validation_actions.iter().filter(|action| !known.contains(&action.as_str())) {
            errors.unsupported(&actions, action.as_str(), &known);
        }
        let all = &self.spec.validation_actions;
        let mut seen = BTreeSet::new();
        for action in all.iter().filter(|action| !seen.insert(action.as_str())) {
            errors.duplicate(&actions, action.as_str());
        }
        let has = |wanted: &str| all.iter().any(|action| action == wanted);
        if has("Deny") && has("Warn") {
            let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and \
                          headers serves no purpose)";
            errors.invalid(&actions, json!(all), detail);
        }
    }
}
