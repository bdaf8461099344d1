//! `emptyDir`: a folder of the pod.

use super::VolumeType;
use crate::kinds::omit::empty;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::Quantity;
use k8s_openapi::api::core::v1::EmptyDirVolumeSource;

impl VolumeType for EmptyDirVolumeSource {
    fn field(&self) -> &'static str {
        "emptyDir"
    }

    fn fill_in_defaults(&mut self) {
        empty(&mut self.medium);
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let limit = self.size_limit.as_ref().and_then(|text| Quantity::parse(&text.0).ok());
        if limit.is_some_and(Quantity::is_negative) {
            errors.forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
    }
}
