//! Role (rbac.authorization.k8s.io/v1).

use super::shared::{omit, rbac};
use super::view;
use super::{FieldErrors, Kind, NameRule, Typed};
use k8s_openapi::api::rbac::v1::Role;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: true,
    status: false,
    generation: false,
    create_on_update: true,
    name_rule: NameRule::PathSegment,
    normalize: rbac::normalize_role::<Role>,
    ..Kind::new::<Role>("roles.rbac.authorization.k8s.io", "v1", "Role", &view::rbac::ROLE)
};

impl Typed for Role {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        rbac::omit_empty(&mut self.rules);
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        rbac::check_rules(self.rules.as_deref().unwrap_or_default(), true, errors);
    }
}
