//! The documents about the API: which groups, versions and resources there are.
//!
//! Knows: their three forms (the lists of `/api` and `/apis`, one list for each version, and all at once).
//! Never: anything about objects; the resources come from [`catalogue`].

mod catalogue;

use super::form::{Form, Shape};
use super::path::Document;
use super::request::Request;
use super::resolve::api_version;
use super::{Answer, KUBERNETES, Result, not_allowed, openapi, unknown_path};
use crate::apiserver::{Api, custom};
pub use catalogue::Group;
use catalogue::Served;
use serde::Serialize;
use serde_json::{Value, json};

/// Answers with a document.
pub fn answer(api: &Api, request: &Request, document: &Document) -> Result {
    if request.method != "GET" {
        return Err(not_allowed());
    }
    match document {
        Document::Version => return Ok(pretty(&version())),
        Document::Health => return Ok(Answer::text("ok")),
        Document::OpenApi2 => return Ok(openapi::older(request)),
        _ => {}
    }
    // Others may have brought definitions since.
    api.look(custom::learn_all)?;
    let groups = catalogue::groups();
    match document {
        Document::OpenApi3 => return Ok(openapi::index(&groups)),
        Document::OpenApi3Of(path) => return openapi::document(api, &groups, path),
        _ => {}
    }
    let form = Form::of(request)?;
    match document {
        Document::Core | Document::Groups if matches!(form.shape, Shape::Discovery(_)) => {
            Ok(all(&groups, *document == Document::Core, &form))
        }
        Document::Core => Ok(core(request, &form)),
        Document::Groups => Ok(named(&groups, &form)),
        Document::Group(name) => {
            let group = groups.iter().find(|group| !name.is_empty() && group.name == *name).ok_or_else(unknown_path)?;
            Ok(ordered(&GroupDocument::of(group, true), &form))
        }
        Document::Resources(name, version) => {
            let group = groups.iter().find(|group| group.name == *name).ok_or_else(unknown_path)?;
            let served = group.versions.iter().find(|(known, _)| known == version).ok_or_else(unknown_path)?;
            Ok(resources(name, version, &served.1, &form))
        }
        _ => Ok(Answer::of(200, &json!({"paths": paths(&groups)}), &Form { is_pretty: true, ..form })),
    }
}

/// Returns the version document.
fn version() -> VersionDocument {
    VersionDocument {
        major: "1",
        minor: "36",
        git_version: KUBERNETES,
        git_commit: "",
        git_tree_state: "clean",
        build_date: "1970-01-01T00:00:00Z",
        go_version: concat!("kloop ", env!("CARGO_PKG_VERSION")),
        compiler: "rustc",
        platform: "linux/amd64",
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionDocument {
    major: &'static str,
    minor: &'static str,
    git_version: &'static str,
    git_commit: &'static str,
    git_tree_state: &'static str,
    build_date: &'static str,
    go_version: &'static str,
    compiler: &'static str,
    platform: &'static str,
}

fn pretty(document: &impl Serialize) -> Answer {
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    Answer { content_type: "application/json".into(), ..Answer::text(text) }
}

/// A document with its fields in Kubernetes' order, which people like to read.
fn ordered(document: &impl Serialize, form: &Form) -> Answer {
    if form.is_yaml || form.is_pretty {
        return Answer::of(200, &serde_json::to_value(document).unwrap_or_default(), form);
    }
    let text = serde_json::to_string(document).unwrap_or_default() + "\n";
    Answer { content_type: "application/json".into(), ..Answer::text(text) }
}

/// `/api`.
fn core(request: &Request, form: &Form) -> Answer {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Versions<'a> {
        kind: &'static str,
        versions: [&'static str; 1],
        #[serde(rename = "serverAddressByClientCIDRs")]
        server_addresses: [Address<'a>; 1],
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Address<'a> {
        #[serde(rename = "clientCIDR")]
        client_cidr: &'static str,
        server_address: &'a str,
    }
    let address = Address { client_cidr: "0.0.0.0/0", server_address: &request.host };
    ordered(&Versions { kind: "APIVersions", versions: ["v1"], server_addresses: [address] }, form)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupDocument<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: &'a str,
    versions: Vec<VersionOfGroup<'a>>,
    preferred_version: Option<VersionOfGroup<'a>>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionOfGroup<'a> {
    group_version: String,
    version: &'a str,
}

impl<'a> GroupDocument<'a> {
    fn of(group: &'a Group, is_alone: bool) -> GroupDocument<'a> {
        let version = |version: &'a str| VersionOfGroup { group_version: api_version(&group.name, version), version };
        let versions: Vec<_> = group.versions.iter().map(|(name, _)| version(name)).collect();
        GroupDocument {
            kind: is_alone.then_some("APIGroup"),
            api_version: is_alone.then_some("v1"),
            name: &group.name,
            preferred_version: versions.first().cloned(),
            versions,
        }
    }
}

/// `/apis`.
fn named(groups: &[Group], form: &Form) -> Answer {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Groups<'a> {
        kind: &'static str,
        api_version: &'static str,
        groups: Vec<GroupDocument<'a>>,
    }
    let groups = groups.iter().filter(|group| !group.name.is_empty());
    let groups = groups.map(|group| GroupDocument::of(group, false)).collect();
    ordered(&Groups { kind: "APIGroupList", api_version: "v1", groups }, form)
}

/// `/apis/apps/v1`.
fn resources(group: &str, version: &str, served: &[Served], form: &Form) -> Answer {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Resources<'a> {
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        api_version: Option<&'static str>,
        group_version: String,
        resources: &'a [Served],
    }
    // The core group's list does without, as it always has.
    let own = Some("v1").filter(|_| !group.is_empty());
    let group_version = api_version(group, version);
    ordered(&Resources { kind: "APIResourceList", api_version: own, group_version, resources: served }, form)
}

/// All at once (KEP-3352).
fn all(groups: &[Group], is_core: bool, form: &Form) -> Answer {
    let Shape::Discovery(version) = &form.shape else { return Answer::of(200, &Value::Null, form) };
    let groups = groups.iter().filter(|group| group.name.is_empty() == is_core);
    let items: Vec<Value> = groups
        .map(|group| {
            let versions = group.versions.iter().map(|(version, served)| {
                json!({"version": version, "freshness": "Current", "resources": catalogue::nested(served)})
            });
            let metadata = if is_core { json!({}) } else { json!({"name": group.name}) };
            json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
        })
        .collect();
    let api_version = format!("apidiscovery.k8s.io/{version}");
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items});
    let answer = Answer::of(200, &list, form);
    let content_type = format!("{};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList", answer.content_type);
    Answer { content_type, ..answer }
}

/// Every path that leads to a document.
fn paths(groups: &[Group]) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/apis".to_owned()];
    for group in groups {
        let head = if group.name.is_empty() { "/api".to_owned() } else { format!("/apis/{}", group.name) };
        paths.extend(Some(head.clone()).filter(|_| !group.name.is_empty()));
        paths.extend(group.versions.iter().map(|(version, _)| format!("{head}/{version}")));
    }
    paths.extend(["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    paths.sort();
    paths
}
