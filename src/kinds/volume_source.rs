//! Shared checks of pod volumes, PersistentVolumes and claims: modes, cloud disks and network file systems.
//!
//! The fields of disks are read from JSON, since they have the same names in pods and PersistentVolumes.

use super::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::AzureDiskVolumeSource;
use serde_json::Value;

/// The range of partition numbers and LUNs.
const PARTS: std::ops::RangeInclusive<i64> = 0..=255;

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
        "quobyte" => &["registry", "volume"],
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
                let detail = "must be a number between 0 and 255, both inclusive";
                errors.invalid(&path.child("partition"), number, detail);
            }
        }
        "iscsi" => {
            check_initiator(fields["iqn"].as_str().unwrap_or_default(), &path.child("iqn"), errors);
            check_lun(&fields["lun"], path, errors);
            let asks = ["chapAuthDiscovery", "chapAuthSession"].iter().any(|field| fields[field] == true);
            if asks && is_missing("secretRef") {
                errors.required(&path.child("secretRef"), "");
            }
        }
        "fc" => check_fibre_channel(&is_missing, fields, path, errors),
        "flocker" => check_flocker(&is_missing, fields, path, errors),
        "azureDisk" => {
            let known: [(&str, &[&str]); 2] =
                [("cachingMode", &["None", "ReadOnly", "ReadWrite"]), ("kind", &["Dedicated", "Managed", "Shared"])];
            for (field, known) in known {
                if let Some(other) = fields[field].as_str().filter(|text| !known.contains(text)) {
                    errors.unsupported(&path.child(field), other, known);
                }
            }
        }
        _ => {}
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
        assert_eq!(wrong("azureDisk", json!({"diskName": "a", "diskURI": "b", "kind": "Odd"})), ["v.kind"]);
    }
}
