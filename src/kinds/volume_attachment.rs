//! VolumeAttachment (storage.k8s.io/v1).

use super::shared::{names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed, csi_driver};
use crate::object::Object;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    generation: false,
    unconditional_update: false,
    returns_deleted: true,
    status_metadata: &[],
    ..Kind::new::<VolumeAttachment>(
        "volumeattachments.storage.k8s.io",
        "v1",
        "VolumeAttachment",
        &view::storage::ATTACHMENT,
    )
};

impl Typed for VolumeAttachment {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({"attached": false}));
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        if let Some(old) = old {
            errors.immutable(&path, &self.spec, &old.spec);
        }
        csi_driver::check_name(&self.spec.attacher, &path.child("attacher"), errors);
        let source = &self.spec.source;
        let at = path.child("source");
        let exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (&source.persistent_volume_name, &source.inline_volume_spec) {
            (None, None) => errors.required(&at, exactly_one),
            (Some(_), Some(_)) => errors.forbidden(&at, exactly_one),
            (Some(name), None) if name.is_empty() => {
                errors.required(&at.child("persistentVolumeName"), "must specify non empty persistentVolumeName");
            }
            _ => {}
        }
        let node = self.spec.node_name.as_str();
        errors.each_invalid(&path.child("nodeName"), node, names::subdomain(node));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::{Value, json};

    #[test]
    fn attachment_has_one_source_and_a_node() {
        let refused = |source: Value, node: &str| {
            let spec = json!({"attacher": "a.b", "nodeName": node, "source": source});
            let body = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "spec": spec});
            refusals(body)
                .into_iter()
                .map(|error| error.split(": ").take(2).collect::<Vec<_>>().join(": "))
                .collect::<Vec<_>>()
        };
        let volume = json!({"persistentVolumeName": "v"});
        assert_eq!(refused(volume.clone(), "n"), [""; 0]);
        assert_eq!(refused(json!({}), "n"), ["spec.source: Required value"]);
        let both = json!({"persistentVolumeName": "v", "inlineVolumeSpec": {}});
        assert_eq!(refused(both, "n"), ["spec.source: Forbidden"]);
        assert_eq!(
            refused(json!({"persistentVolumeName": ""}), "n"),
            ["spec.source.persistentVolumeName: Required value"]
        );
        assert_eq!(refused(volume, "N"), ["spec.nodeName: Invalid value"]);
    }
}
