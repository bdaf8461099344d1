//! CSINode (storage.k8s.io/v1).

use super::catalogue::{merge_rules, shapes};
use super::shared::{names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::storage::v1::CSINode;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    generation: false,
    unconditional_update: false,
    merge_rules: &MERGE_RULES,
    shape: &SHAPE,
    returns_deleted: true,
    ..Kind::new::<CSINode>("csinodes.storage.k8s.io", "v1", "CSINode", &view::storage::CSI_NODE)
};

static MERGE_RULES: MergeSchema = MergeSchema::new(&[merge_rules::META, ("spec", merge_rules::map(&SPEC_MERGE_RULES))]);
static SPEC_MERGE_RULES: MergeSchema = MergeSchema::new(&[("drivers", merge_rules::list("name", &merge_rules::ANY))]);
static SHAPE: StructShape = StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE)))]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("drivers", shapes::keyed_list(shapes::NAME, &shapes::ANY))]);

impl Typed for CSINode {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        for (index, driver) in self.spec.drivers.iter().enumerate() {
            let path = FieldPath::root("spec").child("drivers").index(index);
            match driver.name.as_str() {
                "" => errors.required(&path.child("name"), ""),
                name => errors.each_invalid(&path.child("name"), name, names::subdomain(&name.to_lowercase())),
            }
            if driver.node_id.is_empty() {
                errors.required(&path.child("nodeID"), "");
            }
        }
    }
}
