//! What claims and volumes share.

use super::body::Body;
use serde_json::Value;

/// The storage class of a claim or volume: the old annotation wins over the field.
pub fn claim_class(object: &Value) -> &str {
    let annotation = object.at("metadata.annotations").get("volume.beta.kubernetes.io/storage-class");
    annotation.and_then(Value::as_str).unwrap_or_else(|| object.text("spec.storageClassName"))
}

/// `RWO,ROX`.
pub fn access_modes(modes: &[&str]) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let known = SHORT.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short);
    known.collect::<Vec<_>>().join(",")
}
