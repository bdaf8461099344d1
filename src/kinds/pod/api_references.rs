//! Objects of the API that a pod refers to, which static pods and mirror pods cannot have (Kubernetes: HasAPIObjectReference).
//!
//! Never: reads such an object. Start reading at [`find_api_reference`].

use crate::object::Object;
use serde_json::Value;

/// Fields that refer to objects, by their resource.
const REFERENCES: [(&str, &[&str]); 7] = [
    ("serviceaccounts", &["serviceAccountToken"]),
    ("secrets", &["secretKeyRef", "secretRef", "secret", "imagePullSecrets", "nodePublishSecretRef"]),
    ("configmaps", &["configMapKeyRef", "configMapRef", "configMap"]),
    ("resourceclaims", &["resourceClaims"]),
    ("persistentvolumeclaims", &["persistentVolumeClaim", "ephemeral"]),
    ("csidrivers", &["csi"]),
    ("clustertrustbundles", &["clusterTrustBundle"]),
];

/// Returns the resource of an object that a pod refers to.
pub fn find_api_reference(pod: &Object) -> Option<&'static str> {
    let account = |field: &str| pod.text(&["spec", field]).is_some_and(|name| !name.is_empty());
    if account("serviceAccountName") || account("serviceAccount") {
        return Some("serviceaccounts");
    }
    let spec = &pod.0["spec"];
    REFERENCES.iter().find(|(_, fields)| mentions(spec, fields)).map(|(resource, _)| *resource)
}

/// Whether a field with one of these names is set anywhere; in maps of texts, such as labels, the name is only a key.
fn mentions(value: &Value, fields: &[&str]) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| {
            let says = value.is_object() || value.as_array().is_some_and(|list| !list.is_empty());
            (says && fields.contains(&name.as_str())) || mentions(value, fields)
        }),
        Value::Array(list) => list.iter().any(|value| mentions(value, fields)),
        _ => false,
    }
}
