//! Volumes: the defaults and checks of their sources.

mod projected;

use super::mounts::PodVolumes;
use super::{env, paths};
use crate::kinds::image::pull_policy::pull_policy;
use crate::kinds::omit::{default_text, empty};
use crate::kinds::{FieldErrors, FieldPath, csi_driver, names, persistent_volume_claim, volume_source};
use crate::object::Quantity;
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, EmptyDirVolumeSource, HostPathVolumeSource, KeyToPath, PersistentVolumeClaimTemplate,
    ProjectedVolumeSource, Volume,
};
use serde::Serialize;
use serde_json::{Value, json};

/// The mode of files in volumes whose files the kubelet writes: 0644.
const FILE_MODE: i32 = 0o644;

/// Fills in one volume; without a source it is an emptyDir.
pub fn default(volume: &mut Volume) {
    let bare = Volume { name: volume.name.clone(), ..Default::default() };
    if *volume == bare {
        volume.empty_dir = Some(Default::default());
    }
    if let Some(dir) = &mut volume.empty_dir {
        empty(&mut dir.medium);
    }
    if let Some(host) = &mut volume.host_path {
        host.type_.get_or_insert_default();
    }
    if let Some(secret) = &mut volume.secret {
        empty(&mut secret.secret_name);
        empty(&mut secret.items);
        secret.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(map) = &mut volume.config_map {
        empty(&mut map.items);
        map.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(downward) = &mut volume.downward_api {
        empty(&mut downward.items);
        downward.default_mode.get_or_insert(FILE_MODE);
        downward.items.iter_mut().flatten().for_each(downward_file);
    }
    if let Some(claim) = &mut volume.persistent_volume_claim {
        empty(&mut claim.read_only);
    }
    if let Some(image) = &mut volume.image {
        default_text(&mut image.pull_policy, pull_policy(image.reference.as_deref().unwrap_or_default()));
    }
    volume.projected.iter_mut().for_each(default_projected);
    volume.ephemeral.iter_mut().filter_map(|source| source.volume_claim_template.as_mut()).for_each(claim);
    network(volume);
}

fn default_projected(projected: &mut ProjectedVolumeSource) {
    projected.default_mode.get_or_insert(FILE_MODE);
    for source in projected.sources.iter_mut().flatten() {
        if let Some(token) = &mut source.service_account_token {
            empty(&mut token.audience);
            token.expiration_seconds.get_or_insert(3600);
        }
        if let Some(downward) = &mut source.downward_api {
            empty(&mut downward.items);
            downward.items.iter_mut().flatten().for_each(downward_file);
        }
        source.config_map.iter_mut().for_each(|map| empty(&mut map.items));
        source.secret.iter_mut().for_each(|secret| empty(&mut secret.items));
    }
}

fn downward_file(file: &mut DownwardAPIVolumeFile) {
    if let Some(field) = &mut file.field_ref {
        default_text(&mut field.api_version, "v1");
    }
    if let Some(resource) = &mut file.resource_field_ref {
        resource.divisor.get_or_insert_with(|| k8s_openapi::apimachinery::pkg::api::resource::Quantity("0".into()));
    }
}

fn claim(template: &mut PersistentVolumeClaimTemplate) {
    template.metadata.get_or_insert_default();
    template.spec.resources.get_or_insert_default();
    template.spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
}

/// Sources that name a machine elsewhere; kept whole though kloop mounts none of them.
fn network(volume: &mut Volume) {
    if let Some(iscsi) = &mut volume.iscsi {
        default_text(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = &mut volume.rbd {
        default_text(&mut rbd.pool, "rbd");
        default_text(&mut rbd.user, "admin");
        default_text(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(disk) = &mut volume.azure_disk {
        disk.caching_mode.get_or_insert_with(|| "ReadWrite".into());
        disk.kind.get_or_insert_with(|| "Shared".into());
        disk.fs_type.get_or_insert_with(|| "ext4".into());
        disk.read_only.get_or_insert(false);
    }
    if let Some(volume) = &mut volume.scale_io {
        default_text(&mut volume.storage_mode, "ThinProvisioned");
        default_text(&mut volume.fs_type, "xfs");
    }
}

/// Checks the volumes of a pod; gives those without fault, by name.
pub fn check<'v>(volumes: &'v [Volume], path: &FieldPath, errors: &mut FieldErrors) -> PodVolumes<'v> {
    let mut good = PodVolumes::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let mut own = FieldErrors::default();
        check_source(volume, &path, &mut own);
        match volume.name.as_str() {
            "" => own.required(&path.child("name"), ""),
            name => own.each_invalid(&path.child("name"), name, names::label(name)),
        }
        if good.contains_key(volume.name.as_str()) {
            own.duplicate(&path.child("name"), volume.name.as_str());
        }
        if own.0.is_empty() {
            good.insert(&volume.name, volume);
        }
        errors.0.append(&mut own.0);
    }
    good
}

/// One source of a volume, and what is wrong with it.
struct VolumeSourceCheck {
    field: &'static str,
    wrong: FieldErrors,
}

/// A volume has one source; that one is checked and the others are forbidden.
fn check_source(volume: &Volume, path: &FieldPath, errors: &mut FieldErrors) {
    let mut sources: Vec<VolumeSourceCheck> = Vec::new();
    let mut add = |field: &'static str, check: &dyn Fn(&FieldPath, &mut FieldErrors)| {
        let mut wrong = FieldErrors::default();
        check(&path.child(field), &mut wrong);
        sources.push(VolumeSourceCheck { field, wrong });
    };
    if let Some(dir) = &volume.empty_dir {
        add("emptyDir", &|path, errors| check_empty_dir(dir, path, errors));
    }
    if let Some(host) = &volume.host_path {
        add("hostPath", &|path, errors| check_host_path(host, path, errors));
    }
    if let Some(secret) = &volume.secret {
        add("secret", &|path, errors| {
            check_named("secretName", secret.secret_name.as_deref(), path, errors);
            check_files(secret.default_mode, secret.items.as_deref(), path, errors);
        });
    }
    if let Some(nfs) = &volume.nfs {
        add("nfs", &|path, errors| {
            check_named("server", Some(&nfs.server), path, errors);
            check_named("path", Some(&nfs.path), path, errors);
            if !nfs.path.starts_with('/') {
                errors.invalid(&path.child("path"), nfs.path.as_str(), "must be an absolute path");
            }
        });
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        add("persistentVolumeClaim", &|path, errors| {
            check_named("claimName", Some(&claim.claim_name), path, errors);
        });
    }
    if let Some(downward) = &volume.downward_api {
        add("downwardAPI", &|path, errors| {
            check_mode("defaultMode", downward.default_mode, path, errors);
            let items = downward.items.as_deref().unwrap_or_default();
            items.iter().for_each(|file| check_downward_file(file, path, errors));
        });
    }
    if let Some(map) = &volume.config_map {
        add("configMap", &|path, errors| {
            check_named("name", Some(&map.name), path, errors);
            check_files(map.default_mode, map.items.as_deref(), path, errors);
        });
    }
    if let Some(all) = &volume.projected {
        add("projected", &|path, errors| projected::check(all, path, errors));
    }
    if let Some(csi) = &volume.csi {
        add("csi", &|path, errors| {
            csi_driver::check_name(&csi.driver, &path.child("driver"), errors);
            if let Some(secret) = &csi.node_publish_secret_ref {
                match secret.name.as_str() {
                    "" => errors.required(&path.child("nodePublishSecretRef").child("name"), ""),
                    name => errors.each_invalid(&path.child("name"), name, names::subdomain(name)),
                }
            }
        });
    }
    if let Some(ephemeral) = &volume.ephemeral {
        add("ephemeral", &|path, errors| {
            let path = path.child("volumeClaimTemplate");
            match &ephemeral.volume_claim_template {
                Some(template) => persistent_volume_claim::check_template(template, &path, errors),
                None => errors.required(&path, ""),
            }
        });
    }
    if let Some(image) = &volume.image {
        add("image", &|path, errors| {
            let policies = ["Always", "IfNotPresent", "Never"];
            if let Some(other) = image.pull_policy.as_deref().filter(|text| !policies.contains(text)) {
                errors.unsupported(&path.child("pullPolicy"), other, &policies);
            }
        });
    }
    for (field, fields) in network_sources(volume) {
        add(field, &|path, errors| volume_source::check(field, &fields, path, errors));
    }
    let mut sources = sources.into_iter();
    if let Some(mut only) = sources.next() {
        errors.0.append(&mut only.wrong.0);
    }
    sources.for_each(|more| errors.forbidden(&path.child(more.field), "may not specify more than 1 volume type"));
}

/// The sources that are checked alike in PersistentVolumes, with their fields.
fn network_sources(volume: &Volume) -> impl Iterator<Item = (&'static str, Value)> {
    fn fields(source: &Option<impl Serialize>) -> Option<Value> {
        source.as_ref().map(|source| json!(source))
    }
    let all = [
        ("gitRepo", fields(&volume.git_repo)),
        ("gcePersistentDisk", fields(&volume.gce_persistent_disk)),
        ("awsElasticBlockStore", fields(&volume.aws_elastic_block_store)),
        ("iscsi", fields(&volume.iscsi)),
        ("glusterfs", fields(&volume.glusterfs)),
        ("rbd", fields(&volume.rbd)),
        ("cinder", fields(&volume.cinder)),
        ("cephfs", fields(&volume.cephfs)),
        ("flocker", fields(&volume.flocker)),
        ("fc", fields(&volume.fc)),
        ("flexVolume", fields(&volume.flex_volume)),
        ("azureFile", fields(&volume.azure_file)),
        ("vsphereVolume", fields(&volume.vsphere_volume)),
        ("photonPersistentDisk", fields(&volume.photon_persistent_disk)),
        ("portworxVolume", fields(&volume.portworx_volume)),
        ("quobyte", fields(&volume.quobyte)),
        ("azureDisk", fields(&volume.azure_disk)),
        ("storageos", fields(&volume.storageos)),
        ("scaleIO", fields(&volume.scale_io)),
    ];
    all.into_iter().filter_map(|(field, fields)| Some((field, fields?)))
}

/// Checks what only a pod needs, not yet a template: the reference of a volume from an image.
pub fn check_images(volumes: &[Volume], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, volume) in volumes.iter().enumerate() {
        if let Some(image) = &volume.image {
            check_named("reference", image.reference.as_deref(), &path.index(index).child("image"), errors);
        }
    }
}

fn check_named(field: &str, text: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    if text.unwrap_or_default().is_empty() {
        errors.required(&path.child(field), "");
    }
}

fn check_empty_dir(dir: &EmptyDirVolumeSource, path: &FieldPath, errors: &mut FieldErrors) {
    let limit = dir.size_limit.as_ref().and_then(|text| Quantity::parse(&text.0).ok());
    if limit.is_some_and(Quantity::is_negative) {
        errors.forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

fn check_host_path(host: &HostPathVolumeSource, path: &FieldPath, errors: &mut FieldErrors) {
    if host.path.is_empty() {
        return errors.required(&path.child("path"), "");
    }
    paths::check_no_backsteps(&host.path, &path.child("path"), errors);
    let kinds = ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];
    let kind = host.type_.as_deref().unwrap_or_default();
    if !kinds.contains(&kind) {
        errors.unsupported(&path.child("type"), kind, &kinds);
    }
}

/// Mode and keys of a volume made of keys.
pub(super) fn check_files(mode: Option<i32>, items: Option<&[KeyToPath]>, path: &FieldPath, errors: &mut FieldErrors) {
    check_mode("defaultMode", mode, path, errors);
    for (index, item) in items.unwrap_or_default().iter().enumerate() {
        let path = path.child("items").index(index);
        check_named("key", Some(&item.key), &path, errors);
        paths::check_file(&item.path, &path.child("path"), errors);
        check_mode("mode", item.mode, &path, errors);
    }
}

fn check_mode(field: &str, mode: Option<i32>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.child(field), mode, detail);
    }
}

pub(super) fn check_downward_file(file: &DownwardAPIVolumeFile, path: &FieldPath, errors: &mut FieldErrors) {
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
