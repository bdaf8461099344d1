//! VolumeAttachment (storage.k8s.io/v1).

use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed, omit};
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
        if self.spec.attacher.is_empty() {
            errors.required(&path.child("attacher"), "");
        }
        if self.spec.node_name.is_empty() {
            errors.required(&path.child("nodeName"), "");
        }
        let source = &self.spec.source;
        if source.persistent_volume_name.is_none() && source.inline_volume_spec.is_none() {
            errors.required(
                &path.child("source"),
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            );
        }
    }
}
