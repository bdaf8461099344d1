//! OpenAPI documents, which clients use to validate, explain and merge: one for each version of a group, an index of them, and one of
//! everything in version 2.
//!
//! Their addresses and their `ETag` contain a hash of the content. A document is made part by part, so that one kind at a time is a tree of
//! values; that of everything is kept, compressed, until something else is in it.

mod connections;
mod gnostic;
mod gnostic_v3;
mod operations;
mod parts;
mod schemas;
mod server_documents;
mod v2;

use super::catalogue::{ApiGroup, ServedResource};
use crate::apiserver::aggregation::open_api::OpenApiPart;
use crate::apiserver::packed_documents::PackedDocument;
use crate::apiserver::{Api, read};
use crate::kinds::catalogue::schemas::KindSchemas;
use crate::kinds::custom::DEFINITIONS;
use crate::kinds::{Kind, KindRegistry};
use crate::object::{Key, Reason, Status, Time};
use crate::object::{api_version, split_api_version};
use crate::runtime::allocator;
use crate::serve::request::ApiRequest;
use crate::serve::subresource::{Subresource, subresources};
use crate::serve::{HttpAnswer, ServeResult, unknown_path};
use connections::is_connection;
use jiff::SignedDuration;
use operations::DescribedResource;
use parts::{DocumentParts, OpenApiVersion};
use schemas::SchemaSet;
use serde_json::{Map, Value, json};
use server_documents::ServerDocument;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The media types of a version in protobuf: as it is answered, and as clients request it.
type ProtobufMedia = [&'static str; 2];

const V2_PROTOBUF: ProtobufMedia = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];
const V3_PROTOBUF: ProtobufMedia = [
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
];

/// Time for which a client may cache a document at an address with its hash.
const CACHE_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Returns `/openapi/v3`: the addresses of the documents.
pub fn index(kinds: &KindRegistry, groups: &[ApiGroup], request: &ApiRequest) -> HttpAnswer {
    let mut paths = Map::new();
    let mut all = DefaultHasher::new();
    for (group, version) in versions(groups) {
        let (path, hash) = (path(group, version), hash(kinds, group, version));
        hash.hash(&mut all);
        let url = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    for document in server_documents(kinds, groups) {
        let (path, hash) = (document.path, hash(kinds, "", ""));
        let url = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    for (path, hash) in extended_versions(groups) {
        hash.hash(&mut all);
        let url = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    let index = json!({"paths": paths}).to_string() + "\n";
    let index = || HttpAnswer { content_type: "application/json".into(), ..HttpAnswer::text(index) };
    let hash = format!("{:016X}", all.finish());
    let answer = if is_known(request, &hash) { HttpAnswer::unchanged() } else { index() };
    with_hash(answer, &hash)
}

/// Returns `/openapi/v3/apis/apps/v1`.
pub fn document(api: &Api, groups: &[ApiGroup], asked: &str, request: &ApiRequest) -> ServeResult {
    let found = versions(groups).find(|(group, version)| path(group, version) == asked);
    let own = server_documents(api.kinds(), groups).into_iter().find(|document| document.path == asked);
    if found.is_none() && own.is_none() {
        return Err(unknown_path());
    }
    let is_protobuf = wants_protobuf(&request.accept, V3_PROTOBUF)?;
    let (group, version) = found.unwrap_or_default();
    let current = hash(api.kinds(), group, version);
    let wanted = request.parameter("hash");
    if wanted.is_some_and(|wanted| wanted != current) {
        // The address of an outdated document redirects to the current one.
        let location = format!("/openapi/v3/{asked}?hash={current}");
        let moved = HttpAnswer { code: 301, ..HttpAnswer::text("") };
        return Ok(moved.with_header("Location", location));
    }
    let answer = match is_known(request, &current) {
        true => HttpAnswer::unchanged(),
        false => {
            let mut parts = DocumentParts::new(OpenApiVersion::V3, is_protobuf);
            match own {
                Some(own) => add_server_documents(&[own], &mut parts)?,
                None => describe(api, &KindSchemas::built_in(), groups, (group, version), &mut parts)?,
            }
            packed(V3_PROTOBUF, is_protobuf, Arc::new(parts.finish()?))
        }
    };
    let answer = with_hash(answer, &current);
    allocator::release_unused();
    if wanted.is_none() {
        return Ok(answer);
    }
    let until = Time::now() + CACHE_LIFETIME;
    let until = until.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    Ok(answer.with_header("Cache-Control", "public, immutable".into()).with_header("Expires", until))
}

/// Returns `/openapi/v2`: all versions of all groups.
pub fn older(api: &Api, groups: &[ApiGroup], request: &ApiRequest) -> ServeResult {
    let is_protobuf = wants_protobuf(&request.accept, V2_PROTOBUF)?;
    let mut all = DefaultHasher::new();
    versions(groups).for_each(|(group, version)| hash(api.kinds(), group, version).hash(&mut all));
    extended_parts(groups).for_each(|part| part.hash.hash(&mut all));
    is_protobuf.hash(&mut all);
    let current = format!("{:016X}", all.finish());
    let answer = match is_known(request, &current) {
        true => HttpAnswer::unchanged(),
        false => packed(V2_PROTOBUF, is_protobuf, find_or_make(api, groups, is_protobuf, &current)?),
    };
    Ok(with_hash(answer, &current))
}

/// Returns the document of everything with this hash, which is made where it is not kept.
fn find_or_make(api: &Api, groups: &[ApiGroup], is_protobuf: bool, hash: &str) -> ServeResult<Arc<PackedDocument>> {
    if let Some(kept) = api.packed_documents().find(hash) {
        return Ok(kept);
    }
    let mut parts =
        DocumentParts::new(OpenApiVersion::V2, is_protobuf).with_extensions(extended_parts(groups).collect());
    let schemas = KindSchemas::built_in();
    // The document takes the first description of a type, so the last version is added first.
    add_server_documents(&server_documents(api.kinds(), groups), &mut parts)?;
    let all: Vec<(&str, &str)> = versions(groups).collect();
    all.into_iter().rev().try_for_each(|version| describe(api, &schemas, groups, version, &mut parts))?;
    let document = Arc::new(parts.finish()?);
    api.packed_documents().keep(hash, &document);
    // Few requests need as much memory, and each thread would keep it.
    drop(schemas);
    allocator::release_unused();
    Ok(document)
}

/// Adds the documents about the server.
fn add_server_documents(all: &[ServerDocument], parts: &mut DocumentParts) -> ServeResult<()> {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    all.iter().for_each(|document| document.describe(&mut paths, &mut schemas));
    parts.add_paths(paths)?;
    schemas.iter().try_for_each(|(name, schema)| parts.add_schema(name, schema))
}

/// Whether the client prefers protobuf; an error when it accepts neither that nor JSON.
fn wants_protobuf(accept: &str, protobuf: ProtobufMedia) -> ServeResult<bool> {
    let media = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    let mut known = media.filter_map(|media| match media {
        "application/json" | "application/*" | "*/*" | "" => Some(false),
        media => protobuf.contains(&media).then_some(true),
    });
    let text = format!("406: Not Acceptable\n\nAvailable representations: application/json, {}", protobuf[1]);
    known.next().ok_or_else(|| Status::new(Reason::NotAcceptable, text))
}

fn packed([media, _]: ProtobufMedia, is_protobuf: bool, document: Arc<PackedDocument>) -> HttpAnswer {
    HttpAnswer::packed(if is_protobuf { media } else { "application/json" }, document)
}

/// Returns the versions of this server.
fn versions(groups: &[ApiGroup]) -> impl Iterator<Item = (&str, &str)> {
    groups.iter().flat_map(|group| {
        let own = group.versions.iter().filter(|(version, _)| !group.extended.contains_key(version));
        own.map(move |(version, _)| (&*group.name, &**version))
    })
}

/// Returns the documents about the server. Groups of custom kinds, and of extension servers, have none.
fn server_documents(kinds: &KindRegistry, groups: &[ApiGroup]) -> Vec<ServerDocument> {
    let is_built_in = |group: &ApiGroup| {
        group.extended.is_empty() && !kinds.custom_kinds().iter().any(|kind| kind.resource.group() == group.name)
    };
    ServerDocument::all(groups, is_built_in)
}

/// Returns the path and the hash of each document that an extension server has.
fn extended_versions(groups: &[ApiGroup]) -> impl Iterator<Item = (String, &str)> {
    groups.iter().flat_map(|group| {
        let documented = group.extended.iter().filter_map(|(version, known)| Some((version, known.open_api.as_ref()?)));
        documented.map(move |(version, hash)| (path(&group.name, version), hash.as_str()))
    })
}

/// Returns the parts of version 2 that extension servers have.
fn extended_parts(groups: &[ApiGroup]) -> impl Iterator<Item = &OpenApiPart> {
    groups.iter().flat_map(|group| group.extended.values().filter_map(|known| known.open_api_2.as_deref()))
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Returns the hash of a document, from this program and the definitions of custom kinds.
fn hash(kinds: &KindRegistry, group: &str, version: &str) -> String {
    let mut hash = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), group, version).hash(&mut hash);
    let marks = kinds_of(kinds, group, version).filter_map(|kind| kind.custom.map(|custom| &custom.mark));
    marks.for_each(|mark| mark.hash(&mut hash));
    format!("{:016X}", hash.finish())
}

/// Whether the client has cached the document with this hash.
fn is_known(request: &ApiRequest, hash: &str) -> bool {
    let known = request.if_none_match.split(',').map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"'));
    known.into_iter().any(|tag| tag == hash || tag == "*")
}

/// Adds the headers by which clients know the document later.
fn with_hash(answer: HttpAnswer, hash: &str) -> HttpAnswer {
    answer.with_header("ETag", format!("\"{hash}\"")).with_header("Vary", "Accept".into())
}

fn kinds_of(kinds: &KindRegistry, group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    let api_version = api_version(group, version);
    let (group, version) = (group.to_owned(), version.to_owned());
    kinds.all().filter(move |kind| {
        kind.resource.group() == group && kind.version == version || kind.also.contains(&&*api_version)
    })
}

/// Adds the paths and schemas of one version of a group.
fn describe(
    api: &Api,
    schemas: &KindSchemas,
    groups: &[ApiGroup],
    (group, version): (&str, &str),
    parts: &mut DocumentParts,
) -> ServeResult<()> {
    let mut set = SchemaSet::new(schemas);
    let own_version = api_version(group, version);
    let mut paths = Map::new();
    DescribedResource::add_version(group, version, &mut paths);
    parts.add_paths(paths)?;
    for kind in kinds_of(api.kinds(), group, version) {
        let kind = kind.in_version(&own_version);
        if let Some((name, schema)) = schema(api, schemas, kind, &own_version)? {
            describe_kind(schemas, &mut set, kind, (&name, schema), (group, version), parts)?;
        }
    }
    for alone in created_only(groups, group, version) {
        let Some(name) = schemas.name(&own_version, &alone.kind) else { continue };
        set.add_named(name, Some(json!({"group": group, "version": version, "kind": alone.kind})));
        let resource = DescribedResource {
            group,
            version,
            kind: &alone.kind,
            plural: &alone.name,
            namespaced: alone.namespaced,
            is_custom: false,
            subresources: Vec::new(),
            schema: name,
            bodies: &|api_version, kind| schemas.name(api_version, kind).map(str::to_owned),
        };
        let mut paths = Map::new();
        resource.add_creation(&mut paths);
        parts.add_paths(paths)?;
    }
    set.finish().try_for_each(|(name, schema)| parts.add_schema(&name, &schema))
}

/// Adds the paths of a kind, and its schema with those that it refers to.
fn describe_kind(
    schemas: &KindSchemas,
    set: &mut SchemaSet,
    kind: &Kind,
    (name, schema): (&str, Value),
    (group, version): (&str, &str),
    parts: &mut DocumentParts,
) -> ServeResult<()> {
    let own = json!({"group": group, "version": version, "kind": kind.kind});
    set.add(name, schema, Some(own.clone()));
    set.add_list(name, &own);
    set.add_merge_rules(name, &api_version(group, version), kind.kind);
    if kind.custom.is_none() {
        set.add_shape(name, kind.shape);
    }
    let all = subresources(kind).filter(|known| !known.verbs.is_empty());
    let (connections, subresources) = all.partition::<Vec<&Subresource>, _>(|below| is_connection(below));
    for below in &subresources {
        add_subresource_body(set, schemas, below, (group, version));
    }
    let resource = DescribedResource {
        group,
        version,
        kind: kind.kind,
        plural: kind.resource.plural(),
        namespaced: kind.namespaced,
        is_custom: kind.custom.is_some(),
        subresources,
        schema: name,
        bodies: &|api_version, kind| schemas.name(api_version, kind).map(str::to_owned),
    };
    let mut paths = Map::new();
    resource.add_paths(&mut paths);
    connections.iter().for_each(|below| resource.add_connection(below, &mut paths));
    parts.add_paths(paths)?;
    if kind.custom.is_some() {
        set.take_kind(name).try_for_each(|(name, schema)| parts.add_schema(&name, &schema))?;
    }
    Ok(())
}

/// Adds the body of a subresource that has a kind of its own.
fn add_subresource_body(set: &mut SchemaSet, schemas: &KindSchemas, below: &Subresource, parent: (&str, &str)) {
    let (group, version) = below.version.unwrap_or(parent);
    let Some(kind) = below.kind else { return };
    if let Some(name) = schemas.name(&api_version(group, version), kind) {
        set.add_named(name, Some(json!({"group": group, "version": version, "kind": kind})));
    }
}

/// Returns the resources of a version that can only be created and are not stored.
fn created_only<'a>(groups: &'a [ApiGroup], group: &str, version: &str) -> impl Iterator<Item = &'a ServedResource> {
    let group = groups.iter().find(|known| known.name == group);
    let served = group.and_then(|group| group.versions.iter().find(|(known, _)| known == version));
    let served = served.into_iter().flat_map(|(_, served)| served);
    served.filter(|one| one.verbs == ["create"] && !one.name.contains('/'))
}

/// Returns the schema of a kind and its name.
fn schema(api: &Api, schemas: &KindSchemas, kind: &Kind, api_version: &str) -> ServeResult<Option<(String, Value)>> {
    let Some(custom) = kind.custom else {
        let found = schemas.name(api_version, kind.kind).zip(schemas.kind(api_version, kind.kind));
        return Ok(found.map(|(name, schema)| (name.to_owned(), schema.clone())));
    };
    let definition = api.read_view(|txn| read::exact(txn, &Key::new(DEFINITIONS, "", &custom.definition)))?;
    let (group, version) = split_api_version(api_version);
    let reversed: Vec<&str> = group.rsplit('.').collect();
    let name = format!("{}.{version}.{}", reversed.join("."), kind.kind);
    Ok(schemas.custom(&definition.0, Some(version)).map(|(_, schema)| (name, schema)))
}
