//! `image`: the files of an image.

use super::{VolumeType, check_named};
use crate::kinds::image::pull_policy::pull_policy;
use crate::kinds::omit::default_text;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::ImageVolumeSource;

impl VolumeType for ImageVolumeSource {
    fn field(&self) -> &'static str {
        "image"
    }

    fn fill_in_defaults(&mut self) {
        default_text(&mut self.pull_policy, pull_policy(self.reference.as_deref().unwrap_or_default()));
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let policies = ["Always", "IfNotPresent", "Never"];
        if let Some(other) = self.pull_policy.as_deref().filter(|text| !policies.contains(text)) {
            errors.unsupported(&path.child("pullPolicy"), other, &policies);
        }
    }

    fn check_in_pod(&self, path: &FieldPath, errors: &mut FieldErrors) {
        check_named("reference", self.reference.as_deref(), path, errors);
    }
}
