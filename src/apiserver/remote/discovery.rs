//! The resources that a server serves, from its discovery documents.
//!
//! Knows: newer servers answer all groups at once (`APIGroupDiscoveryList`), older ones each version on its own. A group whose own server
//! does not answer is left out. Start reading at [`read`].

use super::{RemoteCluster, refusal};
use crate::apiserver::ApiResult;
use crate::client::ClientRequest;
use crate::object::group_of;
use serde_json::Value;

/// The paths of the documents of all groups.
pub const PATHS: [&str; 2] = ["/api", "/apis"];

/// The acceptable answers to a request for all groups, the best first.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// Maximum number of versions whose documents are read one by one.
const MAX_VERSIONS: usize = 500;

/// A resource in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredResource {
    /// `apps/v1`
    pub api_version: String,
    /// The plural name.
    pub plural: String,
    /// The singular name; may be empty.
    pub singular: String,
    /// The kind.
    pub kind: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Short names.
    pub short: Vec<String>,
    /// The verbs.
    pub verbs: Vec<String>,
    /// The categories.
    pub categories: Vec<String>,
    /// Whether clients prefer this version of the group.
    pub is_preferred: bool,
}

/// Reads all resources in all versions, without subresources.
pub fn read(cluster: &RemoteCluster) -> ApiResult<Vec<DiscoveredResource>> {
    let mut resources = Vec::new();
    for path in PATHS {
        let body = read_document(cluster, path)?;
        match body["kind"].as_str() {
            Some("APIGroupDiscoveryList") => resources.extend(list_resources(&body)),
            _ => resources.extend(read_each(cluster, &body)),
        }
    }
    Ok(resources)
}

/// Returns the resources of an `APIGroupDiscoveryList`.
pub fn list_resources(list: &Value) -> impl Iterator<Item = DiscoveredResource> {
    items(&list["items"]).flat_map(group_resources)
}

fn read_document(cluster: &RemoteCluster, path: &str) -> ApiResult<Value> {
    let reply = cluster.send(ClientRequest::get(path).accepting(AGGREGATED))?;
    reply.json().map_err(|error| refusal(cluster.client(), error))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn texts(list: &Value) -> Vec<String> {
    items(list).filter_map(|item| Some(item.as_str()?.to_owned())).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the resources of a group of an `APIGroupDiscoveryList`. Its first version is the preferred one.
fn group_resources(group: &Value) -> Vec<DiscoveredResource> {
    let name = text(&group["metadata"]["name"]);
    let mut resources = Vec::new();
    for (place, version) in items(&group["versions"]).enumerate() {
        let number = text(&version["version"]);
        let api_version = if name.is_empty() { number } else { format!("{name}/{number}") };
        resources.extend(items(&version["resources"]).map(|resource| DiscoveredResource {
            api_version: api_version.clone(),
            plural: text(&resource["resource"]),
            singular: text(&resource["singularResource"]),
            kind: text(&resource["responseKind"]["kind"]),
            namespaced: resource["scope"] == "Namespaced",
            short: texts(&resource["shortNames"]),
            verbs: texts(&resource["verbs"]),
            categories: texts(&resource["categories"]),
            is_preferred: place == 0,
        }));
    }
    resources
}

/// Reads the versions of an `APIVersions` or `APIGroupList` one by one.
fn read_each(cluster: &RemoteCluster, body: &Value) -> Vec<DiscoveredResource> {
    let core = texts(&body["versions"]).into_iter().map(|version| (format!("/api/{version}"), version, true));
    let named = items(&body["groups"]).flat_map(|group| {
        let preferred = text(&group["preferredVersion"]["groupVersion"]);
        items(&group["versions"]).map(move |version| {
            let version = text(&version["groupVersion"]);
            (format!("/apis/{version}"), version.clone(), version == preferred)
        })
    });
    let mut resources = Vec::new();
    for (path, api_version, is_preferred) in core.chain(named).take(MAX_VERSIONS) {
        let Ok(list) = read_document(cluster, &path) else { continue };
        let own = items(&list["resources"]).filter(|resource| !text(&resource["name"]).contains('/'));
        resources.extend(own.map(|resource| DiscoveredResource {
            api_version: api_version.clone(),
            plural: text(&resource["name"]),
            singular: text(&resource["singularName"]),
            kind: text(&resource["kind"]),
            namespaced: resource["namespaced"] == true,
            short: texts(&resource["shortNames"]),
            verbs: texts(&resource["verbs"]),
            categories: texts(&resource["categories"]),
            is_preferred,
        }));
    }
    resources
}

impl DiscoveredResource {
    /// The group; empty for the core group.
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn first_version_of_a_group_is_preferred() {
        let version = |version: &str| {
            json!({"version": version, "resources": [{"resource": "jobs", "responseKind": {"kind": "Job"},
                "scope": "Namespaced", "verbs": ["get"], "shortNames": ["j"]}]})
        };
        let group = json!({"metadata": {"name": "batch"}, "versions": [version("v1"), version("v1beta1")]});
        let found = group_resources(&group);
        let seen: Vec<_> = found.iter().map(|found| (found.api_version.as_str(), found.is_preferred)).collect();
        assert_eq!(seen, [("batch/v1", true), ("batch/v1beta1", false)]);
        assert_eq!((found[0].group(), found[0].namespaced, found[0].kind.as_str()), ("batch", true, "Job"));
    }
}
