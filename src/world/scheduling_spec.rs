//! The part of a pod's spec that the scheduler reads. Pods of one template share it, so it is parsed once.

use crate::kinds::pod::volumes::VolumeSource;
use crate::object::{Object, Str};
use k8s_openapi::api::core::v1::Volume;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Fields of the spec that the scheduler reads unchanged.
const SPEC: [&str; 7] = [
    "affinity",
    "nodeName",
    "nodeSelector",
    "preemptionPolicy",
    "schedulingGates",
    "tolerations",
    "topologySpreadConstraints",
];

/// Fields of the volumes that are claims.
const CLAIMS: [&str; 2] = ["persistentVolumeClaim", "ephemeral"];

/// Returns the namespace and the spec fields of a pod that constrain or rank nodes. Numeric requests are index fields
/// of the row.
pub fn scheduling_spec(pod: &Object) -> Object {
    let mut spec = Map::new();
    let mut keep = |field: &str, value: Value| spec.insert(field.to_owned(), value);
    for field in SPEC {
        if let Some(value) = pod.value_at(&["spec", field]) {
            keep(field, value.clone());
        }
    }
    for field in ["initContainers", "containers"] {
        let containers = pod.items(&["spec", field]).iter();
        keep(field, containers.map(|container| json!({"image": container["image"]})).collect());
    }
    let claims = pod.items(&["spec", "volumes"]).iter().filter(|volume| is_claim(volume));
    keep("volumes", claims.cloned().collect());
    Object(json!({"metadata": {"namespace": pod.namespace()}, "spec": spec}))
}

/// The scheduling spec as text.
pub(super) fn text(pod: &Object) -> Str {
    scheduling_spec(pod).0.to_string().into()
}

/// Whether a volume is a claim, by name or ephemeral.
fn is_claim(volume: &Value) -> bool {
    claim_name("", volume).is_some()
}

/// A claim that a volume of a pod names.
pub struct PodClaim {
    /// The name of the claim.
    pub name: String,
    /// Whether the claim is made for the pod alone, from the template of an ephemeral volume.
    pub is_ephemeral: bool,
}

/// Returns the claims that a pod uses, its own for ephemeral volumes included.
pub fn pod_claims<'a>(pod: &'a str, volumes: &'a [Value]) -> impl Iterator<Item = PodClaim> + 'a {
    let is_ephemeral = |volume: &Value| volume["ephemeral"].is_object();
    volumes
        .iter()
        .filter_map(move |volume| Some(PodClaim { name: claim_name(pod, volume)?, is_ephemeral: is_ephemeral(volume) }))
}

/// The names of the claims that a pod uses, its own for ephemeral volumes included.
pub fn claims_of(pod: &str, volumes: &[Value]) -> Vec<String> {
    pod_claims(pod, volumes).map(|claim| claim.name).collect()
}

/// The name of the claim that a volume of a pod is, if it is one.
fn claim_name(pod: &str, volume: &Value) -> Option<String> {
    // To decode a volume takes longer than all other fields that a row has of its pod.
    if CLAIMS.iter().all(|field| volume.get(field).is_none()) {
        return None;
    }
    let volume = Volume::deserialize(volume).ok()?;
    VolumeSource::from_volume(&volume)?.claim_name(pod, &volume.name)
}

/// The ports of the node that these containers of a pod are reached at, each with its number.
pub(super) fn ports<'a>(pod: &'a Object, list: &str) -> impl Iterator<Item = (&'a Value, i64)> {
    let ports = pod.items(&["spec", list]).iter().flat_map(|one| one["ports"].as_array().into_iter().flatten());
    ports.filter_map(|port| Some((port, port["hostPort"].as_i64().filter(|number| *number > 0)?)))
}

/// The ports of its node that a pod takes: address, protocol, number.
pub(super) fn host_ports(pod: &Object) -> Vec<(Str, Str, i64)> {
    let text = |value: &Value, default: &str| Str::from(value.as_str().unwrap_or(default));
    let taken = |(port, number): (&Value, i64)| (text(&port["hostIP"], ""), text(&port["protocol"], "TCP"), number);
    ports(pod, "containers").map(taken).collect()
}
