//! ServiceAccount (core/v1).

use super::view;
use super::{FieldErrors, Kind, Typed, merge_rules, omit, shapes};
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::core::v1::ServiceAccount;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["sa"],
    status: false,
    generation: false,
    merge_rules: &MERGE_RULES,
    shape: &SHAPE,
    returns_deleted: true,
    ..Kind::new::<ServiceAccount>("serviceaccounts", "v1", "ServiceAccount", &view::service_account::VIEW)
};

static MERGE_RULES: MergeSchema =
    MergeSchema::new(&[merge_rules::META, ("secrets", merge_rules::list("name", &merge_rules::ANY))]);
static SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("secrets", shapes::keyed_list(shapes::NAME, &shapes::ANY))]);

impl Typed for ServiceAccount {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.secrets);
        omit::empty(&mut self.image_pull_secrets);
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut FieldErrors) {}
}
