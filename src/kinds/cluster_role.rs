//! ClusterRole (rbac.authorization.k8s.io/v1).

use super::shared::{omit, rbac, selector};
use super::view;
use super::{FieldErrors, FieldPath, Kind, NameRule, Typed};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::Value;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    generation: false,
    create_on_update: true,
    name_rule: NameRule::PathSegment,
    normalize: rbac::normalize_role::<ClusterRole>,
    ..Kind::new::<ClusterRole>("clusterroles.rbac.authorization.k8s.io", "v1", "ClusterRole", &view::rbac::CLUSTER_ROLE)
};

impl Typed for ClusterRole {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        rbac::omit_empty(&mut self.rules);
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        rbac::check_rules(self.rules.as_deref().unwrap_or_default(), false, errors);
        if let Some(rule) = &self.aggregation_rule
            && rule.cluster_role_selectors.as_ref().is_none_or(Vec::is_empty)
        {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.required(&FieldPath::root("aggregationRule").child("clusterRoleSelectors"), detail);
        }
        let selectors = self.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
        for (index, selector) in selectors.enumerate() {
            let path = FieldPath::root("aggregationRule").child("clusterRoleSelectors").index(index);
            let before = errors.0.len();
            selector::check(selector, &path, errors);
            if errors.0.len() > before {
                errors.invalid(&path, Value::Null, "invalid label selector.");
            }
        }
    }
}
