//! Checks of volume mounts and volume devices.

use super::paths;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use std::collections::{BTreeMap, BTreeSet};

/// The volumes of a pod by name.
pub type PodVolumes<'v> = BTreeMap<&'v str, &'v Volume>;

/// Checks a container's mounts and block devices.
pub fn check(container: &Container, volumes: &PodVolumes<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    check_mounts(container, volumes, &path.child("volumeMounts"), errors);
    check_devices(container, volumes, &path.child("volumeDevices"), errors);
}

fn check_mounts(container: &Container, volumes: &PodVolumes<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let at = path.index(index);
        if mount.name.is_empty() {
            errors.required(&at.child("name"), "");
        }
        if !volumes.contains_key(mount.name.as_str()) {
            errors.not_found(&at.child("name"), mount.name.as_str());
        }
        if mount.mount_path.is_empty() {
            errors.required(&at.child("mountPath"), "");
        }
        if !seen.insert(mount.mount_path.as_str()) {
            errors.invalid(&at.child("mountPath"), mount.mount_path.as_str(), "must be unique");
        }
        for device in container.volume_devices.iter().flatten() {
            if device.name == mount.name {
                errors.invalid(&at.child("name"), mount.name.as_str(), "must not already exist in volumeDevices");
            }
            if device.device_path == mount.mount_path {
                let detail = "must not already exist as a path in volumeDevices";
                errors.invalid(&at.child("mountPath"), mount.mount_path.as_str(), detail);
            }
        }
        check_sub_path(mount, &at, path, errors);
        check_sharing(mount, container, path, errors);
    }
}

/// Checks subpaths. As in Kubernetes, most of these errors have a path without the index.
fn check_sub_path(mount: &VolumeMount, at: &FieldPath, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(sub_path) = &mount.sub_path {
        paths::check_descending(sub_path, &path.child("subPath"), errors);
    }
    if let Some(expression) = &mount.sub_path_expr {
        if mount.sub_path.is_some() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&at.child("subPathExpr"), expression.as_str(), detail);
        }
        paths::check_descending(expression, &path.child("subPathExpr"), errors);
    }
}

fn check_sharing(mount: &VolumeMount, container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    let known = ["Bidirectional", "HostToContainer", "None"];
    let at = path.child("mountPropagation");
    match mount.mount_propagation.as_deref() {
        Some("Bidirectional") if !is_privileged(container) => {
            errors.forbidden(&at, "Bidirectional mount propagation is available only to privileged containers");
        }
        Some(other) if !known.contains(&other) => errors.unsupported(&at, other, &known),
        _ => {}
    }
    let known = ["Disabled", "Enabled", "IfPossible"];
    let at = path.child("recursiveReadOnly");
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.read_only != Some(true) {
                errors.forbidden(&at, "may only be specified when readOnly is true");
            }
            if mount.mount_propagation.as_deref().is_some_and(|propagation| propagation != "None") {
                errors.forbidden(&at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => errors.unsupported(&at, other, &known),
    }
}

fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().is_some_and(|security| security.privileged == Some(true))
}

fn check_devices(container: &Container, volumes: &PodVolumes<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let (mut seen_names, mut seen_paths) = (BTreeSet::new(), BTreeSet::new());
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let mounted: BTreeSet<&str> = mounts.iter().map(|mount| &*mount.name).collect();
    let mount_paths: BTreeSet<&str> = mounts.iter().map(|mount| &*mount.mount_path).collect();
    for (index, device) in container.volume_devices.iter().flatten().enumerate() {
        let (name, file) = (device.name.as_str(), device.device_path.as_str());
        let at = path.index(index);
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        }
        if !name.is_empty() && !seen_names.insert(name) {
            errors.invalid(&at.child("name"), name, "must be unique");
        }
        match volumes.get(name) {
            None => errors.not_found(&at.child("name"), name),
            Some(volume) if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&at.child("name"), name, detail);
            }
            Some(_) => {}
        }
        if file.is_empty() {
            errors.required(&at.child("devicePath"), "");
        }
        if seen_paths.contains(file) {
            errors.invalid(&at.child("devicePath"), file, "must be unique");
        }
        if file.split('/').any(|part| part == "..") {
            errors.invalid(&at.child("devicePath"), file, "can not contain backsteps ('..')");
        } else {
            seen_paths.insert(file);
        }
        if mounted.contains(name) {
            errors.invalid(&at.child("name"), name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(file) {
            errors.invalid(&at.child("devicePath"), file, "must not already exist as a path in volumeMounts");
        }
    }
}
