//! OpenAPI documents: what kubectl validates and explains by. One for each version of a group, and an index of them.
//!
//! They list the operations that clients look for: the kinds that can be patched, and that unknown fields are reported.

use super::catalogue::ApiGroup;
use crate::apiserver::{Api, read};
use crate::kinds::custom::DEFINITIONS;
use crate::kinds::{Kind, KindRegistry};
use crate::object::Key;
use crate::serve::form::AnswerForm;
use crate::serve::request::ApiRequest;
use crate::serve::resolve::api_version;
use crate::serve::{HttpAnswer, KUBERNETES, ServeResult, unknown_path};
use crate::show::schema::KindSchemas;
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The form of the older document that kubectl asks for.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2`: kubectl asks for it where a newer document says nothing, and is content with nothing.
pub fn older(request: &ApiRequest) -> HttpAnswer {
    if request.accept.contains("protobuf") {
        return HttpAnswer { content_type: PROTOBUF.into(), ..HttpAnswer::text("") };
    }
    let info = json!({"title": "Kubernetes", "version": KUBERNETES});
    HttpAnswer::document(
        200,
        &json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}),
        &AnswerForm::default(),
    )
}

/// `/openapi/v3`: where the documents are. Their addresses change with what is in them.
pub fn index(kinds: &KindRegistry, groups: &[ApiGroup]) -> HttpAnswer {
    let mut paths = Map::new();
    for group in groups {
        for (version, _) in &group.versions {
            let path = path(&group.name, version);
            let mut hash = DefaultHasher::new();
            (env!("CARGO_PKG_VERSION"), &path).hash(&mut hash);
            let marks = kinds_of(kinds, &group.name, version).filter_map(|kind| kind.custom.map(|custom| &custom.mark));
            marks.for_each(|mark| mark.hash(&mut hash));
            let url = format!("/openapi/v3/{path}?hash={:016X}", hash.finish());
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    HttpAnswer::text(json!({"paths": paths}).to_string())
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn kinds_of(kinds: &KindRegistry, group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    let api_version = api_version(group, version);
    let (group, version) = (group.to_owned(), version.to_owned());
    kinds.all().filter(move |kind| {
        kind.resource.group() == group && kind.version == version || kind.also.contains(&&*api_version)
    })
}

/// `/openapi/v3/apis/apps/v1`.
pub fn document(api: &Api, groups: &[ApiGroup], asked: &str) -> ServeResult {
    let versions =
        groups.iter().flat_map(|group| group.versions.iter().map(move |(version, _)| (&group.name, version)));
    let mut versions = versions.filter(|(group, version)| path(group, version) == asked);
    let (group, version) = versions.next().ok_or_else(unknown_path)?;
    let schemas = KindSchemas::built_in();
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for kind in kinds_of(api.kinds(), group, version) {
        let own = json!({"group": group, "version": version, "kind": kind.kind});
        let place = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("/{asked}{place}/{}", kind.resource.plural());
        let operation = json!({"x-kubernetes-group-version-kind": own, "responses": {}});
        let mut write = operation.clone();
        write["parameters"] = json!([{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]);
        paths.insert(
            format!("{collection}/{{name}}"),
            json!({"get": operation, "put": write, "patch": write, "delete": operation}),
        );
        paths.insert(collection, json!({"get": operation, "post": write}));
        let Some((name, mut schema)) = schema(api, &schemas, kind, &api_version(group, version))? else { continue };
        schema["x-kubernetes-group-version-kind"] = json!([own]);
        schemas.reach(&schema, &mut definitions);
        definitions.insert(name, schema);
    }
    definitions.values_mut().for_each(refer);
    let info = json!({"title": "Kubernetes", "version": KUBERNETES});
    let components = json!({"schemas": definitions});
    Ok(HttpAnswer::document(
        200,
        &json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": components}),
        &AnswerForm::default(),
    ))
}

/// The schema of a kind, and its name.
fn schema(api: &Api, schemas: &KindSchemas, kind: &Kind, api_version: &str) -> ServeResult<Option<(String, Value)>> {
    let Some(custom) = kind.custom else {
        let found = schemas.name(api_version, kind.kind).zip(schemas.kind(api_version, kind.kind));
        return Ok(found.map(|(name, schema)| (name.to_owned(), schema.clone())));
    };
    let definition = api.read_view(|txn| read::exact(txn, &Key::new(DEFINITIONS, "", &custom.definition)))?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let reversed: Vec<&str> = group.rsplit('.').collect();
    let name = format!("{}.{version}.{}", reversed.join("."), kind.kind);
    Ok(schemas.custom(&definition.0, Some(version)).map(|(_, schema)| (name, schema)))
}

/// References lead to where an OpenAPI document has its schemas.
fn refer(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some(name) = reference.strip_prefix("#/$defs/")
            {
                *reference = format!("#/components/schemas/{name}");
            }
            map.values_mut().for_each(refer);
        }
        Value::Array(items) => items.iter_mut().for_each(refer),
        _ => {}
    }
}
