//! Discovery of the versions that extension API servers answer, merged into that of this server.
//!
//! Knows: their groups and versions from the APIServices, in the order of their priorities; their resources from the last answers of the
//! servers, so that discovery waits for none of them. Start reading at [`add_extensions`].

use super::catalogue::ApiGroup;
use crate::apiserver::Api;
use crate::apiserver::aggregation::Extension;
use crate::apiserver::aggregation::documents::VersionDocuments;
use crate::apiserver::local_api_services::group_priority;
use crate::kinds::version_priority;
use crate::serve::ServeResult;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The group that is listed first.
const FIRST: &str = "apiregistration.k8s.io";

/// Adds the versions of extension servers.
pub fn add_extensions(api: &Api, groups: &mut Vec<ApiGroup>) -> ServeResult<()> {
    let all = api.extensions()?;
    if all.is_empty() {
        return Ok(());
    }
    let mut priorities: BTreeMap<String, i64> = BTreeMap::new();
    for extension in &all {
        let known = priorities.entry(extension.group.clone()).or_default();
        *known = (*known).max(extension.priority.0);
        let documents = api.extension_documents().find(&extension.name);
        add_version(groups, extension, documents);
    }
    for group in groups.iter_mut().filter(|group| !group.extended.is_empty()) {
        let priority = |version: &str| {
            let own = all.iter().find(|one| one.group == group.name && one.version == version);
            Reverse((own.map_or(100, |own| own.priority.1), version_priority(version)))
        };
        group.versions.sort_by_cached_key(|(version, _)| priority(version));
    }
    let priority = |group: &ApiGroup| match group.name.as_str() {
        FIRST => i64::MAX,
        name => priorities.get(name).copied().unwrap_or_else(|| group_priority(name)),
    };
    groups.sort_by_key(|group| Reverse(priority(group)));
    Ok(())
}

fn add_version(groups: &mut Vec<ApiGroup>, extension: &Extension, documents: VersionDocuments) {
    let at = groups.iter().position(|known| known.name == extension.group).unwrap_or_else(|| {
        let (name, extended) = (extension.group.clone(), BTreeMap::new());
        groups.push(ApiGroup { name, versions: Vec::new(), extended });
        groups.len() - 1
    });
    let group = &mut groups[at];
    match group.versions.iter_mut().find(|(version, _)| *version == extension.version) {
        Some((_, resources)) => resources.clear(),
        None => group.versions.push((extension.version.clone(), Vec::new())),
    }
    group.extended.insert(extension.version.clone(), documents);
}

/// Returns a version in the aggregated document: with the resources that the server answered last, stale when it does not answer now.
pub fn aggregated(group: &str, version: &str, documents: &VersionDocuments) -> Value {
    let freshness = if documents.is_current { "Current" } else { "Stale" };
    json!({"version": version, "freshness": freshness, "resources": nested(group, version, &documents.resources)})
}

/// Returns the resources of an `APIResourceList` with their subresources nested in them.
fn nested(group: &str, version: &str, resources: &[Value]) -> Vec<Value> {
    let name = |one: &Value| one["name"].as_str().unwrap_or_default().to_owned();
    let response = |one: &Value| {
        let or = |field: &str, own: &str| one[field].as_str().filter(|text| !text.is_empty()).unwrap_or(own).to_owned();
        json!({"group": or("group", group), "version": or("version", version), "kind": one["kind"]})
    };
    let whole = resources.iter().filter(|one| !name(one).contains('/'));
    let shown = whole.map(|one| {
        let head = format!("{}/", name(one));
        let below = resources.iter().filter_map(|other| Some((name(other).strip_prefix(&head)?.to_owned(), other)));
        let below: Vec<Value> = below
            .map(|(name, other)| json!({"subresource": name, "responseKind": response(other), "verbs": other["verbs"]}))
            .collect();
        let mut value = json!({
            "resource": name(one), "responseKind": response(one), "verbs": one["verbs"],
            "scope": if one["namespaced"] == true { "Namespaced" } else { "Cluster" },
            "singularResource": one["singularName"].as_str().unwrap_or_default(),
        });
        for (field, list) in
            [("shortNames", &one["shortNames"]), ("categories", &one["categories"]), ("subresources", &json!(below))]
        {
            if list.as_array().is_some_and(|list| !list.is_empty()) {
                value[field] = list.clone();
            }
        }
        value
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_nested_with_their_subresources() {
        let resources = [
            json!({"name": "fish", "singularName": "fish", "namespaced": true, "kind": "Fish", "verbs": ["get"], "shortNames": ["fi"]}),
            json!({"name": "fish/scale", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"]}),
        ];
        let found = nested("sea.dev", "v1", &resources);
        let scale = json!({"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["get"]});
        let fish = json!({"resource": "fish", "responseKind": {"group": "sea.dev", "version": "v1", "kind": "Fish"}, "verbs": ["get"],
            "scope": "Namespaced", "singularResource": "fish", "shortNames": ["fi"], "subresources": [scale]});
        assert_eq!(found, [fish]);
        let documents = VersionDocuments::default();
        assert_eq!(aggregated("sea.dev", "v1", &documents)["freshness"], "Stale");
    }
}
