//! The APIServices of this server's own versions, computed when they are read: one for each version of each group, as Kubernetes registers
//! them by itself.
//!
//! Never: stores one. A stored APIService of the same name takes precedence. Start reading at [`add_local`].

use crate::kinds::api_service::local_status;
use crate::kinds::{Kind, KindRegistry};
use crate::object::{Key, Object, Resource, format_uid};
use serde_json::json;
use std::collections::BTreeSet;

/// Kubernetes' priorities of its groups.
const PRIORITIES: [(&str, i64); 20] = [
    ("", 18000),
    ("apps", 17800),
    ("events.k8s.io", 17750),
    ("authentication.k8s.io", 17700),
    ("authorization.k8s.io", 17600),
    ("autoscaling", 17500),
    ("batch", 17400),
    ("certificates.k8s.io", 17300),
    ("networking.k8s.io", 17200),
    ("policy", 17100),
    ("rbac.authorization.k8s.io", 17000),
    ("storage.k8s.io", 16800),
    ("admissionregistration.k8s.io", 16700),
    ("apiextensions.k8s.io", 16700),
    ("scheduling.k8s.io", 16600),
    ("coordination.k8s.io", 16500),
    ("node.k8s.io", 16300),
    ("discovery.k8s.io", 16200),
    ("flowcontrol.apiserver.k8s.io", 16100),
    ("resource.k8s.io", 15900),
];
/// The priority of groups of custom resources, and of those of kloop.
const CUSTOM_PRIORITY: i64 = 1000;
/// Groups without an object that is stored.
const REVIEWED: [&str; 2] = ["v1.authentication.k8s.io", "v1.authorization.k8s.io"];
/// The group of APIServices, which has none itself.
const OWN: &str = "apiregistration.k8s.io";
/// The label of APIServices that the server keeps up.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Returns the priority of a group of this server.
pub fn group_priority(group: &str) -> i64 {
    PRIORITIES.iter().find(|(known, _)| *known == group).map_or(CUSTOM_PRIORITY, |(_, priority)| *priority)
}

/// Adds the computed APIServices to the stored ones, in the order of their names.
pub fn add_local(kinds: &KindRegistry, since: &str, objects: &mut Vec<Object>) {
    let known: BTreeSet<String> = objects.iter().map(|object| object.name().to_owned()).collect();
    let computed = versions(kinds).into_iter().filter(|name| !known.contains(name));
    objects.extend(computed.map(|name| local(kinds, &name, since)));
    objects.sort_by(|one, other| one.name().cmp(other.name()));
}

/// Returns the computed APIService of this name.
pub fn find_local(kinds: &KindRegistry, name: &str, since: &str) -> Option<Object> {
    versions(kinds).contains(name).then(|| local(kinds, name, since))
}

/// Returns the key of the namespace whose age is that of the cluster.
pub fn birth() -> Key {
    Key::new(Resource("namespaces"), "", "default")
}

/// The names of the versions: `v1.apps`.
fn versions(kinds: &KindRegistry) -> BTreeSet<String> {
    let name = |group: &str, version: &str| format!("{version}.{group}");
    let mut names: BTreeSet<String> = REVIEWED.map(str::to_owned).into();
    for kind in kinds.all().filter(|kind| kind.resource.group() != OWN) {
        names.insert(name(kind.resource.group(), kind.version));
        for other in kind.also {
            let (group, version) = other.rsplit_once('/').unwrap_or(("", other));
            names.insert(name(group, version));
        }
    }
    names
}

fn local(kinds: &KindRegistry, name: &str, since: &str) -> Object {
    let (version, group) = name.split_once('.').unwrap_or((name, ""));
    let is_custom = kinds.custom_kinds().into_iter().any(|kind: &Kind| kind.resource.group() == group);
    let mut spec = json!({
        "version": version, "groupPriorityMinimum": group_priority(group), "versionPriority": version_priority(group, version),
    });
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    Object(json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {
            "name": name, "uid": uid(name), "resourceVersion": "1", "creationTimestamp": since,
            "labels": {MANAGED: if is_custom { "true" } else { "onstart" }},
        },
        "spec": spec, "status": local_status(since),
    }))
}

fn version_priority(group: &str, version: &str) -> i64 {
    match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io", _) => 21,
        _ if group_priority(group) == CUSTOM_PRIORITY => 100,
        _ => 15,
    }
}

/// A uid that follows from the name.
fn uid(name: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let word = |from: usize| u64::from_be_bytes(std::array::from_fn(|at| hash.as_ref()[from + at]));
    format_uid(word(0), word(8))
}
