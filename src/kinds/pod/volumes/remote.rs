//! Cloud disks and network file systems, none of which kloop mounts. PersistentVolumes have the same sources.

use super::VolumeType;
use crate::kinds::shared::omit::default_text;
use crate::kinds::shared::volume_source::{self, fill_in_azure_disk};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, AzureFileVolumeSource, CephFSVolumeSource,
    CinderVolumeSource, FCVolumeSource, FlexVolumeSource, FlockerVolumeSource, GCEPersistentDiskVolumeSource,
    GitRepoVolumeSource, GlusterfsVolumeSource, ISCSIVolumeSource, PhotonPersistentDiskVolumeSource,
    PortworxVolumeSource, QuobyteVolumeSource, RBDVolumeSource, ScaleIOVolumeSource, StorageOSVolumeSource,
    VsphereVirtualDiskVolumeSource,
};
use serde_json::json;

/// Lists the types: field, source, and optional function that sets defaults.
macro_rules! remote_types {
    ($($field:literal $source:ty $(, $defaults:ident)?;)*) => {
        $(impl VolumeType for $source {
            fn field(&self) -> &'static str {
                $field
            }

            fn fill_in_defaults(&mut self) {
                $($defaults(self);)?
            }

            fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
                volume_source::check($field, &json!(self), path, errors);
            }
        })*
    };
}

remote_types! {
    "gitRepo" GitRepoVolumeSource;
    "gcePersistentDisk" GCEPersistentDiskVolumeSource;
    "awsElasticBlockStore" AWSElasticBlockStoreVolumeSource;
    "iscsi" ISCSIVolumeSource, fill_in_iscsi;
    "glusterfs" GlusterfsVolumeSource;
    "rbd" RBDVolumeSource, fill_in_rbd;
    "cinder" CinderVolumeSource;
    "cephfs" CephFSVolumeSource;
    "flocker" FlockerVolumeSource;
    "fc" FCVolumeSource;
    "flexVolume" FlexVolumeSource;
    "azureFile" AzureFileVolumeSource;
    "vsphereVolume" VsphereVirtualDiskVolumeSource;
    "photonPersistentDisk" PhotonPersistentDiskVolumeSource;
    "portworxVolume" PortworxVolumeSource;
    "quobyte" QuobyteVolumeSource;
    "azureDisk" AzureDiskVolumeSource, fill_in_azure_disk;
    "storageos" StorageOSVolumeSource;
    "scaleIO" ScaleIOVolumeSource, fill_in_scale_io;
}

fn fill_in_iscsi(iscsi: &mut ISCSIVolumeSource) {
    default_text(&mut iscsi.iscsi_interface, "default");
}

fn fill_in_rbd(rbd: &mut RBDVolumeSource) {
    default_text(&mut rbd.pool, "rbd");
    default_text(&mut rbd.user, "admin");
    default_text(&mut rbd.keyring, "/etc/ceph/keyring");
}

fn fill_in_scale_io(volume: &mut ScaleIOVolumeSource) {
    default_text(&mut volume.storage_mode, "ThinProvisioned");
    default_text(&mut volume.fs_type, "xfs");
}
