//! `hostPath`: a path of the machine.

use super::VolumeType;
use crate::kinds::pod::paths;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::HostPathVolumeSource;

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
        let kinds =
            ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];
        let kind = self.type_.as_deref().unwrap_or_default();
        if !kinds.contains(&kind) {
            errors.unsupported(&path.child("type"), kind, &kinds);
        }
    }
}
