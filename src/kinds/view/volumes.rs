//! Volumes of pods and sources of PersistentVolumes in descriptions.

use super::Describe;
use super::body::{BodyRead, go_list, text_or};
use super::describe::annotation_lines;
use super::storage::claim_class;
use crate::object::quantity::Quantity;
use serde_json::Value;

/// A volume type: its field, its description, and the labels and paths of its fields.
type VolumeDescription = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Volume types that only list fields. The end of a path says how its value is shown, see [`shown`]; fields that end with `^` are those
/// of PersistentVolumes alone.
const PLAIN: &[VolumeDescription] = &[
    ("hostPath", "HostPath (bare host directory volume)", &[("Path", "path"), ("HostPathType", "type?")]),
    (
        "persistentVolumeClaim",
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        &[("ClaimName", "claimName"), ("ReadOnly", "readOnly!")],
    ),
    ("configMap", "ConfigMap (a volume populated by a ConfigMap)", &[("Name", "name"), ("Optional", "optional!")]),
    ("secret", "Secret (a volume populated by a Secret)", &[("SecretName", "secretName"), ("Optional", "optional!")]),
    (
        "nfs",
        "NFS (an NFS mount that lasts the lifetime of a pod)",
        &[("Server", "server"), ("Path", "path"), ("ReadOnly", "readOnly!")],
    ),
    ("image", "Image (a container image or OCI artifact)", &[("Reference", "reference"), ("PullPolicy", "pullPolicy")]),
    ("local", "LocalVolume (a persistent volume backed by local storage on a node)", &[("Path", "path")]),
    (
        "gitRepo",
        "GitRepo (a volume that is pulled from git when the pod is created)",
        &[("Repository", "repository"), ("Revision", "revision")],
    ),
    (
        "gcePersistentDisk",
        "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
        &[("PDName", "pdName"), ("FSType", "fsType"), ("Partition", "partition#"), ("ReadOnly", "readOnly!")],
    ),
    (
        "awsElasticBlockStore",
        "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
        &[("VolumeID", "volumeID"), ("FSType", "fsType"), ("Partition", "partition#"), ("ReadOnly", "readOnly!")],
    ),
    (
        "iscsi",
        "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
        &[
            ("TargetPortal", "targetPortal"),
            ("IQN", "iqn"),
            ("Lun", "lun#"),
            (UNMARKED, "iscsiInterface"),
            ("FSType", "fsType"),
            ("ReadOnly", "readOnly!"),
            ("Portals", "portals*"),
            ("DiscoveryCHAPAuth", "chapAuthDiscovery!"),
            ("SessionCHAPAuth", "chapAuthSession!"),
            ("SecretRef", "secretRef&"),
            ("InitiatorName", "initiatorName?"),
        ],
    ),
    (
        "glusterfs",
        "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)",
        &[
            ("EndpointsName", "endpoints"),
            ("EndpointsNamespace", "endpointsNamespace^"),
            ("Path", "path"),
            ("ReadOnly", "readOnly!"),
        ],
    ),
    (
        "rbd",
        "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
        &[
            ("CephMonitors", "monitors*"),
            ("RBDImage", "image"),
            ("FSType", "fsType"),
            ("RBDPool", "pool"),
            ("RadosUser", "user"),
            ("Keyring", "keyring"),
            ("SecretRef", "secretRef&"),
            ("ReadOnly", "readOnly!"),
        ],
    ),
    (
        "quobyte",
        "Quobyte (a Quobyte mount on the host that shares a pod's lifetime)",
        &[("Registry", "registry"), ("Volume", "volume"), ("ReadOnly", "readOnly!")],
    ),
    (
        "flexVolume",
        "FlexVolume (a generic volume resource that is provisioned/attached using an exec based plugin)",
        &[
            ("Driver", "driver"),
            ("FSType", "fsType"),
            ("SecretRef", "secretRef&"),
            ("ReadOnly", "readOnly!"),
            ("Options", "options%"),
        ],
    ),
    (
        "cinder",
        "Cinder (a Persistent Disk resource in OpenStack)",
        &[("VolumeID", "volumeID"), ("FSType", "fsType"), ("ReadOnly", "readOnly!"), ("SecretRef", "secretRef&")],
    ),
    (
        "cephfs",
        "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
        &[
            ("Monitors", "monitors*"),
            ("Path", "path"),
            ("User", "user"),
            ("SecretFile", "secretFile"),
            ("SecretRef", "secretRef&"),
            ("ReadOnly", "readOnly!"),
        ],
    ),
    (
        "flocker",
        "Flocker (a Flocker volume mounted by the Flocker agent)",
        &[("DatasetName", "datasetName"), ("DatasetUUID", "datasetUUID")],
    ),
    (
        "fc",
        "FC (a Fibre Channel disk)",
        &[("TargetWWNs", "targetWWNs,"), ("LUN", "lun?"), ("FSType", "fsType"), ("ReadOnly", "readOnly!")],
    ),
    (
        "azureFile",
        "AzureFile (an Azure File Service mount on the host and bind mount to the pod)",
        &[
            ("SecretName", "secretName"),
            ("SecretNamespace", "secretNamespace^"),
            ("ShareName", "shareName"),
            ("ReadOnly", "readOnly!"),
        ],
    ),
    (
        "azureDisk",
        "AzureDisk (an Azure Data Disk mount on the host and bind mount to the pod)",
        &[
            ("DiskName", "diskName"),
            ("DiskURI", "diskURI"),
            ("Kind", "kind"),
            ("FSType", "fsType"),
            ("CachingMode", "cachingMode"),
            ("ReadOnly", "readOnly!"),
        ],
    ),
    (
        "vsphereVolume",
        "vSphereVolume (a Persistent Disk resource in vSphere)",
        &[("VolumePath", "volumePath"), ("FSType", "fsType"), ("StoragePolicyName", "storagePolicyName")],
    ),
    (
        "photonPersistentDisk",
        "PhotonPersistentDisk (a Persistent Disk resource in photon platform)",
        &[("PdID", "pdID"), ("FSType", "fsType")],
    ),
    ("portworxVolume", "PortworxVolume (a Portworx Volume resource)", &[("VolumeID", "volumeID")]),
    (
        "scaleIO",
        "ScaleIO (a persistent volume backed by a block device in ScaleIO)",
        &[
            ("Gateway", "gateway"),
            ("System", "system"),
            ("Protection Domain", "protectionDomain"),
            ("Storage Pool", "storagePool"),
            ("Storage Mode", "storageMode"),
            ("VolumeName", "volumeName"),
            ("SecretName", "secretRef.name^"),
            ("SecretNamespace", "secretRef.namespace^"),
            ("FSType", "fsType"),
            ("ReadOnly", "readOnly!"),
        ],
    ),
    (
        "storageos",
        "StorageOS (a StorageOS Persistent Disk resource)",
        &[
            ("VolumeName", "volumeName"),
            ("VolumeNamespace", "volumeNamespace"),
            ("FSType", "fsType"),
            ("ReadOnly", "readOnly!"),
        ],
    ),
];

/// The label after which kubectl prints no colon.
const UNMARKED: &str = "ISCSIInterface";

/// The kind of object that has the source: secrets of PersistentVolumes have a namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SourceHolder {
    /// A pod, or a template.
    Pod,
    /// A PersistentVolume.
    Cluster,
}

/// Writes `Volumes:` of a pod, or of a template, which is indented more.
pub fn volumes(out: &mut Describe, volumes: &[Value], indent: &str) {
    if volumes.is_empty() {
        return out.line(0, format_args!("{indent}Volumes:\t<none>"));
    }
    out.line(0, format_args!("{indent}Volumes:"));
    let extra = if indent.is_empty() { "" } else { " " };
    for volume in volumes {
        out.line(1, format_args!("{extra}{}:", volume.text("name")));
        source(out, volume, SourceHolder::Pod);
    }
}

/// Writes the source of a volume or PersistentVolume.
pub fn source(out: &mut Describe, volume: &Value, owner: SourceHolder) {
    let plain = PLAIN.iter().find(|(field, ..)| volume.has(field));
    if let Some((field, description, fields)) = plain {
        out.field(2, "Type", description);
        let source = volume.value_at(field);
        for (label, path) in *fields {
            match shown(source, path, owner) {
                Some(value) if *label == UNMARKED => out.line(2, format_args!("{label}\t{value}")),
                Some(value) => out.field(2, label, value),
                None => {}
            }
        }
    } else if volume.has("emptyDir") {
        empty_dir(out, volume.value_at("emptyDir"));
    } else if volume.has("projected") {
        projected(out, volume.value_at("projected"));
    } else if volume.has("downwardAPI") {
        downward_api(out, volume.value_at("downwardAPI"));
    } else if volume.has("ephemeral") {
        ephemeral(out, volume.value_at("ephemeral.volumeClaimTemplate"));
    } else if volume.has("csi") {
        csi(out, volume.value_at("csi"));
    } else {
        out.line(1, "<unknown>");
    }
}

/// Formats the value at a path, whose end says how: `?` shows `<none>` for an absent field, `!` false, `#` zero, `*` is a list, `,` a list
/// with commas, `%` a map, `&` a reference. `None` for a field of another owner.
fn shown(source: &Value, path: &str, owner: SourceHolder) -> Option<String> {
    let (name, how) = match path.char_indices().next_back() {
        Some((at, how)) if !how.is_alphanumeric() => (&path[..at], how),
        _ => (path, ' '),
    };
    Some(match how {
        '^' if owner == SourceHolder::Pod => return None,
        '!' => source.flag(name).to_string(),
        '#' => source.int(name).to_string(),
        '*' => go_list(&source.texts(name)),
        ',' => source.texts(name).join(", "),
        '%' => {
            let entries: Vec<String> =
                source.pairs(name).into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("map[{}]", entries.join(" "))
        }
        '&' => secret_reference(source.value_at(name), owner),
        '?' if !source.has(name) => "<none>".into(),
        _ => source.plain(name),
    })
}

/// Formats a reference to a Secret as Go does.
fn secret_reference(secret: &Value, owner: SourceHolder) -> String {
    let name = secret.text("name");
    match owner {
        _ if secret.is_null() => "nil".into(),
        SourceHolder::Pod => format!("&LocalObjectReference{{Name:{name},}}"),
        SourceHolder::Cluster => format!("&SecretReference{{Name:{name},Namespace:{},}}", secret.text("namespace")),
    }
}

fn empty_dir(out: &mut Describe, source: &Value) {
    out.field(2, "Type", "EmptyDir (a temporary directory that shares a pod's lifetime)");
    out.field(2, "Medium", source.text("medium"));
    let limit = source.plain("sizeLimit");
    let none = Quantity::parse(&limit).is_ok_and(|limit| limit.is_zero());
    out.field(2, "SizeLimit", if none { "<unset>" } else { text_or(&limit, "<unset>") });
}

fn projected(out: &mut Describe, projected: &Value) {
    out.field(2, "Type", "Projected (a volume that contains injected data from multiple sources)");
    for source in projected.list("sources") {
        let named =
            [("secret", "SecretName"), ("configMap", "ConfigMapName")].into_iter().find(|(field, _)| source.has(field));
        if let Some((field, label)) = named {
            out.field(2, label, source.value_at(field).text("name"));
            out.field(2, "Optional", source.value_at(field).flag("optional"));
        } else if source.has("downwardAPI") {
            out.field(2, "DownwardAPI", true);
        } else if source.has("serviceAccountToken") {
            out.field(2, "TokenExpirationSeconds", source.int("serviceAccountToken.expirationSeconds"));
        }
    }
}

fn downward_api(out: &mut Describe, source: &Value) {
    out.field(2, "Type", "DownwardAPI (a volume populated by information about the pod)");
    out.heading(2, "Items");
    for item in source.list("items") {
        for field in ["fieldRef.fieldPath", "resourceFieldRef.resource"] {
            if item.has(field) {
                out.line(3, format_args!("{} -> {}", item.text(field), item.text("path")));
            }
        }
    }
}

fn ephemeral(out: &mut Describe, template: &Value) {
    let description = "an inline specification for a volume that gets created and deleted with the pod";
    out.field(2, "Type", format_args!("EphemeralVolume ({description})"));
    if template.is_null() {
        return;
    }
    out.field(2, "StorageClass", claim_class(template));
    out.field(2, "Volume", template.text("spec.volumeName"));
    let labels = template.pairs("metadata.labels").into_iter().map(|(key, value)| format!("{key}={value}"));
    out.values(2, "Labels", indented(labels.collect()));
    out.values(2, "Annotations", indented(annotation_lines(&template.pairs("metadata.annotations"))));
    out.field(2, "Capacity", "");
    out.field(2, "Access Modes", "");
    if template.has("spec.volumeMode") {
        out.field(2, "VolumeMode", template.text("spec.volumeMode"));
    }
    data_source(out, 2, template.value_at("spec.dataSource"));
}

/// Writes the source of a claim's data, if it has one.
pub fn data_source(out: &mut Describe, level: usize, source: &Value) {
    if source.is_null() {
        return;
    }
    out.heading(level, "DataSource");
    for (label, field) in [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")] {
        if source.has(field) {
            out.field(level + 1, label, source.text(field));
        }
    }
}

/// Returns values, or `<none>`, four blanks to the right, as kubectl shows those of an inner map.
fn indented(values: Vec<String>) -> Vec<String> {
    let values = if values.is_empty() { vec!["<none>".to_owned()] } else { values };
    values.into_iter().map(|value| format!("    {value}")).collect()
}

fn csi(out: &mut Describe, source: &Value) {
    out.field(2, "Type", "CSI (a Container Storage Interface (CSI) volume source)");
    out.field(2, "Driver", source.text("driver"));
    out.field(2, "FSType", source.text("fsType"));
    if source.has("volumeHandle") {
        out.field(2, "VolumeHandle", source.text("volumeHandle"));
    }
    out.field(2, "ReadOnly", source.flag("readOnly"));
    match source.pairs("volumeAttributes") {
        none if none.is_empty() => out.field(2, "VolumeAttributes", "<none>"),
        some => {
            let lines = some.into_iter().map(|(key, value)| format!("{key}={value}"));
            out.values(2, "VolumeAttributes", indented(lines.collect()));
        }
    }
}
