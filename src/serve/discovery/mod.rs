//! The discovery documents: groups, versions and resources of the API.
//!
//! Knows: their three forms (the lists of `/api` and `/apis`, one list per version, and the aggregated document).
//! Never: reads an object, except for the schema of a custom kind; the resources come from [`catalogue`].

mod catalogue;
mod extended;
mod openapi;

use super::form::{AnswerEncoding, AnswerForm, AnswerShape};
use super::path::ApiDocument;
use super::request::ApiRequest;
use super::{HttpAnswer, KUBERNETES, ServeResult, not_allowed, unknown_path};
use crate::apiserver::{Api, custom};
use crate::kinds::shared::token_claims::ISSUER;
use crate::object::api_version;
use crate::runtime::token_signer::TokenSigner;
pub use catalogue::ApiGroup;
use catalogue::ServedResource;
use serde::Serialize;
use serde_json::{Value, json};

/// Answers with a document.
pub fn answer(api: &Api, request: &ApiRequest, document: &ApiDocument) -> ServeResult {
    // Kubernetes answers HEAD for these only: its other documents are routes for GET.
    let has_head = matches!(document, ApiDocument::Root | ApiDocument::OpenApi2 | ApiDocument::OpenApi3)
        || matches!(document, ApiDocument::OpenApi3Of(_));
    if request.method != "GET" && !(has_head && request.is_get_or_head()) {
        return Err(not_allowed());
    }
    if *document == ApiDocument::Version {
        return Ok(pretty(&version()));
    }
    // Another process may have written definitions since.
    api.read(|snapshot| custom::register_definitions(api.kinds(), snapshot))?;
    let mut groups = catalogue::groups(api.kinds());
    extended::add_extensions(api, &mut groups)?;
    match document {
        ApiDocument::OpenApi2 => return openapi::older(api, &groups, request),
        ApiDocument::OpenApi3 => return Ok(openapi::index(api.kinds(), &groups, request)),
        ApiDocument::OpenApi3Of(path) => return openapi::document(api, &groups, path, request),
        _ => {}
    }
    let form = AnswerForm::negotiate(request, || true)?;
    match document {
        ApiDocument::Core | ApiDocument::Groups if matches!(form.shape, AnswerShape::Discovery(_)) => {
            Ok(aggregated_discovery(&groups, *document == ApiDocument::Core, &form))
        }
        ApiDocument::Core => Ok(core(request, &form)),
        ApiDocument::Groups => Ok(named(&groups, &form)),
        ApiDocument::Group(name) => {
            let group = groups.iter().find(|group| !name.is_empty() && group.name == *name).ok_or_else(unknown_path)?;
            Ok(ordered(&GroupDocument::from_group(group, true), &form))
        }
        ApiDocument::Resources(name, version) => {
            let group = groups.iter().find(|group| group.name == *name).ok_or_else(unknown_path)?;
            let served = group.versions.iter().find(|(known, _)| known == version).ok_or_else(unknown_path)?;
            Ok(resources(name, version, &served.1, &form))
        }
        _ => Ok(HttpAnswer::document(200, &json!({"paths": paths(&groups)}), &AnswerForm { is_pretty: true, ..form })),
    }
}

/// The path of the document about the issuer of tokens.
pub const OPENID_CONFIGURATION: &str = "/.well-known/openid-configuration";

/// Answers with the document about the issuer of tokens, for others that verify them (OpenID Connect Discovery 1.0).
pub fn openid_configuration(request: &ApiRequest) -> HttpAnswer {
    let document = json!({
        "issuer": ISSUER, "jwks_uri": format!("https://{}/openid/v1/jwks", request.host),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    public("application/json", &document)
}

/// Answers with the public key of tokens.
pub fn key_set(signer: &TokenSigner) -> HttpAnswer {
    public("application/jwk-set+json", &signer.key_set())
}

fn public(content_type: &str, document: &Value) -> HttpAnswer {
    let answer = HttpAnswer { content_type: content_type.into(), ..HttpAnswer::text(document.to_string()) };
    answer.with_header("Cache-Control", "public, max-age=3600".into())
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

fn pretty(document: &impl Serialize) -> HttpAnswer {
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    HttpAnswer { content_type: "application/json".into(), ..HttpAnswer::text(text) }
}

/// Answers with a document whose fields are in Kubernetes' order.
fn ordered(document: &impl Serialize, form: &AnswerForm) -> HttpAnswer {
    if form.encoding != AnswerEncoding::Json || form.is_pretty {
        let mut document = serde_json::to_value(document).unwrap_or_default();
        // The core group's documents have no apiVersion in JSON; the protobuf envelope has one.
        if form.encoding == AnswerEncoding::Protobuf && document["apiVersion"].is_null() {
            document["apiVersion"] = "v1".into();
        }
        return HttpAnswer::document(200, &document, form);
    }
    let text = serde_json::to_string(document).unwrap_or_default() + "\n";
    HttpAnswer { content_type: "application/json".into(), ..HttpAnswer::text(text) }
}

/// `/api`.
fn core(request: &ApiRequest, form: &AnswerForm) -> HttpAnswer {
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
    fn from_group(group: &'a ApiGroup, is_alone: bool) -> GroupDocument<'a> {
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
fn named(groups: &[ApiGroup], form: &AnswerForm) -> HttpAnswer {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Groups<'a> {
        kind: &'static str,
        api_version: &'static str,
        groups: Vec<GroupDocument<'a>>,
    }
    let groups = groups.iter().filter(|group| !group.name.is_empty());
    let groups = groups.map(|group| GroupDocument::from_group(group, false)).collect();
    ordered(&Groups { kind: "APIGroupList", api_version: "v1", groups }, form)
}

/// `/apis/apps/v1`.
fn resources(group: &str, version: &str, served: &[ServedResource], form: &AnswerForm) -> HttpAnswer {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Resources<'a> {
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        api_version: Option<&'static str>,
        group_version: String,
        resources: &'a [ServedResource],
    }
    // The core group's list has no apiVersion, as in Kubernetes.
    let own = Some("v1").filter(|_| !group.is_empty());
    let group_version = api_version(group, version);
    ordered(&Resources { kind: "APIResourceList", api_version: own, group_version, resources: served }, form)
}

/// `/apis` in aggregated form (KEP-3352).
fn aggregated_discovery(groups: &[ApiGroup], is_core: bool, form: &AnswerForm) -> HttpAnswer {
    let AnswerShape::Discovery(version) = &form.shape else { return HttpAnswer::document(200, &Value::Null, form) };
    let groups = groups.iter().filter(|group| group.name.is_empty() == is_core);
    let items: Vec<Value> = groups
        .map(|group| {
            let versions = group.versions.iter().map(|(version, served)| match group.extended.get(version) {
                Some(documents) => extended::aggregated(&group.name, version, documents),
                None => json!({"version": version, "freshness": "Current", "resources": catalogue::nested(served)}),
            });
            let metadata = if is_core { json!({}) } else { json!({"name": group.name}) };
            json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
        })
        .collect();
    let api_version = format!("apidiscovery.k8s.io/{version}");
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items});
    let answer = HttpAnswer::document(200, &list, form);
    let content_type = format!("{};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList", answer.content_type);
    HttpAnswer { content_type, ..answer }
}

/// Returns every path of a document.
fn paths(groups: &[ApiGroup]) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/apis".to_owned()];
    for group in groups {
        let head = if group.name.is_empty() { "/api".to_owned() } else { format!("/apis/{}", group.name) };
        paths.extend(Some(head.clone()).filter(|_| !group.name.is_empty()));
        paths.extend(group.versions.iter().map(|(version, _)| format!("{head}/{version}")));
    }
    paths.extend(
        [
            OPENID_CONFIGURATION,
            "/openid/v1/jwks",
            "/healthz",
            "/livez",
            "/metrics",
            "/metrics/slis",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned),
    );
    paths.sort();
    paths
}
