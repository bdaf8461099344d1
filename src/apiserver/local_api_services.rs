//! The APIServices of this server's own versions, computed when they are read: one for each version of each group, as Kubernetes registers
//! them by itself.
//!
//! One that is updated is stored from then on and takes precedence; one that is deleted is made again at once, and stored.
//! Start reading at [`add_local`].

use super::ApiResult;
use super::transaction::Transaction;
use crate::kinds::api_service::{self, local_status};
use crate::kinds::custom::DEFINITIONS;
use crate::kinds::{Kind, KindRegistry};
use crate::object::{Key, Object, Resource, format_uid, time};
use crate::store::{ChangeKind, LogEntry};
use serde_json::{Value, json};
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
/// Versions whose resources are only answered, never stored, such as TokenReview.
const REVIEW_VERSIONS: [&str; 2] = ["v1.authentication.k8s.io", "v1.authorization.k8s.io"];
/// The group of APIServices. It has no APIService itself.
const OWN: &str = "apiregistration.k8s.io";
/// The label of APIServices that the server maintains.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// The `resourceVersion` of computed APIServices.
const COMPUTED_REVISION: u64 = 1;

/// Returns the priority of a group of this server.
pub fn group_priority(group: &str) -> i64 {
    PRIORITIES.iter().find(|(known, _)| *known == group).map_or(CUSTOM_PRIORITY, |(_, priority)| *priority)
}

/// Adds the computed APIServices to the stored ones, in the order of their names. Leaves out those that were made again after a deletion
/// and whose version is no longer served.
pub fn add_local(kinds: &KindRegistry, since: &str, objects: &mut Vec<Object>) {
    let served = versions(kinds);
    objects.retain(|object| served.contains(object.name()) || !is_remade(object));
    let known: BTreeSet<String> = objects.iter().map(|object| object.name().to_owned()).collect();
    let computed = served.into_iter().filter(|name| !known.contains(name));
    objects.extend(computed.map(|name| local(kinds, &name, since)));
    objects.sort_by(|one, other| one.name().cmp(other.name()));
}

/// Returns the stored APIService of a name, or the computed one where this server answers the version.
pub fn find(
    kinds: &KindRegistry,
    name: &str,
    stored: Option<Object>,
    default_namespace_key: impl FnOnce() -> ApiResult<String>,
) -> ApiResult<Option<Object>> {
    let stored = stored.filter(|object| !is_remade(object) || versions(kinds).contains(name));
    match stored {
        Some(stored) => Ok(Some(stored)),
        None if versions(kinds).contains(name) => Ok(Some(local(kinds, name, &default_namespace_key()?))),
        None => Ok(None),
    }
}

/// Deletes the APIService of a version that this server answers and makes it again, as a real server does at the latest when it starts:
/// watches see both. Returns the deleted one, and `None` for other objects.
pub fn remake(txn: &mut dyn Transaction, key: &Key, last: &Object) -> ApiResult<Option<Object>> {
    if key.resource != api_service::KIND.resource || !versions(txn.kinds()).contains(&*key.name) {
        return Ok(None);
    }
    if last.revision() == COMPUTED_REVISION {
        txn.put(key, last.clone())?;
    }
    let deleted = txn.remove(key, last.clone())?;
    let mut new = local(txn.kinds(), &key.name, &time::rfc3339(txn.now()));
    let uid = format_uid(txn.random(), txn.random());
    new.set(&["metadata", "uid"], uid);
    txn.put(key, new)?;
    Ok(Some(Object::clone(&deleted)))
}

/// The changes of computed APIServices that changes of definitions cause.
pub struct LocalVersions {
    kinds: KindRegistry,
    since: String,
}

impl LocalVersions {
    /// Reads the kinds and the time from which the APIServices of a cluster are computed.
    pub fn read(txn: &dyn Transaction) -> ApiResult<LocalVersions> {
        let first = txn.get_shared(&default_namespace_key())?;
        let since = first.as_ref().and_then(|first| first.text(&["metadata", "creationTimestamp"]));
        Ok(LocalVersions { kinds: txn.kinds().clone(), since: since.unwrap_or_default().to_owned() })
    }

    /// Returns the APIServices that an entry of the log adds (true) or removes (false): those of versions that no other definition
    /// serves.
    pub fn changes(&self, entry: &LogEntry) -> Vec<(Object, bool)> {
        let stored = entry.change.stored();
        if stored.key.resource != DEFINITIONS {
            return Vec::new();
        }
        let before = entry.previous.as_deref().map(served_versions).unwrap_or_default();
        let after = match &entry.change {
            ChangeKind::Put(stored) => served_versions(&stored.body),
            ChangeKind::Removed(_) => BTreeSet::new(),
        };
        let others = self.kinds.custom_kinds().into_iter().filter(|kind| !kind.is_declared_by(&stored.key.name));
        let kept: BTreeSet<String> = others.flat_map(names_of_kind).collect();
        let changed = before.symmetric_difference(&after).filter(|name| !kept.contains(*name));
        let changed = changed.map(|name| {
            let mut object = local_of(name, &self.since, true);
            object.set(&["metadata", "resourceVersion"], entry.revision.to_string());
            (object, after.contains(name))
        });
        changed.collect()
    }
}

/// Returns the names of the APIServices of a definition's text.
fn served_versions(definition: &str) -> BTreeSet<String> {
    let definition = Object(serde_json::from_str(definition).unwrap_or_default());
    let group = definition.text(&["spec", "group"]).unwrap_or_default();
    let versions = definition.items(&["spec", "versions"]).iter().filter(|version| version["served"] == true);
    versions.filter_map(|version| version["name"].as_str()).map(|version| format!("{version}.{group}")).collect()
}

/// Whether an APIService is one that this server made again after a deletion.
fn is_remade(object: &Object) -> bool {
    object.label(MANAGED).is_some() && object.value_at(&["spec", "service"]).is_none_or(Value::is_null)
}

/// Returns the key of the namespace whose age is that of the cluster.
pub fn default_namespace_key() -> Key {
    Key::new(Resource("namespaces"), "", "default")
}

/// The names of the versions: `v1.apps`.
fn versions(kinds: &KindRegistry) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = REVIEW_VERSIONS.map(str::to_owned).into();
    names.extend(kinds.all().filter(|kind| kind.resource.group() != OWN).flat_map(names_of_kind));
    names
}

fn names_of_kind(kind: &'static Kind) -> impl Iterator<Item = String> {
    let also = kind.also.iter().map(|other| other.rsplit_once('/').unwrap_or(("", other)));
    std::iter::once((kind.resource.group(), kind.version))
        .chain(also)
        .map(|(group, version)| format!("{version}.{group}"))
}

fn local(kinds: &KindRegistry, name: &str, since: &str) -> Object {
    let (_, group) = name.split_once('.').unwrap_or((name, ""));
    let is_custom = kinds.custom_kinds().into_iter().any(|kind: &Kind| kind.resource.group() == group);
    local_of(name, since, is_custom)
}

fn local_of(name: &str, since: &str, is_custom: bool) -> Object {
    let (version, group) = name.split_once('.').unwrap_or((name, ""));
    let mut spec = json!({
        "version": version, "groupPriorityMinimum": group_priority(group), "versionPriority": version_priority(group, version),
    });
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    Object(json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {
            "name": name, "uid": uid(name), "resourceVersion": COMPUTED_REVISION.to_string(), "creationTimestamp": since,
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
