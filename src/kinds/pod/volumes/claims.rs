//! `persistentVolumeClaim`, a claim of the namespace, and `ephemeral`, a claim of a single pod.

use super::{VolumeType, check_named};
use crate::kinds::shared::omit::empty;
use crate::kinds::{FieldErrors, FieldPath, persistent_volume_claim};
use k8s_openapi::api::core::v1::{EphemeralVolumeSource, PersistentVolumeClaimVolumeSource};

impl VolumeType for PersistentVolumeClaimVolumeSource {
    fn field(&self) -> &'static str {
        "persistentVolumeClaim"
    }

    fn fill_in_defaults(&mut self) {
        empty(&mut self.read_only);
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        check_named("claimName", Some(&self.claim_name), path, errors);
    }

    fn claim_name(&self, _pod: &str, _volume: &str) -> Option<String> {
        Some(self.claim_name.clone())
    }
}

impl VolumeType for EphemeralVolumeSource {
    fn field(&self) -> &'static str {
        "ephemeral"
    }

    fn fill_in_defaults(&mut self) {
        if let Some(template) = &mut self.volume_claim_template {
            template.metadata.get_or_insert_default();
            template.spec.resources.get_or_insert_default();
            template.spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
        }
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let path = path.child("volumeClaimTemplate");
        match &self.volume_claim_template {
            Some(template) => persistent_volume_claim::check_template(template, &path, errors),
            None => errors.required(&path, ""),
        }
    }

    fn claim_name(&self, pod: &str, volume: &str) -> Option<String> {
        Some(format!("{pod}-{volume}"))
    }
}
