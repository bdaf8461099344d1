//! The token of a pod's service account: its claims, which the machine signs.
//!
//! They depend only on the pod, its account and node, and the time of issue, so that a pod's files stay as they are until the kubelet
//! renews the token.

use super::super::pod::LocalPod;
use crate::kinds::shared::token_claims::{DEFAULT_SECONDS, TokenClaims, lifetime, uuid};
use crate::object::Time;
use k8s_openapi::api::core::v1::ServiceAccountTokenProjection;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The kubelet renews a token that is older than a day, even if it is valid for longer.
const MAX_AGE_SECONDS: i64 = 24 * 3600;

/// Returns the claims for the projection's audience, or for the API server's where it names none.
pub fn claims(pod: &LocalPod, wanted: &ServiceAccountTokenProjection) -> String {
    let namespace = &*pod.row.key.namespace;
    let account = pod.spec.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
    let uid_of = |resource, namespace, name| pod.world.find(resource, namespace, name).map_or("", |row| &*row.uid);
    let issued = issued(pod, wanted);
    let id = |part: u8| {
        let mut hasher = DefaultHasher::new();
        (&*pod.row.uid, audience(wanted), issued, part).hash(&mut hasher);
        hasher.finish()
    };
    let node = pod.spec.node_name.as_deref().filter(|name| !name.is_empty());
    let audiences: Vec<String> = audience(wanted).map(str::to_owned).into_iter().collect();
    let claims = TokenClaims {
        namespace,
        account: (account, uid_of("serviceaccounts", namespace, account)),
        pod: Some((&pod.row.key.name, &pod.row.uid)),
        secret: None,
        node: node.map(|name| (name, uid_of("nodes", "", name))),
        audiences: &audiences,
        seconds: requested(wanted),
        issued,
        id: uuid(id(0), id(1)),
    };
    claims.to_value().to_string()
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

fn requested(wanted: &ServiceAccountTokenProjection) -> i64 {
    wanted.expiration_seconds.unwrap_or(DEFAULT_SECONDS)
}

/// Returns the seconds after which the kubelet renews a token: four fifths of its lifetime, a day at most. An extended one stays.
fn renewed_after(wanted: &ServiceAccountTokenProjection) -> Option<i64> {
    let seconds = requested(wanted);
    let is_extended = lifetime(seconds, audience(wanted).is_none()) != seconds;
    (!is_extended).then(|| (seconds / 5 * 4).clamp(1, MAX_AGE_SECONDS))
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
