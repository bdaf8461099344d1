//! The token of a pod's service account.
//!
//! It has the form and the claims of a real one, and is signed by nobody: whoever may read the cluster's file is its administrator, so
//! there is nothing that a signature could keep. It is the same whenever it is made, so that a pod's files hold still.

use super::super::pod::LocalPod;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Kubernetes, too, lets the usual token live for a year, for programs that never read it again.
const LIFETIME_SECONDS: i64 = 365 * 24 * 3600;

/// The token for an audience; the API server's when there is none.
pub fn of(pod: &LocalPod, audience: Option<&str>) -> String {
    let namespace = &*pod.row.key.namespace;
    let account = pod.spec.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
    let uid = pod.world.find("serviceaccounts", namespace, account).map(|row| row.uid.to_string()).unwrap_or_default();
    let begin = pod.row.created.map_or(0, |created| created.as_second());
    let claims = json!({
        "aud": [audience.filter(|audience| !audience.is_empty()).unwrap_or(ISSUER)],
        "iss": ISSUER, "iat": begin, "nbf": begin, "exp": begin + LIFETIME_SECONDS,
        "sub": format!("system:serviceaccount:{namespace}:{account}"),
        "kubernetes.io": {"namespace": namespace, "pod": {"name": *pod.row.key.name, "uid": *pod.row.uid},
            "serviceaccount": {"name": account, "uid": uid}},
    });
    let encoded = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let body = format!("{}.{}", encoded(&json!({"alg": "RS256", "kid": "kloop"})), encoded(&claims));
    format!("{body}.{}", URL_SAFE_NO_PAD.encode(marks(&body)))
}

/// 256 bytes, as long as a signature, that follow from the text.
fn marks(text: &str) -> Vec<u8> {
    let number = |place: u64| {
        let mut hasher = DefaultHasher::new();
        (text, place).hash(&mut hasher);
        hasher.finish().to_be_bytes()
    };
    (0..32).flat_map(number).collect()
}
