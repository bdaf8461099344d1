//! Volumes of pods and sources of PersistentVolumes in descriptions.

use super::Describe;
use super::body::{BodyRead, go_list, text_or};
use super::storage::claim_class;
use crate::object::quantity::Quantity;
use serde_json::Value;

/// A volume type: its field, its description, and the labels and paths of its fields.
type VolumeDescription = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Volume types that only list fields. After a path, `?` shows `<none>` for an absent field, `!` shows false.
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
];

/// Writes `Volumes:` of a pod, or of a template, which is indented more.
pub fn volumes(out: &mut Describe, volumes: &[Value], indent: &str) {
    if volumes.is_empty() {
        return out.line(0, format_args!("{indent}Volumes:\t<none>"));
    }
    out.line(0, format_args!("{indent}Volumes:"));
    let extra = if indent.is_empty() { "" } else { " " };
    for volume in volumes {
        out.line(1, format_args!("{extra}{}:", volume.text("name")));
        source(out, volume);
    }
}

/// Writes the source of a volume or PersistentVolume.
pub fn source(out: &mut Describe, volume: &Value) {
    let plain = PLAIN.iter().find(|(field, ..)| volume.has(field));
    if let Some((field, description, fields)) = plain {
        out.field(2, "Type", description);
        let source = volume.value_at(field);
        for (label, path) in *fields {
            out.field(2, label, shown(source, path));
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

fn shown(source: &Value, path: &str) -> String {
    if let Some(path) = path.strip_suffix('!') {
        return source.flag(path).to_string();
    }
    match path.strip_suffix('?') {
        Some(path) if !source.has(path) => "<none>".into(),
        Some(path) => source.plain(path),
        None => source.plain(path),
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
    out.pairs(2, "Labels", &template.pairs("metadata.labels"));
    out.annotations(2, "Annotations", &template.pairs("metadata.annotations"));
    out.field(2, "Capacity", "");
    out.field(2, "Access Modes", "");
    if template.has("spec.volumeMode") {
        out.field(2, "VolumeMode", template.text("spec.volumeMode"));
    }
}

fn csi(out: &mut Describe, source: &Value) {
    out.field(2, "Type", "CSI (a Container Storage Interface (CSI) volume source)");
    out.field(2, "Driver", source.text("driver"));
    out.field(2, "FSType", source.text("fsType"));
    if source.has("volumeHandle") {
        out.field(2, "VolumeHandle", source.text("volumeHandle"));
    }
    out.field(2, "ReadOnly", source.flag("readOnly"));
    out.pairs(2, "VolumeAttributes", &source.pairs("volumeAttributes"));
}

/// Prints access modes as Go does: `[ReadWriteOnce]`.
pub fn access_modes(claim: &Value) -> String {
    go_list(&claim.texts("spec.accessModes"))
}
