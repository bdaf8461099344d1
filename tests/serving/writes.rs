//! Patches, deletions and subresources, checked as an API server checks them.

use super::{JSON, MAPS, Server, map};
use crate::cluster::Cluster;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A cluster with the ConfigMap `one`, and its server.
fn with_server(check: impl Fn(&Server<'_>, &str)) {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    assert_eq!(server.ask("POST", MAPS, JSON, &map("one", "1")).0, 201);
    check(&server, &format!("{MAPS}/one"));
}

#[test]
fn json_patches_of_finalizers_are_those_of_client_libraries() {
    with_server(|server, one| {
        let add = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]},
        ]);
        let append = json!([{"op": "add", "path": "/metadata/finalizers/-1", "value": "example.com/b"}]);
        let remove = json!([
            {"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/a"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ]);
        for (patch, finalizers) in [
            (&add, json!(["example.com/a"])),
            (&append, json!(["example.com/a", "example.com/b"])),
            (&remove, json!(["example.com/b"])),
        ] {
            let (code, patched) = server.ask("PATCH", one, JSON_PATCH, &patch.to_string());
            assert_eq!((code, &patched["metadata"]["finalizers"]), (200, &finalizers), "{patch}: {patched}");
        }
        let (code, status) = server.ask("PATCH", one, JSON_PATCH, &add.to_string());
        assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "the finalizers are there: {status}");
    });
}

#[test]
fn apply_without_a_name_changes_only_an_object_that_exists() {
    with_server(|server, one| {
        let config = "{apiVersion: v1, kind: ConfigMap, data: {b: '2'}}";
        let (code, applied) = server.ask("PATCH", &format!("{one}?fieldManager=me"), APPLY, config);
        assert_eq!((code, &applied["data"]), (200, &json!({"a": "1", "b": "2"})), "{applied}");
        let (code, status) = server.ask("PATCH", &format!("{MAPS}/two?fieldManager=me"), APPLY, config);
        let message = json!("the name of the object (two based on URL) was undeterminable: name must be provided");
        assert_eq!((code, &status["message"]), (400, &message));
    });
}

/// kubectl diff shows the difference of these answers from the stored objects.
#[test]
fn dry_runs_answer_with_the_stored_revision() {
    with_server(|server, one| {
        assert_eq!(server.ask("POST", MAPS, JSON, &map("two", "2")).0, 201);
        let stored = server.get(one);
        let mut body = stored.clone();
        body["data"]["a"] = json!("2");
        let config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {b: '2'}}".to_owned();
        let patch = json!({"data": {"a": "2"}}).to_string();
        for (method, content_type, body) in
            [("PUT", JSON, body.to_string()), ("PATCH", MERGE, patch), ("PATCH", APPLY, config)]
        {
            let path = format!("{one}?fieldManager=me&dryRun=All");
            let (code, answer) = server.ask(method, &path, content_type, &body);
            assert_eq!(code, 200, "{answer}");
            assert_ne!(answer["data"], stored["data"], "{method} {content_type}");
            assert_eq!(
                answer["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"],
                "{method} {content_type}"
            );
        }
        assert_eq!(server.get(one), stored);
    });
}

#[test]
fn bodies_of_subresources_name_their_pod() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let pod = "/api/v1/namespaces/default/pods/p";
    cluster
        .apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: busybox}]}}");
    for (part, kind) in [("eviction", "Eviction"), ("binding", "Binding")] {
        for body in [json!({}), json!({"metadata": {"name": "other"}, "target": {"name": "n"}})] {
            let (code, status) = server.ask("POST", &format!("{pod}/{part}"), JSON, &body.to_string());
            let message = format!("name in URL does not match name in {kind} object");
            assert_eq!((code, &status["message"]), (400, &json!(message)), "{body}");
        }
        let body = json!({"apiVersion": "policy/v2", "kind": kind, "metadata": {"name": "p"}, "target": {"name": "n"}});
        let (code, status) = server.ask("POST", &format!("{pod}/{part}"), JSON, &body.to_string());
        let message = format!("no kind \"{kind}\" is registered for version \"policy/v2\"");
        assert_eq!((code, &status["message"]), (400, &json!(message)), "{part}");
    }
    let both = format!("{pod}/log?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z");
    let (code, status) = server.ask("GET", &both, JSON, "");
    let message =
        "PodLogOptions \"p\" is invalid: []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified";
    assert_eq!((code, &status["message"]), (422, &json!(message)));
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    with_server(|server, one| {
        let both = "orphanDependents=true&propagationPolicy=Orphan";
        let in_body = json!({"orphanDependents": false, "propagationPolicy": "Background"}).to_string();
        let forced = "force: Forbidden: may not be specified for non-apply patch";
        let twice =
            "propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set";
        let cases = [
            ("PATCH", format!("{one}?force=true"), MERGE, r#"{"data":{}}"#, forced),
            ("DELETE", format!("{one}?{both}"), JSON, "", twice),
            ("DELETE", one.to_owned(), JSON, &*in_body, &*twice.replace("Orphan\"", "Background\"")),
        ];
        for (method, path, content_type, body, expected) in cases {
            let (code, status) = server.ask(method, &path, content_type, body);
            let message = status["message"].as_str().unwrap_or_default();
            assert!(code == 422 && message.contains(expected), "{method} {path}: {status}");
        }
        assert_eq!(server.get(one)["data"], json!({"a": "1"}), "nothing was changed");
    });
}

#[test]
fn scale_of_a_custom_resource_is_of_the_autoscaling_group() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let mut definition: Value = serde_yaml::from_str(include_str!("boats.yaml")).expect("a definition");
    definition["spec"]["versions"][0]["subresources"] = json!({
        "status": {}, "scale": {"specReplicasPath": ".spec.crew", "statusReplicasPath": ".status.crew"},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.ask("POST", definitions, JSON, &definition.to_string()).0, 201);
    let boats = "/apis/example.com/v1/namespaces/default/boats";
    let boat = json!({
        "apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "ann"}, "spec": {"crew": 3}, "status": {"crew": 9},
    });
    let (code, made) = server.ask("POST", boats, JSON, &boat.to_string());
    assert_eq!((code, made.get("status")), (201, None), "only /status writes the status");
    let scale = server.get(&format!("{boats}/ann/scale"));
    let found = (&scale["apiVersion"], &scale["kind"], &scale["spec"]["replicas"], &scale["status"]["replicas"]);
    assert_eq!(found, (&json!("autoscaling/v1"), &json!("Scale"), &json!(3), &json!(0)));
    let (code, scaled) = server.ask("PATCH", &format!("{boats}/ann/scale"), MERGE, r#"{"spec":{"replicas":5}}"#);
    assert_eq!((code, &scaled["apiVersion"]), (200, &json!("autoscaling/v1")), "{scaled}");
    assert_eq!(server.get(&format!("{boats}/ann"))["spec"]["crew"], json!(5));
    let empty = r#"{"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "empty"}}"#;
    assert_eq!(server.ask("POST", boats, JSON, empty).0, 201);
    let scale = format!("{boats}/empty/scale");
    let missing = "Internal error occurred: the spec replicas field \".spec.crew\" does not exist";
    for (method, body, code, message) in
        [("GET", "", 500, missing), ("PATCH", "{}", 400, "the spec replicas field \".spec.crew\" cannot be empty")]
    {
        let (found, status) = server.ask(method, &scale, MERGE, body);
        assert_eq!((found, &status["message"]), (code, &json!(message)), "{method}");
    }
    let (code, scaled) = server.ask("PATCH", &scale, MERGE, r#"{"spec":{"replicas":2}}"#);
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(2)), "{scaled}");
}

#[test]
fn custom_resources_name_their_version_and_kind() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let definition: Value = serde_yaml::from_str(include_str!("boats.yaml")).expect("a definition");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.ask("POST", definitions, JSON, &definition.to_string()).0, 201);
    let boats = "/apis/example.com/v1/namespaces/default/boats";
    let whole = r#"{"apiVersion":"example.com/v1","kind":"Boat","metadata":{"name":"ann"}}"#;
    assert_eq!(server.ask("POST", boats, JSON, whole).0, 201);
    let missing = |body: &str| {
        format!(
            "the object provided is unrecognized (must be of type Boat): Object 'Kind' is missing in '{body}' ({body})"
        )
    };
    let unversioned = "the API version in the data () does not match the expected API version (example.com/v1)";
    for (body, message) in [
        (r#"{"metadata":{"name":"ann"}}"#, missing(r#"{"metadata":{"name":"ann"}}"#)),
        (r#"{"kind":"","metadata":{"name":"ann"}}"#, missing(r#"{"kind":"","metadata":{"name":"ann"}}"#)),
        (r#"{"kind":"Boat","metadata":{"name":"ann"}}"#, unversioned.to_owned()),
    ] {
        for (method, path) in [("POST", boats.to_owned()), ("PUT", format!("{boats}/ann"))] {
            let (code, status) = server.ask(method, &path, JSON, body);
            assert_eq!((code, &status["message"]), (400, &json!(message)), "{method} {body}");
        }
    }
}

#[test]
fn metadata_of_embedded_resources_is_pruned_and_checked() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let mut definition: Value = serde_yaml::from_str(include_str!("boats.yaml")).expect("a definition");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({"spec": {
        "type": "object", "properties": {"pod": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        }},
    }});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.ask("POST", definitions, JSON, &definition.to_string()).0, 201);
    let boats = "/apis/example.com/v1/namespaces/default/boats";
    let create = |metadata: Value, validation: &str| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        let boat = json!({
            "apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"generateName": "b-"}, "spec": {"pod": pod},
        });
        server.ask("POST", &format!("{boats}?fieldValidation={validation}"), JSON, &boat.to_string())
    };
    let (code, made) = create(json!({"name": "p", "extra": 1}), "Warn");
    assert_eq!((code, &made["spec"]["pod"]["metadata"]), (201, &json!({"name": "p"})), "{made}");
    for (metadata, code, problem) in [
        (json!({"extra": 1}), 400, "strict decoding error: unknown field \"spec.pod.metadata.extra\""),
        (
            json!({"labels": {"a": 1}}),
            400,
            "spec.pod.metadata: Invalid value: {\"labels\":{\"a\":1}}: json: cannot unmarshal",
        ),
        (json!({"labels": {"a": "b c"}}), 422, "spec.pod.metadata.labels: Invalid value: \"b c\""),
    ] {
        let (found, status) = create(metadata.clone(), "Strict");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(found == code && message.contains(problem), "{metadata}: {found} {status}");
    }
}

#[test]
fn strict_decoding_names_duplicate_and_unknown_fields() {
    with_server(|server, one| {
        let body = r#"{"metadata": {"name": "NAME"}, "data": {"a": "1", "a": "2"}, "sort": 1}"#;
        let problem = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \"data.a\", \
                       unknown field \"sort\"";
        for (method, path, name) in [("POST", MAPS, "two"), ("PUT", one, "one")] {
            let path = format!("{path}?fieldValidation=Strict");
            let (code, status) = server.ask(method, &path, JSON, &body.replace("NAME", name));
            assert_eq!((code, &status["message"]), (400, &json!(problem)), "{method}");
        }
        assert_eq!(server.get(one)["data"], json!({"a": "1"}), "nothing was changed");
        let path = format!("{MAPS}?fieldValidation=Strict");
        let told = |format: &str, text: &str| {
            let (_, status) = server.ask("POST", &path, format, text);
            let message = status["message"].as_str().unwrap_or_default();
            message.split_once("strict decoding error: ").map_or(message, |(_, told)| told).to_owned()
        };
        let text = r#"{"sort": 1, "metadata": {"name": "two", "age": 1}, "data": {"a": "1", "a": "2"}, "also": 1}"#;
        let in_order = "unknown field \"sort\", unknown field \"metadata.age\", duplicate field \"data.a\", unknown field \"also\"";
        assert_eq!(told(JSON, text), in_order);
        let text = "sort: 1\nmetadata: {name: two}\ndata:\n  a: '1'\n  a: '2'\nalso: 1\n";
        let sorted = "yaml: unmarshal errors:\n  line 5: key \"a\" already set in map, unknown field \"also\", unknown field \"sort\"";
        assert_eq!(told("application/yaml", text), sorted);
        assert_eq!(server.ask("POST", MAPS, JSON, &body.replace("NAME", "two")).0, 201);
    });
}

#[test]
fn equal_owners_are_stored_once() {
    with_server(|server, one| {
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid});
        let mut map = server.get(one);
        map["metadata"]["ownerReferences"] = json!([owner("a"), owner("b"), owner("a")]);
        let (code, written) = server.ask("PUT", one, JSON, &map.to_string());
        assert_eq!((code, &written["metadata"]["ownerReferences"]), (200, &json!([owner("a"), owner("b")])));
    });
}

#[test]
fn timeout_of_a_request_is_a_duration() {
    with_server(|server, _| {
        for (path, code) in [
            ("/version?timeout=invalid", 400),
            ("/version?timeout=5s", 200),
            ("/api/v1/namespaces/default/configmaps?timeout=5", 400),
            ("/api/v1/namespaces/default/configmaps?timeout=1m", 200),
        ] {
            let (found, status) = server.ask("GET", path, JSON, "");
            let message = status["message"].as_str().unwrap_or_default();
            let is_told = message.starts_with("invalid timeout specified in the request URL - time: ");
            assert_eq!((found, is_told), (code, code == 400), "{path}: {status}");
        }
    });
}

#[test]
fn whole_numbers_of_a_custom_resource_have_no_fraction() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let mut definition: Value = serde_yaml::from_str(include_str!("boats.yaml")).expect("a definition");
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "crew": {"type": "integer"}, "size": {"type": "integer", "enum": [1, 2, 1000]},
    }});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({"spec": spec});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.ask("POST", definitions, JSON, &definition.to_string()).0, 201);
    let boats = "/apis/example.com/v1/namespaces/default/boats";
    let body = r#"{"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "ann"},
        "spec": {"crew": 1e3, "size": 1000.0, "other": -0, "half": 0.5}}"#;
    let (code, made) = server.ask("POST", boats, JSON, body);
    let expected = json!({"crew": 1000, "size": 1000, "other": 0, "half": 0.5});
    assert_eq!((code, &made["spec"]), (201, &expected), "{made}");
    let patch = r#"{"spec": {"crew": 1000, "size": 1.0e3}}"#;
    let (code, same) = server.ask("PATCH", &format!("{boats}/ann"), MERGE, patch);
    assert_eq!((code, &same["metadata"]["generation"]), (200, &json!(1)), "{same}");
}

#[test]
fn events_of_the_newer_group_are_checked_strictly() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "action": "Act", "reason": "Why",
        "reportingController": "example.com/x", "reportingInstance": "i", "note": "n", "regarding": {"namespace": "default"},
    });
    let (code, status) = server.ask("POST", events, JSON, r#"{"metadata": {"name": "e"}}"#);
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
    assert_eq!(server.ask("POST", events, JSON, &event.to_string()).0, 201);
    let mut repeated = event.clone();
    repeated["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
    assert_eq!(server.ask("PUT", &format!("{events}/e"), JSON, &repeated.to_string()).0, 200);
    // A patch uses the names of its version.
    let merge = json!({"note": "n", "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:02.000000Z"}});
    let edits = json!([
        {"op": "test", "path": "/note", "value": "n"},
        {"op": "replace", "path": "/series/count", "value": 4},
    ]);
    for (content_type, patch, count) in [(MERGE, merge, 3), (JSON_PATCH, edits, 4)] {
        let (code, patched) = server.ask("PATCH", &format!("{events}/e"), content_type, &patch.to_string());
        assert_eq!((code, &patched["series"]["count"]), (200, &json!(count)), "{patched}");
        assert_eq!((&patched["note"], &patched["apiVersion"]), (&json!("n"), &json!("events.k8s.io/v1")), "{patched}");
    }
    let (code, status) = server.ask("PATCH", &format!("{events}/e"), MERGE, r#"{"note": "other"}"#);
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
    assert_eq!(server.get("/api/v1/namespaces/default/events/e")["message"], "n");
    repeated["note"] = json!("other");
    let (code, status) = server.ask("PUT", &format!("{events}/e"), JSON, &repeated.to_string());
    let message = json!("Event \"e\" is invalid: message: Invalid value: \"other\": field is immutable");
    assert_eq!((code, &status["message"]), (422, &message));
}

/// A write in autoscaling/v1 changes the CPU's target, and keeps the parts of v2 that v1 shows in annotations.
#[test]
fn autoscalers_written_in_the_older_version_keep_their_other_parts() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}}});
    let scaler = json!({
        "metadata": {"name": "web"},
        "spec": {
            "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "metrics": [memory],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 7}},
        },
    });
    let (older, newer) = ["v1", "v2"]
        .map(|version| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers"))
        .into();
    assert_eq!(server.ask("POST", &newer, JSON, &scaler.to_string()).0, 201);
    let own = |list: &str| format!("{list}/web");
    let patch = r#"{"spec": {"targetCPUUtilizationPercentage": 40}}"#;
    let (code, patched) = server.ask("PATCH", &own(&older), MERGE, patch);
    assert_eq!((code, &patched["spec"]["targetCPUUtilizationPercentage"]), (200, &json!(40)), "{patched}");
    let mut replaced = server.get(&own(&older));
    replaced["spec"]["targetCPUUtilizationPercentage"] = json!(50);
    assert_eq!(server.ask("PUT", &own(&older), JSON, &replaced.to_string()).0, 200);
    let stored = server.get(&own(&newer));
    assert_eq!(stored["spec"]["metrics"][0], memory, "{stored}");
    assert_eq!(stored["spec"]["metrics"][1]["resource"]["target"]["averageUtilization"], 50, "{stored}");
    assert_eq!(stored["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"], 7, "{stored}");
    assert_eq!(stored["metadata"].get("annotations"), None, "{stored}");
}

/// The answer to a write in another version contains the stored object, with the defaults of the storage version.
#[test]
fn write_in_another_version_is_answered_as_it_is_stored() {
    let cluster = Cluster::new();
    let schema = |fields: Value| json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}});
    let version = |name: &str, is_storage: bool, fields: Value| {
        let selectable = json!([{"jsonPath": ".spec.c"}]);
        let mut version = json!({"name": name, "served": true, "storage": is_storage, "schema": schema(fields)});
        if is_storage {
            version["selectableFields"] = selectable;
        }
        version
    };
    let text = json!({"type": "string"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "rafts.sea.dev"},
        "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": "rafts", "kind": "Raft"}, "versions": [
            version("v1", true, json!({"b": {"type": "string", "default": "q"}, "c": text})),
            version("v1beta1", false, json!({"a": text, "c": text})),
        ]},
    });
    cluster.apply(&definition.to_string());
    let _plane = cluster.watch();
    cluster.ok("wait --for=condition=Established crd/rafts.sea.dev --timeout=30s");
    let server = Server::start(&cluster, &[]);
    let rafts = |version: &str| format!("/apis/sea.dev/{version}/namespaces/default/rafts");
    let body = json!({"apiVersion": "sea.dev/v1beta1", "kind": "Raft", "metadata": {"name": "r"}, "spec": {"a": "1", "c": "1"}});
    let (code, made) = server.ask("POST", &rafts("v1beta1"), JSON, &body.to_string());
    assert_eq!((code, &made["spec"]), (201, &json!({"c": "1"})), "{made}");
    let one = |version: &str| server.get(&format!("{}/r", rafts(version)));
    assert_eq!(one("v1")["spec"], json!({"b": "q", "c": "1"}));
    let (code, patched) = server.ask("PATCH", &format!("{}/r", rafts("v1beta1")), MERGE, r#"{"spec": {"c": "2"}}"#);
    assert_eq!((code, &patched), (200, &one("v1beta1")));
    assert_eq!(one("v1")["spec"], json!({"b": "q", "c": "2"}));
    // Each version has its own fields for selectors.
    let count = |version: &str| server.ask("GET", &format!("{}?fieldSelector=spec.c=2", rafts(version)), JSON, "");
    assert_eq!(count("v1").1["items"].as_array().map(Vec::len), Some(1));
    let (code, status) = count("v1beta1");
    assert_eq!((code, &status["message"]), (400, &json!("field label not supported: spec.c")));
}
