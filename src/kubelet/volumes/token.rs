//! The token of a pod's service account.
//!
//! It has the form and the claims of a real one, but no valid signature: everybody who can read the cluster's file is its administrator, so a
//! signature would protect nothing. It depends only on the pod and on its time of issue, so that a pod's files stay as they are until
//! the kubelet renews the token.

use super::super::pod::LocalPod;
use crate::object::Time;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::core::v1::ServiceAccountTokenProjection;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Lifetime that admission requests for the token of every pod. The API server extends it to [`EXTENDED_SECONDS`], for programs that
/// never read the file again (`--service-account-extend-token-expiration`).
const USUAL_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;
/// The kubelet renews a token that is older than a day, whatever its lifetime.
const MAX_AGE_SECONDS: i64 = 24 * 3600;

/// Returns the token for the projection's audience, or for the API server's where it names none.
pub fn content(pod: &LocalPod, wanted: &ServiceAccountTokenProjection) -> String {
    let namespace = &*pod.row.key.namespace;
    let account = pod.spec.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
    let uid = pod.world.find("serviceaccounts", namespace, account).map(|row| row.uid.to_string()).unwrap_or_default();
    let issued = issued(pod, wanted);
    let claims = json!({
        "aud": [audience(wanted).unwrap_or(ISSUER)],
        "iss": ISSUER, "iat": issued, "nbf": issued, "exp": issued.saturating_add(lifetime(wanted)),
        "sub": format!("system:serviceaccount:{namespace}:{account}"),
        "kubernetes.io": {"namespace": namespace, "pod": {"name": *pod.row.key.name, "uid": *pod.row.uid},
            "serviceaccount": {"name": account, "uid": uid}},
    });
    let encoded = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let body = format!("{}.{}", encoded(&json!({"alg": "RS256", "kid": "kloop"})), encoded(&claims));
    format!("{body}.{}", URL_SAFE_NO_PAD.encode(marks(&body)))
}

/// Returns the moment at which the kubelet renews the next token of the pod, if it renews any.
pub fn renewal(pod: &LocalPod) -> Option<Time> {
    let volumes = pod.spec.volumes.iter().flatten().filter_map(|volume| volume.projected.as_ref());
    let sources = volumes.flat_map(|projected| projected.sources.iter().flatten());
    let tokens = sources.filter_map(|source| source.service_account_token.as_ref());
    let after = |token| issued(pod, token).checked_add(renewed_after(token)?);
    Time::from_second(tokens.filter_map(after).min()?).ok()
}

fn audience(wanted: &ServiceAccountTokenProjection) -> Option<&str> {
    wanted.audience.as_deref().filter(|audience| !audience.is_empty())
}

/// Returns the seconds for which a token is valid.
fn lifetime(wanted: &ServiceAccountTokenProjection) -> i64 {
    let seconds = wanted.expiration_seconds.unwrap_or(3600);
    if is_extended(wanted) { EXTENDED_SECONDS } else { seconds }
}

fn is_extended(wanted: &ServiceAccountTokenProjection) -> bool {
    audience(wanted).is_none() && wanted.expiration_seconds == Some(USUAL_SECONDS)
}

/// Returns the seconds after which the kubelet renews a token: four fifths of its lifetime, a day at most. An extended one stays.
fn renewed_after(wanted: &ServiceAccountTokenProjection) -> Option<i64> {
    (!is_extended(wanted)).then(|| (lifetime(wanted) / 5 * 4).clamp(1, MAX_AGE_SECONDS))
}

fn created(pod: &LocalPod) -> i64 {
    pod.row.created.map_or(0, |created| created.as_second())
}

/// Returns the second at which the token that counts now was issued: the pod's creation, or the last renewal since.
fn issued(pod: &LocalPod, wanted: &ServiceAccountTokenProjection) -> i64 {
    let created = created(pod);
    let age = pod.world.now.as_second().saturating_sub(created).max(0);
    created + renewed_after(wanted).map_or(0, |period| age - age % period)
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
