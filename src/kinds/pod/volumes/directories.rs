//! Volumes of a single directory: `emptyDir`, `hostPath`, `nfs`, `image` and `csi`.

use super::{VolumeType, check_named};
use crate::kinds::image::pull_policy::pull_policy;
use crate::kinds::pod::paths;
use crate::kinds::shared::omit::{default_text, empty};
use crate::kinds::shared::{names, volume_source};
use crate::kinds::{FieldErrors, FieldPath, csi_driver};
use crate::object::Quantity;
use k8s_openapi::api::core::v1::{
    CSIVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource, NFSVolumeSource,
};

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

impl VolumeType for HostPathVolumeSource {
    fn field(&self) -> &'static str {
        "hostPath"
    }

    fn fill_in_defaults(&mut self) {
        self.type_.get_or_insert_default();
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        if self.path.is_empty() {
            return errors.required(&path.child("path"), "");
        }
        paths::check_no_backsteps(&self.path, &path.child("path"), errors);
        volume_source::check_host_path_type(self.type_.as_deref().unwrap_or_default(), &path.child("type"), errors);
    }
}

impl VolumeType for NFSVolumeSource {
    fn field(&self) -> &'static str {
        "nfs"
    }

    fn fill_in_defaults(&mut self) {
        empty(&mut self.read_only);
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        check_named("server", Some(&self.server), path, errors);
        check_named("path", Some(&self.path), path, errors);
        if !self.path.starts_with('/') {
            errors.invalid(&path.child("path"), self.path.as_str(), "must be an absolute path");
        }
    }
}

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

impl VolumeType for CSIVolumeSource {
    fn field(&self) -> &'static str {
        "csi"
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        csi_driver::check_name(&self.driver, &path.child("driver"), errors);
        if let Some(secret) = &self.node_publish_secret_ref {
            match secret.name.as_str() {
                "" => errors.required(&path.child("nodePublishSecretRef").child("name"), ""),
                name => errors.each_invalid(&path.child("name"), name, names::subdomain(name)),
            }
        }
    }
}
