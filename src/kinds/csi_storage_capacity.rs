//! CSIStorageCapacity (storage.k8s.io/v1).

use super::catalogue::shapes;
use super::shared::{amount, names, omit, selector};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    status: false,
    generation: false,
    unconditional_update: false,
    shape: &SHAPE,
    ..Kind::new::<CSIStorageCapacity>(
        "csistoragecapacities.storage.k8s.io",
        "v1",
        "CSIStorageCapacity",
        &view::storage::CSI_STORAGE_CAPACITY,
    )
};

static SHAPE: StructShape = StructShape::new(&[shapes::META, ("nodeTopology", shapes::ATOMIC)]);

impl Typed for CSIStorageCapacity {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (topology, class) = (FieldPath::root("nodeTopology"), FieldPath::root("storageClassName"));
        errors.each_invalid(&class, self.storage_class_name.as_str(), names::subdomain(&self.storage_class_name));
        if let Some(nodes) = &self.node_topology {
            selector::check(nodes, &topology, errors);
        }
        for (field, size) in [("capacity", &self.capacity), ("maximumVolumeSize", &self.maximum_volume_size)] {
            if let Some(size) = size.as_ref().filter(|size| amount::quantity(size).is_negative()) {
                let detail = "must be greater than or equal to 0";
                errors.invalid(&FieldPath::root(field), size.0.as_str(), detail);
            }
        }
        if let Some(old) = old {
            if self.node_topology != old.node_topology {
                errors.invalid(&topology, json!(self.node_topology), "field is immutable");
            }
            errors.immutable(&class, &self.storage_class_name, &old.storage_class_name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use crate::object::Object;
    use serde_json::Value;

    fn wrong(patch: Value, old: Option<&Object>) -> Vec<String> {
        let mut body = json!({"metadata": {"name": "a"}, "storageClassName": "fast", "capacity": "1Gi"});
        json_patch::merge(&mut body, &patch);
        testing::field_errors::<CSIStorageCapacity>(&body, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn capacities_are_checked() {
        assert_eq!(wrong(json!({"nodeTopology": {"matchLabels": {"zone": "a"}}}), None), Vec::<String>::new());
        let cases = [
            (
                json!({"storageClassName": "A_"}),
                "storageClassName: Invalid value: \"A_\": a lowercase RFC 1123 subdomain",
            ),
            (json!({"capacity": "-1"}), "capacity: Invalid value: \"-1\": must be greater than or equal to 0"),
            (json!({"maximumVolumeSize": "-1"}), "maximumVolumeSize: Invalid value: \"-1\": must be greater"),
            (json!({"nodeTopology": {"matchLabels": {"-": "a"}}}), "nodeTopology.matchLabels: Invalid value: \"-\""),
        ];
        for (patch, start) in cases {
            let found = wrong(patch.clone(), None);
            assert!(found.len() == 1 && found[0].starts_with(start), "{patch}: {found:?}");
        }
        let old = Object(json!({"metadata": {"name": "a"}, "storageClassName": "slow", "nodeTopology": {}}));
        assert_eq!(
            wrong(json!({"capacity": "2Gi"}), Some(&old)),
            [
                "nodeTopology: Invalid value: null: field is immutable",
                "storageClassName: Invalid value: \"fast\": field is immutable"
            ]
        );
    }
}
