//! `configMap`, `secret` and `downwardAPI`: volumes whose files the kubelet writes.

use super::{VolumeType, check_named};
use crate::kinds::pod::{env, paths};
use crate::kinds::shared::omit::{default_text, empty};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, KeyToPath, SecretVolumeSource,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The default mode of files that the kubelet writes in volumes.
pub const FILE_MODE: i32 = 0o644;

impl VolumeType for SecretVolumeSource {
    fn field(&self) -> &'static str {
        "secret"
    }

    fn fill_in_defaults(&mut self) {
        empty(&mut self.secret_name);
        empty(&mut self.items);
        self.default_mode.get_or_insert(FILE_MODE);
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        check_named("secretName", self.secret_name.as_deref(), path, errors);
        check_files(self.default_mode, self.items.as_deref(), path, errors);
    }

    fn is_made_of_objects(&self) -> bool {
        true
    }

    fn names_objects(&self) -> bool {
        true
    }
}

impl VolumeType for ConfigMapVolumeSource {
    fn field(&self) -> &'static str {
        "configMap"
    }

    fn fill_in_defaults(&mut self) {
        empty(&mut self.items);
        self.default_mode.get_or_insert(FILE_MODE);
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        check_named("name", Some(&self.name), path, errors);
        check_files(self.default_mode, self.items.as_deref(), path, errors);
    }

    fn is_made_of_objects(&self) -> bool {
        true
    }

    fn names_objects(&self) -> bool {
        true
    }
}

impl VolumeType for DownwardAPIVolumeSource {
    fn field(&self) -> &'static str {
        "downwardAPI"
    }

    fn fill_in_defaults(&mut self) {
        empty(&mut self.items);
        self.default_mode.get_or_insert(FILE_MODE);
        self.items.iter_mut().flatten().for_each(fill_in_downward_file);
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        check_mode("defaultMode", self.default_mode, path, errors);
        let items = self.items.as_deref().unwrap_or_default();
        items.iter().for_each(|file| check_downward_file(file, path, errors));
    }

    fn is_made_of_objects(&self) -> bool {
        true
    }
}

/// Sets the defaults of one file of the downward API.
pub fn fill_in_downward_file(file: &mut DownwardAPIVolumeFile) {
    if let Some(field) = &mut file.field_ref {
        default_text(&mut field.api_version, "v1");
    }
    if let Some(resource) = &mut file.resource_field_ref {
        resource.divisor.get_or_insert_with(|| Quantity("0".into()));
    }
}

/// Checks mode and items of a volume of keys.
pub fn check_files(mode: Option<i32>, items: Option<&[KeyToPath]>, path: &FieldPath, errors: &mut FieldErrors) {
    check_mode("defaultMode", mode, path, errors);
    for (index, item) in items.unwrap_or_default().iter().enumerate() {
        let path = path.child("items").index(index);
        check_named("key", Some(&item.key), &path, errors);
        paths::check_file(&item.path, &path.child("path"), errors);
        check_mode("mode", item.mode, &path, errors);
    }
}

/// Checks the permission bits of a file.
pub fn check_mode(field: &str, mode: Option<i32>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.child(field), mode, detail);
    }
}

/// Checks one file of the downward API.
pub fn check_downward_file(file: &DownwardAPIVolumeFile, path: &FieldPath, errors: &mut FieldErrors) {
    paths::check_file(&file.path, &path.child("path"), errors);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), both) => {
            env::check_file_field(field, &path.child("fieldRef"), errors);
            if both.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(path, "resource", detail);
            }
        }
        (None, Some(resource)) => env::check_resource(resource, true, &path.child("resourceFieldRef"), errors),
        (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    check_mode("mode", file.mode, path, errors);
}
