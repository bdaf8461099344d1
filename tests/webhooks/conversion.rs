//! Conversion of custom resources by a webhook.

use super::server::{HookServer, patch};
use super::{MUTATING, VALIDATING, client_config, configuration};
use crate::cluster::Cluster;
use serde_json::{Value, json};

/// Renames `spec.size` of v1 to `spec.length` of v2, and back.
fn convert(review: &Value) -> Value {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().expect("a version");
    let (from, to) = if wanted == "sea.dev/v2" { ("size", "length") } else { ("length", "size") };
    let convert = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = wanted.into();
        if let Some(spec) = object["spec"].as_object_mut()
            && let Some(value) = spec.remove(from)
        {
            spec.insert(to.to_owned(), value);
        }
        object
    };
    let spec = &request["objects"][0]["spec"];
    let fails = spec["size"] == 13 || spec["length"] == 14;
    let result = if fails { json!({"status": "Failure", "message": "bad luck"}) } else { json!({"status": "Success"}) };
    let converted: Vec<Value> = request["objects"].as_array().expect("objects").iter().map(convert).collect();
    let response = json!({"uid": request["uid"], "result": result, "convertedObjects": converted});
    json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response})
}

fn definition(server: &HookServer) -> Value {
    let version = |name: &str, field: &str| {
        let mut fields = json!({"flag": {"type": "string", "default": format!("of {name}")}});
        fields[field] = json!({"type": "integer", "maximum": 100});
        if name == "v2" {
            // No object that is stored in the other version has it: an object that is read gets only the defaults of the stored version.
            fields["sail"] = json!({"type": "string", "default": "red"});
        }
        let spec = json!({"type": "object", "properties": fields});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
    };
    let client = json!({"url": format!("{}/convert", server.url), "caBundle": server.bundle});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.sea.dev"},
        "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [version("v1", "size"), version("v2", "length")],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}},
    })
}

fn boat(version: &str, name: &str, field: &str, value: i64) -> String {
    let mut boat =
        json!({"apiVersion": format!("sea.dev/{version}"), "kind": "Boat", "metadata": {"name": name}, "spec": {}});
    boat["spec"][field] = value.into();
    boat.to_string()
}

#[test]
fn objects_are_stored_in_one_version_and_shown_in_all() {
    let server = HookServer::start(|_, review| convert(review));
    let cluster = Cluster::new();
    cluster.apply(&definition(&server).to_string());
    cluster.apply(&boat("v2", "new", "length", 7));
    cluster.apply(&boat("v1", "old", "size", 5));
    let read = |version: &str, name: &str| -> Value {
        let path = format!("/apis/sea.dev/{version}/namespaces/default/boats/{name}");
        serde_json::from_str(&cluster.ok(&format!("get --raw {path}"))).expect("JSON")
    };
    for (version, name, spec) in [
        ("v1", "new", json!({"size": 7, "flag": "of v2"})),
        ("v2", "new", json!({"length": 7, "flag": "of v2"})),
        ("v1", "old", json!({"size": 5, "flag": "of v1"})),
        ("v2", "old", json!({"length": 5, "flag": "of v1"})),
    ] {
        let object = read(version, name);
        assert_eq!((&object["apiVersion"], &object["spec"]), (&json!(format!("sea.dev/{version}")), &spec));
    }
    let list: Value =
        serde_json::from_str(&cluster.ok("get --raw /apis/sea.dev/v2/namespaces/default/boats")).expect("JSON");
    let lengths: Vec<&Value> =
        list["items"].as_array().expect("items").iter().map(|one| &one["spec"]["length"]).collect();
    assert_eq!(lengths, [7, 5]);
    // An apply in the other version changes the stored object, and is validated by the schema of its version.
    assert_eq!(cluster.apply(&boat("v2", "old", "length", 6)), "boat.sea.dev/old configured\n");
    assert_eq!(read("v1", "old")["spec"]["size"], 6);
    let refused = cluster.run(&["apply", "-f", "-"], &boat("v2", "old", "length", 101));
    assert!(refused.err.contains("spec.length in body should be less than or equal to 100"), "{}", refused.err);
    let failed = cluster.run(&["apply", "-f", "-"], &boat("v1", "bad", "size", 13));
    assert_eq!(failed.code, 0, "it is in the stored version: {}", failed.err);
    let failed = cluster.kloop("get --raw /apis/sea.dev/v2/namespaces/default/boats/bad");
    assert!(failed.err.contains("conversion webhook for sea.dev/v1, Kind=Boat failed: bad luck"), "{}", failed.err);
    // An object that cannot be shown in a version is not deleted through it.
    for path in ["boats/bad", "boats"] {
        let failed = cluster.kloop(&format!("delete --raw /apis/sea.dev/v2/namespaces/default/{path}"));
        assert!(failed.err.contains("bad luck"), "{path}: {} {}", failed.out, failed.err);
        assert_eq!(cluster.ok("get boats.v1.sea.dev -o name").lines().count(), 3, "{path}");
    }
    cluster.ok("delete --raw /apis/sea.dev/v1/namespaces/default/boats/bad");
    // An object is converted before its name is looked up.
    let path = "/apis/sea.dev/v2/namespaces/default/boats";
    for (length, told) in [(14, "bad luck"), (7, "already exists")] {
        let failed = cluster.run(&["create", "--raw", path, "-f", "-"], &boat("v2", "new", "length", length));
        assert!(failed.err.contains(told), "{}", failed.err);
    }
}

/// A definition with these versions, each a name, whether it is stored, and the fields of its spec.
fn definition_without_webhook(versions: &[(&str, bool, Value)]) -> String {
    let version = |(name, storage, fields): &(&str, bool, Value)| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        let columns = json!([{"name": format!("Of {name}"), "type": "integer", "jsonPath": ".spec.size"}]);
        json!({"name": name, "served": true, "storage": storage, "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": schema}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.sea.dev"},
        "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": versions.iter().map(version).collect::<Vec<_>>()},
    })
    .to_string()
}

#[test]
fn older_objects_follow_the_schema_and_migrate_when_they_are_written() {
    let cluster = Cluster::new();
    let size = json!({"size": {"type": "integer"}, "gone": {"type": "string"}});
    let plain = ("v1", true, size.clone());
    cluster.apply(&definition_without_webhook(std::slice::from_ref(&plain)));
    cluster.apply(&boat("v1", "old", "size", 5));
    cluster.ok("patch boat old --type=merge -p {\"spec\":{\"gone\":\"x\"}}");
    // The schema gets a default and loses a field.
    let newer = json!({"size": {"type": "integer"}, "sail": {"type": "string", "default": "red"}});
    cluster.apply(&definition_without_webhook(&[("v1", true, newer.clone())]));
    let spec = json!({"size": 5, "sail": "red"});
    let raw = |version: &str, name: &str| -> Value {
        let path = format!("/apis/sea.dev/{version}/namespaces/default/boats{name}");
        serde_json::from_str(&cluster.ok(&format!("get --raw {path}"))).expect("JSON")
    };
    assert_eq!((&raw("v1", "/old")["spec"], &raw("v1", "")["items"][0]["spec"]), (&spec, &spec));
    assert_eq!(cluster.read("boat/old", "{.spec.sail}"), "red");
    // Another version is stored now; the first one stays until nothing is stored in it.
    let both = [("v1", false, newer.clone()), ("v2", true, json!({"size": {"type": "integer"}}))];
    cluster.apply(&definition_without_webhook(&both));
    assert_eq!(cluster.read("crd/boats.sea.dev", "{.status.storedVersions}"), "[\"v1\",\"v2\"]");
    assert_eq!((&raw("v1", "/old")["spec"], &raw("v2", "/old")["spec"]), (&spec, &json!({"size": 5})));
    let table = cluster.ok("get boats");
    assert!(table.starts_with("NAME   OF V2"), "{table}");
    let only = definition_without_webhook(&both[1..]);
    let refused = cluster.run(&["apply", "-f", "-"], &only);
    assert!(
        refused.err.contains("v1 was previously a storage version, and must remain in spec.versions"),
        "{}",
        refused.err
    );
    // A write that changes nothing migrates the object.
    let revision = || cluster.read("boat/old", "{.metadata.resourceVersion}");
    let before = revision();
    cluster.run(&["replace", "-f", "-"], &cluster.ok("get boat old -o json"));
    assert_ne!(revision(), before);
    let migrated = revision();
    cluster.run(&["replace", "-f", "-"], &cluster.ok("get boat old -o json"));
    assert_eq!(revision(), migrated);
    let stored = json!({"status": {"storedVersions": ["v2"]}}).to_string();
    cluster.run(&["patch", "crd", "boats.sea.dev", "--subresource=status", "--type=merge", "-p", &stored], "");
    assert_eq!(cluster.read("crd/boats.sea.dev", "{.status.storedVersions}"), "[\"v2\"]");
    cluster.apply(&only);
    assert_eq!(raw("v2", "/old")["spec"], json!({"size": 5}));
}

#[test]
fn webhook_that_changes_the_name_is_refused() {
    let server = HookServer::start(|_, review| {
        let mut answer = convert(review);
        answer["response"]["convertedObjects"][0]["metadata"]["name"] = "other".into();
        answer
    });
    let cluster = Cluster::new();
    cluster.apply(&definition(&server).to_string());
    let refused = cluster.run(&["apply", "-f", "-"], &boat("v2", "new", "length", 7));
    let why =
        "conversion webhook for sea.dev/v2, Kind=Boat returned invalid object: must have the same name: new != other";
    assert!(refused.code == 1 && refused.err.contains(why), "{}", refused.err);
}

#[test]
fn admission_sees_an_object_in_the_version_of_its_rule() {
    let server = HookServer::start(|path, review| match path {
        "/convert" => convert(review),
        "/grow" => patch(json!([{"op": "replace", "path": "/spec/size", "value": 9}])),
        _ => json!({"allowed": true}),
    });
    let cluster = Cluster::new();
    cluster.apply(&definition(&server).to_string());
    let rule = |operations: Value| json!({"apiGroups": ["sea.dev"], "apiVersions": ["v1"], "operations": operations, "resources": ["boats"]});
    let hook = |kind: &str, name: &str, operations: Value| {
        let rules = json!({"rules": [rule(operations)]});
        configuration(kind, name, client_config(&server, &format!("/{name}")), &[], rules).to_string()
    };
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "sized"}, "spec": {"matchConstraints": {"resourceRules": [rule(json!(["CREATE"]))]},
            "validations": [{"expression": "object.spec.size == 9 && object.apiVersion == 'sea.dev/v1'"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "sized"}, "spec": {"policyName": "sized", "validationActions": ["Deny"]}});
    let configurations = [
        hook(MUTATING, "grow", json!(["CREATE"])),
        hook(VALIDATING, "check", json!(["CREATE", "DELETE"])),
        policy.to_string(),
        binding.to_string(),
    ];
    cluster.apply(&configurations.join("\n---\n"));
    cluster.apply(&boat("v2", "new", "length", 7));
    assert_eq!(server.asked("/grow")[0]["object"]["spec"], json!({"size": 7, "flag": "of v2"}));
    let path = "/apis/sea.dev/v2/namespaces/default/boats/new";
    let stored: Value = serde_json::from_str(&cluster.ok(&format!("get --raw {path}"))).expect("JSON");
    assert_eq!(stored["spec"], json!({"length": 9, "flag": "of v2"}));
    cluster.ok("delete boat new");
    let asked = server.asked("/check");
    let seen = [&asked[0]["object"], &asked.last().expect("asked")["oldObject"]];
    for object in seen {
        let found = (&object["apiVersion"], &object["spec"]["size"], object["spec"].get("length"));
        assert_eq!(found, (&json!("sea.dev/v1"), &json!(9), None), "{object}");
    }
}

#[test]
fn selected_fields_are_those_of_the_requested_version() {
    let server = HookServer::start(|_, review| convert(review));
    let cluster = Cluster::new();
    let mut definition = definition(&server);
    for (version, field) in [(0, "size"), (1, "length")] {
        definition["spec"]["versions"][version]["selectableFields"] = json!([{"jsonPath": format!(".spec.{field}")}]);
    }
    cluster.apply(&definition.to_string());
    cluster.apply(&boat("v1", "five", "size", 5));
    cluster.apply(&boat("v2", "seven", "length", 7));
    let names = |version: &str, selector: &str| -> Vec<String> {
        let path = format!("/apis/sea.dev/{version}/namespaces/default/boats?fieldSelector={selector}");
        let list: Value = serde_json::from_str(&cluster.ok(&format!("get --raw {path}"))).expect("JSON");
        let names = list["items"].as_array().expect("items").iter().map(|one| &one["metadata"]["name"]);
        names.map(|name| name.as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names("v1", "spec.size=5"), ["five"]);
    assert_eq!(names("v2", "spec.length=5"), ["five"]);
    assert_eq!(names("v2", "spec.length!=5"), ["seven"]);
    assert_eq!(names("v2", "metadata.name=seven,spec.length=7"), ["seven"]);
    assert_eq!(names("v2", "spec.length=9"), Vec::<String>::new());
}
