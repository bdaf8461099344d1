//! Volumes that are content: ConfigMaps, Secrets, the downward API, tokens, and projections of several of them.

use super::super::fields;
use super::super::pod::LocalPod;
use super::super::user;
use super::token;
use crate::kinds::shared::data_keys::decode_value;
use crate::object::Object;
use crate::world::volume::VolumeFile;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, DownwardAPIVolumeFile, DownwardAPIVolumeSource, KeyToPath, ProjectedVolumeSource,
    SecretVolumeSource, VolumeProjection,
};
use std::collections::HashMap;

/// Default mode of files.
const MODE: i32 = 0o644;
/// The ConfigMap with the cluster's authority, which every pod mounts and no pod waits for.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Maximum bytes of all files in a pod's volumes. One key of a ConfigMap can be the content of thousands of files, and every start of a
/// container takes all of them to the shim ([`crate::runtime`] bounds its requests above this).
pub const MAX_POD_FILE_BYTES: usize = 24 << 20;

/// The bytes that further files of a pod's volumes may take. One pass over the volumes shares one budget.
pub struct FileBudget(usize);

impl Default for FileBudget {
    fn default() -> FileBudget {
        FileBudget(MAX_POD_FILE_BYTES)
    }
}

impl FileBudget {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| {
            let most = MAX_POD_FILE_BYTES >> 20;
            format!(
                "the files of the pod's volumes take more than {most} MiB: mount fewer items, or a folder by hostPath"
            )
        })?;
        Ok(())
    }
}

/// Files, or the message about a missing object or key.
pub type VolumeFiles = Result<Vec<VolumeFile>, String>;

/// The keys of a ConfigMap.
pub fn config_map(pod: &LocalPod, map: &ConfigMapVolumeSource, budget: &mut FileBudget) -> VolumeFiles {
    let items = map.items.as_deref();
    keys(pod, &CONFIG_MAP, &map.name, items, map.optional, map.default_mode.unwrap_or(MODE), budget)
}

/// The keys of a Secret.
pub fn secret(pod: &LocalPod, secret: &SecretVolumeSource, budget: &mut FileBudget) -> VolumeFiles {
    let (name, mode) = (secret.secret_name.as_deref().unwrap_or_default(), secret.default_mode.unwrap_or(MODE));
    keys(pod, &SECRET, name, secret.items.as_deref(), secret.optional, mode, budget)
}

/// Facts of the pod.
pub fn downward_api(pod: &LocalPod, downward: &DownwardAPIVolumeSource, budget: &mut FileBudget) -> VolumeFiles {
    downward_files(pod, downward.items.as_deref(), downward.default_mode.unwrap_or(MODE), budget)
}

/// Whether a volume shows the pod's annotations, which the kubelet itself changes.
pub fn show_annotations(pod: &LocalPod) -> bool {
    let shown = |items: &Option<Vec<DownwardAPIVolumeFile>>| {
        let mut fields = items.iter().flatten().filter_map(|item| item.field_ref.as_ref());
        fields.any(|field| field.field_path.starts_with("metadata.annotations"))
    };
    pod.spec.volumes.iter().flatten().any(|volume| {
        let projections = volume.projected.iter().filter_map(|projected| projected.sources.as_ref()).flatten();
        volume.downward_api.as_ref().is_some_and(|downward| shown(&downward.items))
            || projections.filter_map(|source| source.downward_api.as_ref()).any(|downward| shown(&downward.items))
    })
}

/// The files of several sources.
pub fn projected(pod: &LocalPod, projected: &ProjectedVolumeSource, budget: &mut FileBudget) -> VolumeFiles {
    let mode = projected.default_mode.unwrap_or(MODE);
    let mut files: Vec<(usize, VolumeFile)> = Vec::new();
    for (place, source) in projected.sources.iter().flatten().enumerate() {
        files.extend(projection(pod, source, mode, budget)?.into_iter().map(|file| (place, file)));
    }
    // When two sources have one path, the later one wins.
    let winners: HashMap<String, usize> = files.iter().map(|(place, file)| (file.path.clone(), *place)).collect();
    files.retain(|(place, file)| winners.get(&file.path) == Some(place));
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

fn projection(pod: &LocalPod, source: &VolumeProjection, mode: i32, budget: &mut FileBudget) -> VolumeFiles {
    if let Some(map) = &source.config_map {
        let optional = if map.name == ROOT_CA { Some(true) } else { map.optional };
        return keys(pod, &CONFIG_MAP, &map.name, map.items.as_deref(), optional, mode, budget);
    }
    if let Some(secret) = &source.secret {
        return keys(pod, &SECRET, &secret.name, secret.items.as_deref(), secret.optional, mode, budget);
    }
    if let Some(downward) = &source.downward_api {
        return downward_files(pod, downward.items.as_deref(), mode, budget);
    }
    if let Some(wanted) = &source.service_account_token {
        let claims = token::claims(pod, wanted).into_bytes();
        let user = user::token_user(pod);
        // Nobody else may read it where a user or a group owns it.
        let mode = if user.or(user::volume_group(pod)).is_some() { 0o600 } else { mode };
        return Ok(vec![VolumeFile { is_claims: true, user, ..file(&wanted.path, mode, claims) }]);
    }
    Err("this kind of projection is not supported by this node".into())
}

fn file(path: &str, mode: i32, content: Vec<u8>) -> VolumeFile {
    VolumeFile::new(path, mode as u32 & 0o777, content)
}

/// Gives files to the group of `fsGroup`, which may read them.
pub fn with_group(pod: &LocalPod, mut files: Vec<VolumeFile>) -> Vec<VolumeFile> {
    let group = user::volume_group(pod);
    for file in files.iter_mut().filter(|_| group.is_some()) {
        file.mode |= 0o440;
        file.group = group;
    }
    files
}

/// ConfigMaps and Secrets, alike but for their words and where their bytes are.
struct FileSource {
    resource: &'static str,
    word: &'static str,
    key_word: &'static str,
    /// Fields with plain values and with base64 values.
    plain: &'static str,
    encoded: &'static str,
}

const CONFIG_MAP: FileSource =
    FileSource { resource: "configmaps", word: "configmap", key_word: "config", plain: "data", encoded: "binaryData" };
const SECRET: FileSource =
    FileSource { resource: "secrets", word: "secret", key_word: "secret", plain: "stringData", encoded: "data" };

fn keys(
    pod: &LocalPod,
    kind: &FileSource,
    name: &str,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
    mode: i32,
    budget: &mut FileBudget,
) -> VolumeFiles {
    let optional = optional == Some(true);
    let Some(row) = pod.world.find(kind.resource, &pod.row.key.namespace, name) else {
        return if optional { Ok(Vec::new()) } else { Err(format!("{} {name:?} not found", kind.word)) };
    };
    let object = row.object();
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        let (plain, encoded) = ([kind.plain], [kind.encoded]);
        let plain = object.pairs(&plain).map(|(key, value)| (key, value.as_bytes().to_vec()));
        let encoded = object.pairs(&encoded).map(|(key, value)| (key, decode_value(value)));
        let files = plain.chain(encoded).map(|(key, content)| {
            budget.take(content.len())?;
            Ok(file(key, mode, content))
        });
        return files.collect();
    };
    let mut files = Vec::new();
    for item in items {
        match value(&object, kind, &item.key) {
            Some(content) => {
                budget.take(content.len())?;
                files.push(file(&item.path, item.mode.unwrap_or(mode), content));
            }
            None if optional => {}
            None => return Err(format!("references non-existent {} key: {}", kind.key_word, item.key)),
        }
    }
    Ok(files)
}

fn value(object: &Object, kind: &FileSource, key: &str) -> Option<Vec<u8>> {
    let plain = object.text(&[kind.plain, key]).map(|text| text.as_bytes().to_vec());
    plain.or_else(|| object.text(&[kind.encoded, key]).map(decode_value))
}

/// Files of the downward API.
fn downward_files(
    pod: &LocalPod,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: i32,
    budget: &mut FileBudget,
) -> VolumeFiles {
    let mut files = Vec::new();
    for item in items.unwrap_or_default() {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => fields::field(pod, &field.field_path, "")?,
            (None, Some(resource)) => fields::resource(pod, &Container::default(), resource)?,
            (None, None) => continue,
        };
        budget.take(text.len())?;
        files.push(file(&item.path, item.mode.unwrap_or(mode), text.into_bytes()));
    }
    Ok(files)
}
