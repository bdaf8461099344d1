//! ClusterRoleBinding (rbac.authorization.k8s.io/v1).

use super::shared::{omit, rbac};
use super::view;
use super::{FieldErrors, Kind, NameRule, Typed};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    generation: false,
    create_on_update: true,
    name_rule: NameRule::PathSegment,
    shape: &rbac::BINDING_SHAPE,
    ..Kind::new::<ClusterRoleBinding>(
        "clusterrolebindings.rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        &view::rbac::CLUSTER_BINDING,
    )
};

impl Typed for ClusterRoleBinding {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        rbac::default_binding(&mut self.role_ref, &mut self.subjects);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let old = old.map(|old| &old.role_ref);
        rbac::check_binding(&self.role_ref, old, self.subjects.as_deref(), false, errors);
    }
}
