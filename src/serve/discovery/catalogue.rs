//! The served resources by group and version: those of the kinds, and their subresources.

use crate::apiserver::aggregation::documents::VersionDocuments;
use crate::kinds::{Kind, KindRegistry, version_priority};
use crate::object::split_api_version;
use crate::serve::computed::{COMPUTED, ComputedKind};
use crate::serve::reviews::REVIEWS;
use crate::serve::subresource::{self, Subresource};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// One group, its best version first.
pub struct ApiGroup {
    /// Empty for the core group.
    pub name: String,
    /// The versions, each with its resources by name.
    pub versions: Vec<(String, Vec<ServedResource>)>,
    /// The documents of the versions that extension servers answer; their resources are not known here.
    pub extended: BTreeMap<String, VersionDocuments>,
}

/// One resource or subresource.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedResource {
    /// `pods`, `pods/log`.
    pub name: String,
    singular_name: String,
    /// Whether it is in a namespace.
    pub namespaced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    /// `Pod`.
    pub kind: String,
    /// `get`, `list`.
    pub verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_version_hash: Option<String>,
    /// The place of a subresource of a custom resource; other resources are ordered by name.
    #[serde(skip)]
    place: u8,
}

/// Verbs of objects.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Verbs of custom resources, in Kubernetes' order.
const CUSTOM_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Kubernetes' order of its groups; others follow by name.
const ORDER: [&str; 21] = [
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "resource.k8s.io",
];

/// Returns all groups.
pub fn groups(kinds: &KindRegistry) -> Vec<ApiGroup> {
    let mut groups: Vec<ApiGroup> = Vec::new();
    let mut add = |group: &str, version: &str, served: Vec<ServedResource>| {
        let at = groups.iter().position(|known| known.name == group).unwrap_or_else(|| {
            groups.push(ApiGroup { name: group.to_owned(), versions: Vec::new(), extended: BTreeMap::new() });
            groups.len() - 1
        });
        let versions = &mut groups[at].versions;
        match versions.iter_mut().find(|(known, _)| known == version) {
            Some((_, resources)) => resources.extend(served),
            None => versions.push((version.to_owned(), served)),
        }
    };
    for kind in kinds.all() {
        add(kind.resource.group(), kind.version, served_resources(kind));
        for other in kind.also {
            let (group, version) = split_api_version(other);
            add(group, version, served_resources(kind.in_version(other)));
        }
    }
    add("", "v1", vec![alone("bindings", "Binding", true)]);
    for review in &REVIEWS {
        add(review.group, "v1", vec![alone(review.plural, review.kind, review.namespaced)]);
    }
    for kind in &COMPUTED {
        add(kind.group, kind.version, vec![computed_resource(kind)]);
    }
    let place = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
    groups.sort_by(|one, other| (place(&one.name), &one.name).cmp(&(place(&other.name), &other.name)));
    for group in &mut groups {
        group.versions.sort_by_cached_key(|(version, _)| Reverse(version_priority(version)));
    }
    for (_, resources) in groups.iter_mut().flat_map(|group| &mut group.versions) {
        resources.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    }
    groups
}

impl ServedResource {
    fn sort_key(&self) -> (&str, u8, &str) {
        (self.name.split('/').next().unwrap_or_default(), self.place, &self.name)
    }
}

/// Returns the hash by which migrators of stored objects see that their storage version has changed
/// (k8s.io/apiserver/pkg/endpoints/discovery/storageversionhash.go).
fn storage_version_hash(kind: &Kind) -> String {
    let own = || format!("{}/{}", kind.resource.group(), kind.version);
    let storage = kind.custom.map_or_else(own, |custom| custom.storage.clone());
    BASE64_STANDARD.encode(&digest(&SHA256, format!("{storage}/{}", kind.kind).as_bytes()).as_ref()[..8])
}

fn served_resources(kind: &Kind) -> Vec<ServedResource> {
    let plural = kind.resource.plural();
    let verbs = if kind.custom.is_some() { CUSTOM_VERBS } else { VERBS };
    let verbs = verbs.into_iter().filter(|verb| plural != "namespaces" || *verb != "deletecollection");
    let own = ServedResource {
        name: plural.to_owned(),
        singular_name: kind.singular(),
        namespaced: kind.namespaced,
        group: None,
        version: None,
        kind: kind.kind.to_owned(),
        verbs: verbs.collect(),
        short_names: kind.short.to_vec(),
        categories: kind.categories.to_vec(),
        storage_version_hash: Some(storage_version_hash(kind)),
        place: 0,
    };
    let place = |name: &str| if kind.custom.is_some() { 1 + u8::from(name == "scale") } else { 0 };
    let below = |known: &Subresource| ServedResource {
        name: format!("{plural}/{}", known.name),
        singular_name: String::new(),
        group: known.version.map(|(group, _)| group),
        version: known.version.map(|(_, version)| version),
        kind: known.kind.unwrap_or(kind.kind).to_owned(),
        verbs: known.verbs.to_vec(),
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: None,
        place: place(known.name),
        ..own.clone()
    };
    let mut served = vec![own.clone()];
    served.extend(subresource::subresources(kind).filter(|known| !known.verbs.is_empty()).map(below));
    served
}

/// A resource whose objects are computed when they are read.
fn computed_resource(kind: &ComputedKind) -> ServedResource {
    ServedResource {
        singular_name: kind.singular.to_owned(),
        verbs: vec!["get", "list"],
        short_names: kind.short.to_vec(),
        ..alone(kind.plural, kind.kind, kind.namespaced)
    }
}

/// A resource that is only ever created, and not kept.
fn alone(name: &str, kind: &str, namespaced: bool) -> ServedResource {
    ServedResource {
        name: name.to_owned(),
        singular_name: kind.to_ascii_lowercase(),
        namespaced,
        group: None,
        version: None,
        kind: kind.to_owned(),
        verbs: vec!["create"],
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: None,
        place: 0,
    }
}

/// Returns the resources with their subresources nested in them (`apidiscovery.k8s.io`).
pub fn nested(served: &[ServedResource]) -> Vec<Value> {
    let response = |one: &ServedResource| json!({"group": one.group.unwrap_or_default(), "version": one.version.unwrap_or_default(), "kind": one.kind});
    let whole = served.iter().filter(|one| !one.name.contains('/'));
    whole
        .map(|one| {
            let head = format!("{}/", one.name);
            let inside = served.iter().filter_map(|other| Some((other.name.strip_prefix(&head)?, other)));
            let inside: Vec<Value> = inside
                .map(
                    |(name, other)| json!({"subresource": name, "responseKind": response(other), "verbs": other.verbs}),
                )
                .collect();
            let mut value = json!({
                "resource": one.name, "responseKind": response(one), "verbs": one.verbs,
                "scope": if one.namespaced { "Namespaced" } else { "Cluster" }, "singularResource": one.singular_name,
            });
            let lists = [
                ("shortNames", json!(one.short_names)),
                ("categories", json!(one.categories)),
                ("subresources", inside.into()),
            ];
            for (name, list) in lists {
                if list.as_array().is_some_and(|list| !list.is_empty()) {
                    value[name] = list;
                }
            }
            value
        })
        .collect()
}
