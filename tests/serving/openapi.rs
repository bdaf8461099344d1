//! The OpenAPI documents: complete, consistent, and sent again only after changes.

use super::endpoints::{ask, bearer};
use super::{JSON, Server};
use crate::cluster::Cluster;
use flate2::read::GzDecoder;
use kloop::serve::protobuf::wire::{WireReader, WireType};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Read;

/// The media type of version 2 that kubectl requests.
const ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

fn documents(server: &Server<'_>) -> Vec<(String, Value)> {
    let index = server.get("/openapi/v3");
    let paths = index["paths"].as_object().expect("an index");
    let url = |entry: &Value| entry["serverRelativeURL"].as_str().expect("an address").to_owned();
    paths.iter().map(|(path, entry)| (path.clone(), server.get(&url(entry)))).collect()
}

/// Collects the names of the references in a document.
fn references(document: &Value, found: &mut BTreeSet<String>) {
    match document {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                found.insert(name.rsplit('/').next().unwrap_or_default().to_owned());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[track_caller]
fn assert_references_exist(document: &Value, schemas: &Value) {
    let mut found = BTreeSet::new();
    references(document, &mut found);
    let lost: Vec<&String> = found.iter().filter(|name| schemas.get(name).is_none()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn version_3_documents_describe_every_operation() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let mut ids = BTreeSet::new();
    for (path, document) in documents(&server) {
        assert_references_exist(&document, &document["components"]["schemas"]);
        for (place, item) in document["paths"].as_object().expect("paths") {
            assert!(place.starts_with(&format!("/{path}/")), "{place}");
            for (method, operation) in item.as_object().expect("operations") {
                if method == "parameters" {
                    continue;
                }
                let id = operation["operationId"].as_str().expect("an id");
                assert!(ids.insert(id.to_owned()), "{id} is the id of two operations");
                assert!(operation["responses"]["200"].is_object(), "{method} {place}");
                let is_list_of_resources = place.ends_with('/');
                assert!(is_list_of_resources || operation["x-kubernetes-action"].is_string(), "{method} {place}");
                let own = &operation["x-kubernetes-group-version-kind"]["kind"];
                assert!(is_list_of_resources || own.is_string(), "{method} {place}");
            }
        }
    }
    for id in [
        "listCoreV1NamespacedPod",
        "listAppsV1DeploymentForAllNamespaces",
        "deleteRbacAuthorizationV1CollectionNamespacedRole",
        "replaceAppsV1NamespacedDeploymentScale",
        "createCoreV1NamespacedPodEviction",
        "watchCoreV1NodeList",
        "createAuthorizationV1SelfSubjectAccessReview",
        "getAppsV1APIResources",
        "getCoreAPIVersions",
        "getAPIVersions",
        "getRbacAuthorizationAPIGroup",
        "getCodeVersion",
        "getServiceAccountIssuerOpenIDConfiguration",
        "getServiceAccountIssuerOpenIDKeyset",
        // Generated clients name their functions for streams and proxies so.
        "connectCoreV1GetNamespacedPodExec",
        "connectCoreV1PostNamespacedPodPortforward",
        "connectCoreV1PutNamespacedServiceProxyWithPath",
        "connectCoreV1HeadNodeProxy",
    ] {
        assert!(ids.contains(id), "{id}");
    }
}

#[test]
fn schemas_have_the_keys_by_which_clients_merge() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let document = server.get("/openapi/v3/apis/apps/v1");
    let schemas = &document["components"]["schemas"];
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name", "{containers}");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    let own = &schemas["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"][0];
    assert_eq!(own["kind"], "Deployment");
    let list = &schemas["io.k8s.api.apps.v1.DeploymentList"];
    assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "DeploymentList");
}

#[test]
fn schemas_say_which_parts_have_an_owner_each() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let version_3 = server.get("/openapi/v3/apis/apps/v1")["components"]["schemas"].take();
    let version_2 = server.get("/openapi/v2")["definitions"].take();
    for schemas in [version_3, version_2] {
        let property = |name: &str, field: &str| &schemas[name]["properties"][field];
        let ports = property("io.k8s.api.core.v1.Container", "ports");
        assert_eq!(ports["x-kubernetes-list-type"], "map", "{ports}");
        assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
        assert_eq!(property("io.k8s.api.core.v1.Container", "command")["x-kubernetes-list-type"], "atomic");
        let metadata = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        assert_eq!(property(metadata, "finalizers")["x-kubernetes-list-type"], "set");
        assert_eq!(property(metadata, "ownerReferences")["x-kubernetes-list-map-keys"], json!(["uid"]));
        let selector = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"];
        assert_eq!(selector["x-kubernetes-map-type"], "atomic", "{selector}");
        assert_eq!(property("io.k8s.api.core.v1.PodSpec", "nodeSelector")["x-kubernetes-map-type"], "atomic");
    }
}

#[test]
fn documents_are_sent_again_only_after_changes() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let token = bearer(&server);
    let get = |path: &str, tag: &str| ask(&server, path, &[("Authorization", &token), ("If-None-Match", tag)]);
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/batch/v1"] {
        let first = get(path, "");
        let again = get(path, first.header("etag"));
        assert_eq!((first.code, again.code, again.body.len()), (200, 304, 0), "{path}");
        assert_eq!(get(path, "\"other\"").code, 200, "{path}");
    }
    let moved = get("/openapi/v3/apis/batch/v1?hash=OLD", "");
    assert_eq!(moved.code, 301);
    let current = get(moved.header("location"), "");
    assert_eq!((current.code, current.header("cache-control")), (200, "public, immutable"));
    let before = get("/openapi/v3", "").header("etag").to_owned();
    // A definition changes the index and version 2, and both contain its schema.
    cluster.apply(include_str!("boats.yaml"));
    assert_eq!(get("/openapi/v3", &before).code, 200);
    let newer = server.get("/openapi/v3/apis/example.com/v1");
    assert!(newer["components"]["schemas"]["com.example.v1.Boat"].is_object(), "{newer}");
    assert!(newer["paths"]["/apis/example.com/v1/namespaces/{namespace}/boats/{name}"]["patch"].is_object());
    assert!(server.get("/openapi/v2")["definitions"]["com.example.v1.Boat"].is_object());
}

#[test]
fn version_2_is_one_document_in_json_and_protobuf() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let document = server.get("/openapi/v2");
    assert_eq!(document["swagger"], "2.0");
    assert_eq!(document["securityDefinitions"]["BearerToken"]["in"], "header", "generated clients take a token");
    assert_references_exist(&document, &document["definitions"]);
    let create = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    assert_eq!(create["parameters"][0]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.Pod");

    let token = bearer(&server);
    let packed = ask(&server, "/openapi/v2", &[("Authorization", &token), ("Accept", ASKED)]);
    assert_eq!(packed.header("content-type"), "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    let message = fields(&packed.body);
    assert_eq!(message[0], (1, b"2.0".to_vec()));
    let definitions = &message.iter().find(|(number, _)| *number == 9).expect("definitions").1;
    let names: Vec<String> = fields(definitions)
        .iter()
        .map(|(_, named)| String::from_utf8(fields(named)[0].1.clone()).expect("a name"))
        .collect();
    let known: Vec<&String> = document["definitions"].as_object().expect("definitions").keys().collect();
    assert_eq!(names.iter().collect::<Vec<_>>(), known);
    assert_eq!(ask(&server, "/openapi/v2", &[("Authorization", &token), ("Accept", "text/html")]).code, 406);
    assert_eq!(server.ask("POST", "/openapi/v2", JSON, "").0, 405);
}

#[test]
fn version_2_is_the_same_compressed() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let token = bearer(&server);
    // The first answer is made, the others are those that are kept.
    let get = |encoding: &str| ask(&server, "/openapi/v2", &[("Authorization", &token), ("Accept-Encoding", encoding)]);
    let (packed, plain, again) = (get("gzip"), get("identity"), get("gzip"));
    assert_eq!((packed.header("content-encoding"), plain.header("content-encoding")), ("gzip", ""));
    let mut text = Vec::new();
    GzDecoder::new(&packed.body[..]).read_to_end(&mut text).expect("gzip");
    assert!(text == plain.body && again.body == packed.body);
    assert_eq!(plain.header("content-length"), text.len().to_string());
}

/// Returns the length-delimited fields of a message.
fn fields(message: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut reader = WireReader::new(message, "OpenAPI");
    let mut found = Vec::new();
    while let Some((number, wire)) = reader.next_key().expect("a key") {
        match wire {
            WireType::Length => found.push((number, reader.read_bytes().expect("bytes").to_vec())),
            _ => reader.skip(wire).expect("a value"),
        }
    }
    found
}
