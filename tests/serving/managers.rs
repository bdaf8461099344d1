//! The owners of fields, as writes over HTTP record them, and the errors of patches.

use super::{JSON, MAPS, Server, map};
use crate::cluster::Cluster;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn on_server(check: impl Fn(&Server<'_>)) {
    let cluster = Cluster::new();
    check(&Server::start(&cluster, &[]));
}

/// The fields of a manager, by its name.
fn owned<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().expect("managers");
    &entries.iter().find(|entry| entry["manager"] == manager).unwrap_or(&Value::Null)["fieldsV1"]
}

#[test]
fn fields_that_admission_adds_have_no_owner() {
    on_server(|server| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
        let path = "/api/v1/namespaces/default/pods?fieldManager=me";
        let (code, pod) = server.ask("POST", path, JSON, &pod.to_string());
        assert_eq!(code, 201, "{pod}");
        assert!(pod["spec"]["volumes"].is_array() && pod["spec"]["tolerations"].is_array(), "{pod}");
        let spec = &owned(&pod, "me")["f:spec"];
        assert!(spec["f:containers"].is_object() && spec["f:restartPolicy"].is_object(), "{spec}");
        for field in ["f:volumes", "f:tolerations", "f:serviceAccount", "f:priority", "f:preemptionPolicy"] {
            assert_eq!(spec[field], Value::Null, "{field}");
        }
    });
}

#[test]
fn writer_without_a_name_is_unknown() {
    on_server(|server| {
        assert_eq!(server.ask("POST", &format!("{MAPS}?fieldManager=me"), JSON, &map("m", "1")).0, 201);
        let change = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"b": "1"}});
        let nameless = [("User-Agent", "")];
        let (code, changed) = server.ask_with("PUT", &format!("{MAPS}/m"), JSON, &change.to_string(), &nameless);
        assert_eq!(code, 200, "{changed}");
        assert_eq!(owned(&changed, "me")["f:data"]["f:a"], Value::Null, "the field is gone");
        assert_eq!(owned(&changed, "unknown")["f:data"]["f:b"], json!({}), "{changed}");
    });
}

#[test]
fn scale_is_applied() {
    on_server(|server| {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
        let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        let path = format!("{deployments}?fieldManager=me");
        assert_eq!(server.ask("POST", &path, JSON, &web.to_string()).0, 201);
        let apply = |manager: &str, replicas: i64| {
            let scale = format!("{{apiVersion: autoscaling/v1, kind: Scale, spec: {{replicas: {replicas}}}}}");
            let path = format!(
                "{deployments}/web/scale?fieldManager={manager}{}",
                if replicas == 9 { "&force=true" } else { "" }
            );
            server.ask("PATCH", &path, APPLY, &scale)
        };
        let (code, status) = apply("two", 3);
        let message = json!("Apply failed with 1 conflict: conflict with \"me\" using apps/v1: .spec.replicas");
        assert_eq!((code, &status["message"]), (409, &message));
        let (code, scaled) = apply("one", 9);
        assert_eq!((code, &scaled["kind"], &scaled["spec"]["replicas"]), (200, &json!("Scale"), &json!(9)), "{scaled}");
        let web = server.get(&format!("{deployments}/web"));
        let entries = web["metadata"]["managedFields"].as_array().expect("managers");
        let own = entries.iter().find(|entry| entry["manager"] == "one").expect("an entry");
        let found = (&own["subresource"], &own["operation"], &own["fieldsV1"]);
        assert_eq!(found, (&json!("scale"), &json!("Apply"), &json!({"f:spec": {"f:replicas": {}}})));
        assert!(own.get("time").is_none(), "as in Kubernetes: {own}");
        assert_eq!(owned(&web, "me")["f:spec"]["f:replicas"], Value::Null);
        assert_eq!(
            server
                .ask(
                    "PATCH",
                    &format!("{deployments}/none/scale?fieldManager=a"),
                    APPLY,
                    "{apiVersion: autoscaling/v1, kind: Scale, spec: {replicas: 1}}"
                )
                .0,
            404
        );
    });
}

#[test]
fn fields_of_a_custom_kind_are_those_of_the_requested_version() {
    on_server(|server| {
        let version = |name: &str, field: &str, list: &str| {
            let items = json!({"type": "array", "x-kubernetes-list-type": list,
                "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "v": {"type": "string"}}}});
            let mut items = items;
            if list == "map" {
                items["x-kubernetes-list-map-keys"] = json!(["n"]);
            }
            let template = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}});
            let spec = json!({"type": "object", "properties": {field: {"type": "string"}, "items": items, "template": template}});
            json!({"name": name, "served": true, "storage": name == "v1beta1",
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
        };
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "bars.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
                "names": {"plural": "bars", "kind": "Bar"},
                "versions": [version("v1beta1", "a", "map"), version("v1", "b", "atomic")]}});
        assert_eq!(server.ask("POST", DEFINITIONS, JSON, &definition.to_string()).0, 201);
        let bars = |version: &str| format!("/apis/example.org/{version}/namespaces/default/bars");
        let apply = |version: &str, field: &str, manager: &str| {
            let config = json!({"apiVersion": format!("example.org/{version}"), "kind": "Bar", "metadata": {"name": "x"},
                "spec": {field: "1", "items": [{"n": manager, "v": "1"}]}});
            server.ask("PATCH", &format!("{}/x?fieldManager={manager}", bars(version)), APPLY, &config.to_string())
        };
        let (code, applied) = apply("v1beta1", "a", "one");
        assert_eq!((code, &applied["spec"]["a"]), (201, &json!("1")), "{applied}");
        assert_eq!(applied["metadata"]["managedFields"][0]["apiVersion"], "example.org/v1beta1");
        let items = json!({"k:{\"n\":\"one\"}": {".": {}, "f:n": {}, "f:v": {}}});
        assert_eq!(owned(&applied, "one")["f:spec"]["f:items"], items);
        let (code, applied) = apply("v1beta1", "a", "two");
        assert_eq!((code, applied["spec"]["items"].as_array().map(Vec::len)), (200, Some(2)), "{applied}");
        let (code, status) = apply("v1beta1", "b", "three");
        let message = "failed to create typed patch object (/x; example.org/v1beta1, Kind=Bar): .spec.b: field not declared in schema";
        assert_eq!((code, &status["message"]), (500, &json!(message)));
        let template = json!({"apiVersion": "v1", "apiversion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}, "age": 1}});
        let config = json!({"apiVersion": "example.org/v1beta1", "kind": "Bar", "metadata": {"name": "x", "age": 1}, "spec": {"template": template}});
        let path = format!("{}/x?fieldManager=four", bars("v1beta1"));
        let (code, status) = server.ask("PATCH", &path, APPLY, &config.to_string());
        let undeclared = [".metadata.age", ".spec.template.apiversion", ".spec.template.metadata.age"];
        let message = format!(
            "failed to create typed patch object (/x; example.org/v1beta1, Kind=Bar): errors:{}",
            undeclared.map(|path| format!("\n  {path}: field not declared in schema")).concat()
        );
        assert_eq!((code, &status["message"]), (500, &json!(message)));
        let wrong =
            json!({"apiVersion": "example.org/v1beta1", "kind": "Bar", "metadata": {"name": "y"}, "spec": {"b": "1"}});
        let path = format!("{}?fieldValidation=Strict", bars("v1beta1"));
        let (code, status) = server.ask("POST", &path, JSON, &wrong.to_string());
        let message =
            "Bar in version \"v1beta1\" cannot be handled as a Bar: strict decoding error: unknown field \"spec.b\"";
        assert_eq!((code, &status["message"]), (400, &json!(message)));
    });
}

#[test]
fn configuration_names_its_version_and_kind() {
    on_server(|server| {
        for (config, message) in [
            ("{kind: ConfigMap, metadata: {name: a}}", "invalid object type: /, Kind=ConfigMap"),
            ("{apiVersion: v2, kind: ConfigMap, metadata: {name: a}}", "invalid object type: /v2, Kind=ConfigMap"),
            ("{apiVersion: v1, metadata: {name: a}}", "invalid object type: /v1, Kind="),
            ("{apiVersion: apps/v1, kind: Deployment}", "invalid object type: apps/v1, Kind=Deployment"),
            ("", "invalid object type: /, Kind="),
            (
                "abc",
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go value of \
                 type map[string]interface {}",
            ),
        ] {
            let (code, status) = server.ask("PATCH", &format!("{MAPS}/a?fieldManager=me"), APPLY, config);
            assert_eq!((code, &status["message"]), (400, &json!(message)), "{config}");
        }
    });
}

#[test]
fn patch_with_a_result_that_does_not_fit_is_invalid() {
    on_server(|server| {
        assert_eq!(server.ask("POST", MAPS, JSON, &map("m", "1")).0, 201);
        let number = json!([{"op": "add", "path": "/data/a", "value": 1}]).to_string();
        let cases = [
            (
                MERGE,
                r#"{"data":{"a":1}}"#,
                "",
                "cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            (JSON_PATCH, &number, "", "cannot unmarshal number into Go struct field ConfigMap.data of type string"),
            (MERGE, r#"{"other":1}"#, "?fieldValidation=Strict", "strict decoding error: unknown field \"other\""),
            (
                JSON_PATCH,
                r#"[{"op":"replace","path":"","value":[]}]"#,
                "",
                "Kind string \"json:\\\"kind,omitempty\\\"\" }",
            ),
            (MERGE, r#"{"kind":"Secret"}"#, "", "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        ];
        for (content_type, patch, options, why) in cases {
            let (code, status) = server.ask("PATCH", &format!("{MAPS}/m{options}"), content_type, patch);
            let message = status["message"].as_str().unwrap_or_default();
            assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
            assert!(
                message.starts_with(" \"\" is invalid: patch: Invalid value: \"") && message.ends_with(why),
                "{message}"
            );
        }
    });
}
