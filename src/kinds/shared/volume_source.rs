//! Shared checks of pod volumes, PersistentVolumes and claims: modes, cloud disks and network file systems.
//!
//! The fields of disks are read from JSON, since they have the same names in pods and PersistentVolumes.

use super::super::{FieldErrors, FieldPath};
use super::names;
use k8s_openapi::api::core::v1::AzureDiskVolumeSource;
use serde_json::Value;

/// The range of partition numbers and LUNs.
const PARTS: std::ops::RangeInclusive<i64> = 0..=255;

const MAX_TENANT_BYTES: usize = 64;

/// Returns the name by which Kubernetes' messages call a source that is checked.
pub fn shown_field(source: &str) -> &str {
    if source == "gcePersistentDisk" { "persistentDisk" } else { source }
}

/// Deprecated and removed volume sources: the name in a pod, the name in messages, and the warning.
pub const DEAD_VOLUMES: &[(&str, &str, &str)] = &[
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// The required fields of a source.
fn required_fields(source: &str) -> &'static [&'static str] {
    match source {
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => &["volumeID"],
        "azureDisk" => &["diskName", "diskURI"],
        "azureFile" => &["secretName", "shareName"],
        "cephfs" => &["monitors"],
        "flexVolume" => &["driver"],
        "gcePersistentDisk" => &["pdName"],
        "gitRepo" => &["repository"],
        "glusterfs" => &["endpoints", "path"],
        "iscsi" => &["targetPortal", "iqn"],
        "photonPersistentDisk" => &["pdID"],
        "storageos" => &["volumeName"],
        "rbd" => &["monitors", "image"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        "vsphereVolume" => &["volumePath"],
        _ => &[],
    }
}

/// Checks a source by its name and its fields.
pub fn check(source: &str, fields: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let is_missing = |field: &str| match &fields[field] {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        other => other.is_null(),
    };
    for field in required_fields(source).iter().filter(|field| is_missing(field)) {
        errors.required(&path.child(field), "");
    }
    match source {
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            if let Some(number) = outside(&fields["partition"]) {
                // Kubernetes accepts 0, which means no partition.
                errors.invalid(&path.child("partition"), number, "must be between 1 and 255, inclusive");
            }
        }
        "iscsi" => {
            check_initiator(fields["iqn"].as_str().unwrap_or_default(), &path.child("iqn"), errors);
            if let Some(name) = fields["initiatorName"].as_str() {
                check_initiator(name, &path.child("initiatorname"), errors);
            }
            check_lun(&fields["lun"], path, errors);
            let asks = ["chapAuthDiscovery", "chapAuthSession"].iter().any(|field| fields[field] == true);
            if asks && is_missing("secretRef") {
                errors.required(&path.child("secretRef"), "");
            }
        }
        "fc" => check_fibre_channel(&is_missing, fields, path, errors),
        "flocker" => check_flocker(&is_missing, fields, path, errors),
        "quobyte" => check_quobyte(fields, path, errors),
        "storageos" => {
            for field in ["volumeName", "volumeNamespace"] {
                let name = fields[field].as_str().filter(|name| !name.is_empty());
                name.iter().for_each(|name| errors.each_invalid(&path.child(field), *name, names::label(name)));
            }
            check_secret_fields(&fields["secretRef"], &["name"], path, errors);
        }
        "cinder" => check_secret_fields(&fields["secretRef"], &["name"], path, errors),
        "flexVolume" => check_flex_options(fields, path, errors),
        "azureDisk" => {
            let known: [(&str, &[&str]); 2] =
                [("cachingMode", &["None", "ReadOnly", "ReadWrite"]), ("kind", &["Dedicated", "Managed", "Shared"])];
            for (field, known) in known {
                if let Some(other) = fields[field].as_str().filter(|text| !known.contains(text)) {
                    errors.unsupported(&path.child(field), other, known);
                }
            }
            check_azure_address(fields, &path.child("diskURI"), errors);
        }
        _ => {}
    }
}

/// Checks the fields that only the sources of PersistentVolumes have, since these are in no namespace.
pub fn check_persistent(source: &str, fields: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match source {
        "storageos" | "cinder" => check_secret_fields(&fields["secretRef"], &["namespace"], path, errors),
        "iscsi" => check_secret_fields(&fields["secretRef"], &["name"], path, errors),
        "azureFile" if fields["secretNamespace"] == "" => errors.required(&path.child("secretNamespace"), ""),
        "glusterfs" => {
            let at = path.child("endpointsNamespace");
            match fields["endpointsNamespace"].as_str() {
                None => {}
                Some("") => {
                    errors.invalid(&at, "", "if the endpointnamespace is set, it must be a valid namespace name")
                }
                Some(name) => errors.each_invalid(&at, name, names::label(name)),
            }
        }
        "csi" => {
            let secrets = [
                "controllerPublishSecretRef",
                "controllerExpandSecretRef",
                "nodePublishSecretRef",
                "nodeExpandSecretRef",
            ];
            for field in secrets.into_iter().filter(|field| !fields[*field].is_null()) {
                check_secret(&fields[field], &path.child(field), errors);
            }
        }
        _ => {}
    }
}

/// Checks a reference to a secret by namespace and name.
fn check_secret(secret: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["name", "namespace"] {
        let at = path.child(field);
        match secret[field].as_str().unwrap_or_default() {
            "" => errors.required(&at, ""),
            name if field == "name" => errors.each_invalid(&at, name, names::subdomain(name)),
            name => errors.each_invalid(&at, name, names::label(name)),
        }
    }
}

/// Checks that a reference to a secret, if there is one, has these fields.
fn check_secret_fields(secret: &Value, required: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let is_missing = |field: &&&str| secret[**field].as_str().unwrap_or_default().is_empty();
    for field in required.iter().filter(|field| !secret.is_null() && is_missing(field)) {
        errors.required(&path.child("secretRef").child(field), "");
    }
}

fn check_quobyte(fields: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = |field: &str| fields[field].as_str().unwrap_or_default();
    let (registry, rule) = (text("registry"), "must be a host:port pair or multiple pairs separated by commas");
    if registry.is_empty() {
        errors.required(&path.child("registry"), rule);
    } else if text("tenant").len() > MAX_TENANT_BYTES {
        let detail = format!("must be a UUID and may not exceed a length of {MAX_TENANT_BYTES} characters");
        errors.required(&path.child("tenant"), &detail);
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.invalid(&path.child("registry"), registry, rule);
        }
    }
    if text("volume").is_empty() {
        errors.required(&path.child("volume"), "");
    }
}

/// Whether a text has one colon outside of brackets, before the port.
fn is_host_and_port(pair: &str) -> bool {
    let Some((host, port)) = pair.rsplit_once(':') else { return false };
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(host) => !host.contains(['[', ']']) && !port.contains(['[', ']']),
        None => !host.contains([':', '[', ']']) && !port.contains(['[', ']']),
    }
}

fn check_flex_options(fields: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for key in fields["options"].as_object().into_iter().flatten().map(|(key, _)| key) {
        let domain = format!(".{}", key.split_once('/').map_or(key.as_str(), |(domain, _)| domain).to_lowercase());
        if [".kubernetes.io", ".k8s.io"].iter().any(|reserved| domain.ends_with(reserved)) {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&path.child("options").key(key), key.as_str(), detail);
        }
    }
}

fn check_azure_address(fields: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (kind, address) = (fields["kind"].as_str(), fields["diskURI"].as_str().unwrap_or_default());
    let (start, form) = match kind {
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    };
    if !address.starts_with(start) {
        errors.unsupported(path, address, &[form]);
    }
}

/// Checks the type of a path of the machine.
pub fn check_host_path_type(kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let known = ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];
    if !known.contains(&kind) {
        errors.unsupported(path, kind, &known);
    }
}

/// Validates the access modes of a volume.
pub fn check_access_modes(modes: &[String], path: &FieldPath, errors: &mut FieldErrors) {
    let known = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    for other in modes.iter().filter(|mode| !known.contains(&mode.as_str())) {
        errors.unsupported(path, other.as_str(), &known);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Checks the volume mode.
pub fn check_volume_mode(mode: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let known = ["Block", "Filesystem"];
    if let Some(other) = mode.filter(|mode| !known.contains(mode)) {
        errors.unsupported(path, other, &known);
    }
}

/// Returns a number outside of [`PARTS`].
fn outside(number: &Value) -> Option<i64> {
    number.as_i64().filter(|number| !PARTS.contains(number))
}

fn check_lun(lun: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(number) = outside(lun) {
        errors.invalid(&path.child("lun"), number, "must be between 0 and 255, inclusive");
    }
}

fn check_fibre_channel(is_missing: &dyn Fn(&str) -> bool, fields: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (names, ids) = (!is_missing("targetWWNs"), !is_missing("wwids"));
    if !names && !ids {
        errors.required(&path.child("targetWWNs"), "must specify either targetWWNs or wwids, but not both");
    }
    if names && ids {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&path.child("targetWWNs"), fields["targetWWNs"].clone(), detail);
    }
    if names && is_missing("lun") {
        errors.required(&path.child("lun"), "lun is required if targetWWNs is specified");
    } else if names {
        check_lun(&fields["lun"], path, errors);
    }
}

fn check_flocker(is_missing: &dyn Fn(&str) -> bool, fields: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match (is_missing("datasetName"), is_missing("datasetUUID")) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            errors.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously");
        }
        _ => {}
    }
    let name = fields["datasetName"].as_str().unwrap_or_default();
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

/// Checks an initiator name (RFC 3720): `iqn.` with a month and a domain, or a number of 16 or 32 characters.
fn check_initiator(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let numbered = |rest: &str, length: usize| {
        let mut characters = rest.chars();
        characters.next().is_some()
            && characters.as_str().len() == length
            && characters.all(|character| character.is_ascii_alphanumeric())
    };
    let fits = match (name.get(..3), name.get(3..)) {
        (Some("iqn"), Some(rest)) => is_dated(rest),
        (Some("eui"), Some(rest)) => numbered(rest, 16),
        (Some("naa"), Some(rest)) => numbered(rest, 32),
        _ if name.is_empty() => return,
        _ => return errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa"),
    };
    if !fits {
        errors.invalid(path, name, "must be valid format");
    }
}

/// Whether the text after `iqn` has the form `.2001-04.com.example:storage`.
fn is_dated(rest: &str) -> bool {
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((date, rest)) = rest.strip_prefix('.').and_then(|rest| rest.split_once('.')) else { return false };
    let Some((domain, unit)) = rest.split_once(':') else { return false };
    date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2))
        && !domain.is_empty()
        && domain.chars().all(|character| character.is_ascii_alphanumeric() || "-.".contains(character))
        && !unit.is_empty()
        && !unit.contains(|character: char| ",;*&$|".contains(character) || character.is_whitespace())
}

/// Fills in the defaults of an Azure disk, which volumes of pods and PersistentVolumes share.
pub fn fill_in_azure_disk(disk: &mut AzureDiskVolumeSource) {
    disk.caching_mode.get_or_insert_with(|| "ReadWrite".into());
    disk.kind.get_or_insert_with(|| "Shared".into());
    disk.fs_type.get_or_insert_with(|| "ext4".into());
    disk.read_only.get_or_insert(false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wrong(source: &str, fields: Value) -> Vec<String> {
        let mut errors = FieldErrors::default();
        check(source, &fields, &FieldPath::root("v"), &mut errors);
        errors.0.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn sources_are_checked_by_their_fields() {
        let iscsi = |iqn: &str, lun: i64| wrong("iscsi", json!({"targetPortal": "a", "iqn": iqn, "lun": lun}));
        let none: [&str; 0] = [];
        assert_eq!(iscsi("iqn.2001-04.com.example:storage", 0), none);
        assert_eq!(iscsi("eui.0123456789abcdef", 255), none);
        for bad in ["iqn.2001.com.example:a", "eui.0123", "odd", "iqn.2001-04.com.example", "naa.0"] {
            assert_eq!(iscsi(bad, 0), ["v.iqn"], "{bad}");
        }
        assert_eq!(iscsi("iqn.2001-04.com.example:storage", 256), ["v.lun"]);
        let chap = json!({"targetPortal": "a", "iqn": "eui.0123456789abcdef", "chapAuthSession": true});
        assert_eq!(wrong("iscsi", chap), ["v.secretRef"]);
        assert_eq!(wrong("fc", json!({"wwids": ["a"]})), none);
        assert_eq!(wrong("fc", json!({"targetWWNs": ["a"]})), ["v.lun"]);
        assert_eq!(wrong("fc", json!({})), ["v.targetWWNs"]);
        assert_eq!(wrong("rbd", json!({"monitors": [], "image": "i"})), ["v.monitors"]);
        assert_eq!(wrong("gcePersistentDisk", json!({"pdName": "a", "partition": 256})), ["v.partition"]);
        assert_eq!(wrong("flocker", json!({"datasetName": "a/b"})), ["v.datasetName"]);
        assert_eq!(wrong("flocker", json!({})), ["v"]);
        assert_eq!(wrong("azureDisk", json!({"diskName": "a", "diskURI": "https://b", "kind": "Odd"})), ["v.kind"]);
        assert_eq!(
            wrong("azureDisk", json!({"diskName": "a", "diskURI": "https://b", "kind": "Managed"})),
            ["v.diskURI"]
        );
        assert_eq!(
            wrong("azureDisk", json!({"diskName": "a", "diskURI": "/subscriptions/b", "kind": "Shared"})),
            ["v.diskURI"]
        );
        let initiator = json!({"targetPortal": "a", "iqn": "eui.0123456789abcdef", "initiatorName": "odd"});
        assert_eq!(wrong("iscsi", initiator), ["v.initiatorname"]);
        for (registry, is_good) in [("a:1", true), ("a:1,[::1]:2", true), ("a", false), ("::1:2", false), ("", false)] {
            assert_eq!(
                wrong("quobyte", json!({"registry": registry, "volume": "v"})).is_empty(),
                is_good,
                "{registry}"
            );
        }
        assert_eq!(wrong("quobyte", json!({"registry": "a:1", "volume": "v", "tenant": "t".repeat(65)})), ["v.tenant"]);
        assert_eq!(wrong("storageos", json!({})), ["v.volumeName"]);
        let names = json!({"volumeName": "A", "volumeNamespace": "a.b", "secretRef": {}});
        assert_eq!(wrong("storageos", names)[1..], ["v.volumeNamespace", "v.secretRef.name"].map(String::from)[..]);
        assert_eq!(wrong("cinder", json!({"volumeID": "a", "secretRef": {"name": ""}})), ["v.secretRef.name"]);
        assert_eq!(
            wrong("flexVolume", json!({"driver": "a/b", "options": {"x.k8s.io/y": "z", "a/b": "c"}})),
            ["v.options[x.k8s.io/y]"]
        );
    }

    #[test]
    fn sources_of_persistent_volumes_name_namespaces() {
        let wrong = |source: &str, fields: Value| {
            let mut errors = FieldErrors::default();
            check_persistent(source, &fields, &FieldPath::root("v"), &mut errors);
            errors.0.into_iter().map(|error| error.field).collect::<Vec<_>>().join(" ")
        };
        let reference = json!({"name": "A", "namespace": "a.b"});
        let both = "v.nodeExpandSecretRef.name v.nodeExpandSecretRef.namespace";
        assert_eq!(wrong("csi", json!({"nodeExpandSecretRef": {}})), both);
        assert!(wrong("csi", json!({"nodeExpandSecretRef": reference})).starts_with(both));
        assert_eq!(wrong("csi", json!({"nodeExpandSecretRef": {"name": "a", "namespace": "b"}})), "");
        assert_eq!(wrong("cinder", json!({"secretRef": {"name": "a"}})), "v.secretRef.namespace");
        assert_eq!(wrong("glusterfs", json!({"endpointsNamespace": ""})), "v.endpointsNamespace");
        assert_eq!(wrong("azureFile", json!({"secretNamespace": ""})), "v.secretNamespace");
    }
}
