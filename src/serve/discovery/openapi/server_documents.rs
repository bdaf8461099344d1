//! The documents of the paths that describe the server: its versions, its groups, and how its tokens are verified.
//!
//! Each has one operation. Start reading at [`ServerDocument::all`].

use super::operations::{MEDIA, capitalize, friendly_group, reference};
use crate::serve::discovery::catalogue::ApiGroup;
use serde_json::{Map, Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// A document with one path.
pub struct ServerDocument {
    /// `apis/apps`.
    pub path: String,
    /// `getAppsAPIGroup`.
    id: String,
    /// The description of the operation.
    text: &'static str,
    tag: String,
    media: &'static [&'static str],
    /// The name of the answer's schema; `None` for text.
    schema: Option<&'static str>,
}

impl ServerDocument {
    /// Returns all of them: `api`, `apis`, one for each built-in group, and those about the version and the tokens.
    pub fn all(groups: &[ApiGroup], is_built_in: impl Fn(&ApiGroup) -> bool) -> Vec<ServerDocument> {
        let versions = "get available API versions";
        let mut all = vec![
            ServerDocument::new("api", "CoreAPIVersions", versions, "core", Some("APIVersions")),
            ServerDocument::new("apis", "APIVersions", versions, "apis", Some("APIGroupList")),
            ServerDocument {
                media: &["application/json"],
                ..ServerDocument::new(
                    "version",
                    "CodeVersion",
                    "get the version information for this server",
                    "version",
                    Some("Info"),
                )
            },
            ServerDocument {
                media: &["application/json"],
                ..ServerDocument::new(
                    ".well-known/openid-configuration",
                    "ServiceAccountIssuerOpenIDConfiguration",
                    "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
                    "WellKnown",
                    None,
                )
            },
            ServerDocument {
                media: &["application/jwk-set+json"],
                ..ServerDocument::new(
                    "openid/v1/jwks",
                    "ServiceAccountIssuerOpenIDKeyset",
                    "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
                    "openid",
                    None,
                )
            },
        ];
        all.extend(groups.iter().filter(|group| !group.name.is_empty() && is_built_in(group)).map(|group| {
            let word = friendly_group(&group.name);
            let (path, id) = (format!("apis/{}", group.name), format!("{}APIGroup", capitalize(&word)));
            ServerDocument::new(&path, &id, "get information of a group", &word, Some("APIGroup"))
        }));
        all
    }

    fn new(path: &str, id: &str, text: &'static str, tag: &str, schema: Option<&'static str>) -> ServerDocument {
        ServerDocument { path: path.into(), id: format!("get{id}"), text, tag: tag.into(), media: &MEDIA, schema }
    }

    /// Adds its path and the schemas of its answer.
    pub fn describe(&self, paths: &mut Map<String, Value>, schemas: &mut Map<String, Value>) {
        let schema = match self.schema {
            Some("Info") => reference(INFO),
            Some(kind) => reference(&format!("{META}.{kind}")),
            None => json!({"type": "string"}),
        };
        let content: Map<String, Value> =
            self.media.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
        let responses =
            json!({"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}});
        let get = json!({"operationId": self.id, "description": self.text, "tags": [self.tag], "responses": responses});
        paths.insert(format!("/{}/", self.path), json!({"get": get}));
        self.schema.into_iter().for_each(|kind| add_schemas(kind, schemas));
    }
}

/// Adds the schema of an answer, with those that it refers to.
fn add_schemas(kind: &str, schemas: &mut Map<String, Value>) {
    let mut add = |kind: &str, fields: &[(&str, Value)], required: &[&str]| {
        let properties: Map<String, Value> =
            fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
        let mut schema = json!({"type": "object", "properties": properties, "required": required});
        if kind.starts_with("API") {
            schema["x-kubernetes-group-version-kind"] = json!([{"group": "", "version": "v1", "kind": kind}]);
        }
        let name = if kind == "Info" { INFO.to_owned() } else { format!("{META}.{kind}") };
        schemas.insert(name, schema);
    };
    let text = || json!({"type": "string", "default": ""});
    let list = |kind: &str| json!({"type": "array", "items": {"$ref": format!("#/components/schemas/{META}.{kind}")}});
    let head = [("apiVersion", json!({"type": "string"})), ("kind", json!({"type": "string"}))];
    let addresses = ("serverAddressByClientCIDRs", list("ServerAddressByClientCIDR"));
    if kind == "Info" {
        let fields = [
            "buildDate",
            "compiler",
            "gitCommit",
            "gitTreeState",
            "gitVersion",
            "goVersion",
            "major",
            "minor",
            "platform",
        ];
        return add(kind, &fields.map(|field| (field, text())), &fields);
    }
    let address = [("clientCIDR", text()), ("serverAddress", text())];
    add("ServerAddressByClientCIDR", &address, &["clientCIDR", "serverAddress"]);
    if kind == "APIVersions" {
        let versions = ("versions", json!({"type": "array", "items": text()}));
        return add(kind, &[&head[..], &[addresses, versions]].concat(), &["versions", "serverAddressByClientCIDRs"]);
    }
    let version = [("groupVersion", text()), ("version", text())];
    add("GroupVersionForDiscovery", &version, &["groupVersion", "version"]);
    let preferred = json!({"$ref": format!("#/components/schemas/{META}.GroupVersionForDiscovery")});
    let group =
        [addresses, ("name", text()), ("preferredVersion", preferred), ("versions", list("GroupVersionForDiscovery"))];
    add("APIGroup", &[&head[..], &group].concat(), &["name", "versions"]);
    if kind == "APIGroupList" {
        add(kind, &[&head[..], &[("groups", list("APIGroup"))]].concat(), &["groups"]);
    }
}
