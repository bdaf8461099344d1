//! CSINode (storage.k8s.io/v1).

use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed, names, omit};
use k8s_openapi::api::storage::v1::CSINode;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    generation: false,
    unconditional_update: false,
    ..Kind::new::<CSINode>("csinodes.storage.k8s.io", "v1", "CSINode", &view::storage::CSI_NODE)
};

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
