//! A pod's volumes as the machine gets them: the content of each, and where each container mounts it.

use crate::object::Str;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// View of files for a pod's containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum FilesystemView {
    /// The machine's files, without mounted volumes. The content of the listed volumes is still written to disk.
    #[default]
    Host,
    /// The machine's files under a private layer that takes every write, with volumes mounted.
    Private,
}

/// Everything about files that the start of a container needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFiles {
    /// View of files.
    pub view: FilesystemView,
    /// The pod's volumes, laid out before the container starts.
    pub volumes: Arc<[Volume]>,
    /// Mounts of this container, in the order of the spec.
    pub mounts: Vec<VolumeMountPoint>,
    /// Whether only the mounts are writable (`readOnlyRootFilesystem`).
    pub read_only: bool,
}

/// One volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Volume {
    /// Its name in the pod. One with a dot is kloop's own.
    pub name: Str,
    /// Content of the volume.
    pub source: VolumeContent,
}

/// Content of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VolumeContent {
    /// A folder that begins empty and lives as long as the pod.
    Empty,
    /// A folder in memory that begins empty and lives as long as the pod.
    Memory {
        /// Maximum size in bytes; `None` for no limit.
        most: Option<i64>,
    },
    /// Files with this content, replaced all at once when it changes. Containers cannot write in it.
    Files(Vec<VolumeFile>),
    /// A path of the machine.
    Host {
        /// Folder on the machine.
        path: String,
        /// The type that it has to have, in Kubernetes' words; empty for any.
        kind: String,
    },
    /// A folder of the cluster that outlives the pod: a provisioned PersistentVolume of this name.
    Kept(Str),
}

/// One file of a volume.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VolumeFile {
    /// Relative to the volume, without `..`.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// The bytes. They may be secret, so debug output never shows them.
    #[serde(with = "bytes")]
    pub content: Arc<[u8]>,
    /// The user that owns it; `None` for the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The group that owns it; `None` for the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Whether the content is the claims of a token, which the machine signs.
    #[serde(default, skip_serializing)]
    pub is_claims: bool,
}

impl VolumeFile {
    /// Creates a file of the machine's user and group.
    pub fn new(path: impl Into<String>, mode: u32, content: impl Into<Arc<[u8]>>) -> VolumeFile {
        VolumeFile { path: path.into(), mode, content: content.into(), user: None, group: None, is_claims: false }
    }
}

/// Mount of a volume in a container.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VolumeMountPoint {
    /// Name of the volume.
    pub volume: Str,
    /// `mountPath`.
    pub path: String,
    /// The part of the volume that is mounted, relative; empty for all of it.
    pub sub_path: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
}

impl std::fmt::Debug for VolumeFile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {:o} {} bytes", self.path, self.mode, self.content.len())
    }
}

impl VolumeContent {
    /// Whether the content is updated while the pod runs (ConfigMaps, Secrets, downward API).
    pub fn follows(&self) -> bool {
        matches!(self, VolumeContent::Files(_))
    }
}

/// Bytes as base64: they go to a pod's shim as JSON.
mod bytes {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(bytes: &Arc<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u8]>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(Arc::from).map_err(D::Error::custom)
    }
}

/// A number that differs when the content that volumes should have differs, or the volumes whose source is missing; the same in every
/// control plane of one build.
pub fn fingerprint(volumes: &[Volume], missing: &[Str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    missing.hash(&mut hasher);
    for volume in volumes.iter().filter(|volume| volume.source.follows()) {
        volume.hash(&mut hasher);
    }
    hasher.finish()
}
