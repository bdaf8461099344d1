//! `csi`: a volume of a driver.

use super::VolumeType;
use crate::kinds::{FieldErrors, FieldPath, csi_driver, names};
use k8s_openapi::api::core::v1::CSIVolumeSource;

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
