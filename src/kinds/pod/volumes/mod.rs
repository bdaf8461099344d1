//! Volumes: the types of their sources, with defaults and checks.
//!
//! Never: decides the content of a volume; `crate::kubelet::volumes` does. Start reading at [`VolumeType`], and at the table of all types
//! below it.

mod claims;
mod directories;
mod files;
mod projected;
mod remote;

use super::mounts::PodVolumes;
use crate::kinds::shared::{names, volume_source};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, AzureFileVolumeSource, CSIVolumeSource,
    CephFSVolumeSource, CinderVolumeSource, ConfigMapVolumeSource, DownwardAPIVolumeSource, EmptyDirVolumeSource,
    EphemeralVolumeSource, FCVolumeSource, FlexVolumeSource, FlockerVolumeSource, GCEPersistentDiskVolumeSource,
    GitRepoVolumeSource, GlusterfsVolumeSource, HostPathVolumeSource, ISCSIVolumeSource, ImageVolumeSource,
    NFSVolumeSource, PersistentVolumeClaimVolumeSource, PhotonPersistentDiskVolumeSource, PortworxVolumeSource,
    ProjectedVolumeSource, QuobyteVolumeSource, RBDVolumeSource, ScaleIOVolumeSource, SecretVolumeSource,
    StorageOSVolumeSource, Volume, VsphereVirtualDiskVolumeSource,
};

/// Functions of a volume type that need neither cluster nor machine.
pub trait VolumeType {
    /// Its field in a volume.
    fn field(&self) -> &'static str;

    /// Sets the defaults of absent fields.
    fn fill_in_defaults(&mut self) {}

    /// Checks its fields.
    fn check(&self, path: &FieldPath, errors: &mut FieldErrors);

    /// Checks that apply only to pods, not to templates.
    fn check_in_pod(&self, _path: &FieldPath, _errors: &mut FieldErrors) {}

    /// Returns the name of the claim behind this volume of this pod.
    fn claim_name(&self, _pod: &str, _volume: &str) -> Option<String> {
        None
    }

    /// Whether it is made of objects of the cluster, so that a simulated machine lacks it as well when they are missing.
    fn is_made_of_objects(&self) -> bool {
        false
    }

    /// Whether it names ConfigMaps or Secrets that the cluster does not make itself.
    fn names_objects(&self) -> bool {
        false
    }
}

/// Lists the types: variant, source, and field in a volume, in Kubernetes' order of checks.
macro_rules! volume_types {
    ($($(#[$doc:meta])* $variant:ident($source:ty) $field:ident;)*) => {
        /// The source of a volume.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum VolumeSource<'v> {
            $($(#[$doc])* $variant(&'v $source),)*
        }

        impl<'v> VolumeSource<'v> {
            /// Returns the sources of a volume; validation refuses more than one.
            fn all_of(volume: &'v Volume) -> impl Iterator<Item = VolumeSource<'v>> {
                [$(volume.$field.as_ref().map(VolumeSource::$variant)),*].into_iter().flatten()
            }

            /// Returns the functions of its type.
            fn as_type(self) -> &'v dyn VolumeType {
                match self {
                    $(VolumeSource::$variant(source) => source,)*
                }
            }
        }

        /// Sets the defaults of one volume; without a source it is an emptyDir.
        pub fn fill_in_defaults(volume: &mut Volume) {
            if VolumeSource::from_volume(volume).is_none() {
                volume.empty_dir = Some(EmptyDirVolumeSource::default());
            }
            $(volume.$field.iter_mut().for_each(VolumeType::fill_in_defaults);)*
        }
    };
}

volume_types! {
    /// An initially empty folder with the lifetime of the pod.
    EmptyDir(EmptyDirVolumeSource) empty_dir;
    /// A path of the machine.
    HostPath(HostPathVolumeSource) host_path;
    /// A Git repository.
    GitRepo(GitRepoVolumeSource) git_repo;
    /// A disk of Google's cloud.
    GcePersistentDisk(GCEPersistentDiskVolumeSource) gce_persistent_disk;
    /// A disk of Amazon's cloud.
    AwsElasticBlockStore(AWSElasticBlockStoreVolumeSource) aws_elastic_block_store;
    /// The keys of a Secret.
    Secret(SecretVolumeSource) secret;
    /// A folder of a file server.
    Nfs(NFSVolumeSource) nfs;
    /// An iSCSI disk.
    Iscsi(ISCSIVolumeSource) iscsi;
    /// A GlusterFS volume.
    Glusterfs(GlusterfsVolumeSource) glusterfs;
    /// A Flocker dataset.
    Flocker(FlockerVolumeSource) flocker;
    /// A claim of the namespace.
    PersistentVolumeClaim(PersistentVolumeClaimVolumeSource) persistent_volume_claim;
    /// A block device of Ceph.
    Rbd(RBDVolumeSource) rbd;
    /// A disk of OpenStack.
    Cinder(CinderVolumeSource) cinder;
    /// A folder of Ceph.
    Cephfs(CephFSVolumeSource) cephfs;
    /// A Quobyte volume.
    Quobyte(QuobyteVolumeSource) quobyte;
    /// Fields of the pod.
    DownwardApi(DownwardAPIVolumeSource) downward_api;
    /// A Fibre Channel disk.
    Fc(FCVolumeSource) fc;
    /// A volume of a FlexVolume driver.
    FlexVolume(FlexVolumeSource) flex_volume;
    /// The keys of a ConfigMap.
    ConfigMap(ConfigMapVolumeSource) config_map;
    /// A file share of Microsoft's cloud.
    AzureFile(AzureFileVolumeSource) azure_file;
    /// A disk of vSphere.
    VsphereVolume(VsphereVirtualDiskVolumeSource) vsphere_volume;
    /// A disk of Photon.
    PhotonPersistentDisk(PhotonPersistentDiskVolumeSource) photon_persistent_disk;
    /// A Portworx volume.
    PortworxVolume(PortworxVolumeSource) portworx_volume;
    /// A disk of Microsoft's cloud.
    AzureDisk(AzureDiskVolumeSource) azure_disk;
    /// A StorageOS volume.
    StorageOs(StorageOSVolumeSource) storageos;
    /// Several sources in one folder.
    Projected(ProjectedVolumeSource) projected;
    /// A ScaleIO volume.
    ScaleIo(ScaleIOVolumeSource) scale_io;
    /// A volume of a driver.
    Csi(CSIVolumeSource) csi;
    /// A claim with the lifetime of the pod.
    Ephemeral(EphemeralVolumeSource) ephemeral;
    /// The files of an image.
    Image(ImageVolumeSource) image;
}

impl<'v> VolumeSource<'v> {
    /// Returns the source of a volume.
    pub fn from_volume(volume: &'v Volume) -> Option<VolumeSource<'v>> {
        VolumeSource::all_of(volume).next()
    }

    /// Returns the name of the claim behind this volume of this pod.
    pub fn claim_name(self, pod: &str, volume: &str) -> Option<String> {
        self.as_type().claim_name(pod, volume)
    }

    /// Whether it is made of objects of the cluster.
    pub fn is_made_of_objects(self) -> bool {
        self.as_type().is_made_of_objects()
    }

    /// Whether it names ConfigMaps or Secrets that the cluster does not make itself.
    pub fn names_objects(self) -> bool {
        self.as_type().names_objects()
    }
}

/// Checks the volumes of a pod. Returns the valid ones by name.
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
        errors.extend(own.0);
    }
    good
}

/// Checks the source of a volume, and refuses further ones.
fn check_source(volume: &Volume, path: &FieldPath, errors: &mut FieldErrors) {
    let mut sources = VolumeSource::all_of(volume).map(VolumeSource::as_type);
    if let Some(first) = sources.next() {
        first.check(&path.child(volume_source::shown_field(first.field())), errors);
    }
    for more in sources {
        // Kubernetes' messages misspell two of the names.
        let field = match more.field() {
            "cephfs" => "cephFS",
            "downwardAPI" => "downwarAPI",
            field => field,
        };
        errors.forbidden(&path.child(field), "may not specify more than 1 volume type");
    }
}

/// Runs the checks that apply only to pods, not to templates.
pub fn check_in_pod(volumes: &[Volume], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, volume) in volumes.iter().enumerate() {
        if let Some(source) = VolumeSource::from_volume(volume).map(VolumeSource::as_type) {
            source.check_in_pod(&path.index(index).child(source.field()), errors);
        }
    }
}

fn check_named(field: &str, text: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    if text.unwrap_or_default().is_empty() {
        errors.required(&path.child(field), "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn every_type_is_read_from_its_field() {
        let kubernetes = [
            "awsElasticBlockStore",
            "azureDisk",
            "azureFile",
            "cephfs",
            "cinder",
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "fc",
            "flexVolume",
            "flocker",
            "gcePersistentDisk",
            "gitRepo",
            "glusterfs",
            "hostPath",
            "image",
            "iscsi",
            "nfs",
            "persistentVolumeClaim",
            "photonPersistentDisk",
            "portworxVolume",
            "projected",
            "quobyte",
            "rbd",
            "scaleIO",
            "secret",
            "storageos",
            "vsphereVolume",
        ];
        for field in kubernetes {
            let volume: Volume = from_value(json!({"name": "v", field: {}})).expect("a volume");
            let source = VolumeSource::from_volume(&volume).map(|source| source.as_type().field());
            assert_eq!(source, Some(field));
        }
    }

    #[test]
    fn second_source_is_forbidden() {
        let found = |volume| {
            let volume: Volume = from_value(volume).expect("a volume");
            let mut errors = FieldErrors::default();
            check(&[volume], &FieldPath::root("volumes"), &mut errors);
            errors.0.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        let two = json!({"name": "v", "nfs": {}, "emptyDir": {}});
        assert_eq!(found(two), ["volumes[0].nfs"], "the first is checked, the other refused");
        let four = json!({"name": "v", "gcePersistentDisk": {"pdName": ""}, "image": {}, "cephfs": {"monitors": []}, "downwardAPI": {}});
        let expected =
            ["persistentDisk.pdName", "cephFS", "downwarAPI", "image"].map(|field| format!("volumes[0].{field}"));
        assert_eq!(found(four), expected, "in Kubernetes' order");
    }
}
