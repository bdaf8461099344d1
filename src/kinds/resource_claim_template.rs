//! ResourceClaimTemplate (resource.k8s.io/v1).

use super::catalogue::shapes;
use super::device::claim;
use super::shared::{metadata, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed, device};
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    status: false,
    generation: false,
    warnings: |_| Vec::new(),
    shape: &SHAPE,
    ..Kind::new::<ResourceClaimTemplate>(
        "resourceclaimtemplates.resource.k8s.io",
        "v1",
        "ResourceClaimTemplate",
        &view::generic::VIEW,
    )
};

static SHAPE: StructShape = StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE)))]);
static SPEC_SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&device::CLAIM_SPEC_SHAPE)))]);

impl Typed for ResourceClaimTemplate {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::metadata(self.spec.metadata.get_or_insert_default());
        claim::default(&mut self.spec.spec);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        if let Some(old) = old {
            return errors.immutable(&path, &self.spec, &old.spec);
        }
        if let Some(meta) = &self.spec.metadata {
            metadata::check_template(meta, &path.child("metadata"), errors);
        }
        claim::check(&self.spec.spec, &path.child("spec"), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use crate::object::Object;
    use serde_json::{Value, json};

    fn wrong(spec: Value, old: Option<&Object>) -> Vec<String> {
        let body = json!({"metadata": {"name": "a"}, "spec": spec});
        testing::field_errors::<ResourceClaimTemplate>(&body, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn templates_are_checked_and_stay() {
        let spec = |class: &str| json!({"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": class}}]}}});
        assert_eq!(wrong(spec("gpu"), None), Vec::<String>::new());
        assert_eq!(wrong(spec(""), None), ["spec.spec.devices.requests[0].exactly.deviceClassName: Required value"]);
        let mut labelled = spec("gpu");
        labelled["metadata"] = json!({"labels": {"a": "b c"}});
        let found = wrong(labelled, None);
        assert!(found.len() == 1 && found[0].starts_with("spec.metadata.labels: Invalid value: \"b c\""), "{found:?}");
        let old = Object(json!({"metadata": {"name": "a"}, "spec": spec("other")}));
        let found = wrong(spec("gpu"), Some(&old));
        assert!(found.len() == 1 && found[0].starts_with("spec: Invalid value: {"), "{found:?}");
    }
}
