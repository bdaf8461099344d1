//! `nfs`: a folder of a file server.

use super::{VolumeType, check_named};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::NFSVolumeSource;

impl VolumeType for NFSVolumeSource {
    fn field(&self) -> &'static str {
        "nfs"
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        check_named("server", Some(&self.server), path, errors);
        check_named("path", Some(&self.path), path, errors);
        if !self.path.starts_with('/') {
            errors.invalid(&path.child("path"), self.path.as_str(), "must be an absolute path");
        }
    }
}
