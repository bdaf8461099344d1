//! Volumes: the defaults of their sources.

use super::defaults::{pull_policy, text};
use crate::kinds::omit::empty;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, PersistentVolumeClaimTemplate, ProjectedVolumeSource, Volume};

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
        text(&mut image.pull_policy, pull_policy(image.reference.as_deref().unwrap_or_default()));
    }
    volume.projected.iter_mut().for_each(projected);
    volume.ephemeral.iter_mut().filter_map(|source| source.volume_claim_template.as_mut()).for_each(claim);
    network(volume);
}

fn projected(projected: &mut ProjectedVolumeSource) {
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
        text(&mut field.api_version, "v1");
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
        text(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = &mut volume.rbd {
        text(&mut rbd.pool, "rbd");
        text(&mut rbd.user, "admin");
        text(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(disk) = &mut volume.azure_disk {
        disk.caching_mode.get_or_insert_with(|| "ReadWrite".into());
        disk.kind.get_or_insert_with(|| "Shared".into());
        disk.fs_type.get_or_insert_with(|| "ext4".into());
        disk.read_only.get_or_insert(false);
    }
    if let Some(volume) = &mut volume.scale_io {
        text(&mut volume.storage_mode, "ThinProvisioned");
        text(&mut volume.fs_type, "xfs");
    }
}
