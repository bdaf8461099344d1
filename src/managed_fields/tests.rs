//! Tests of the effect of applies and other writes on an object and its managers.

use super::apply::{ApplyManager, FieldApplier, applied};
use super::granularity::ValueShape;
use super::update::{record_create, record_update};
use crate::kinds::{self, Kind};
use crate::managed_fields::FieldManager;
use crate::object::{Object, Time};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn kind(name: &str) -> &'static Kind {
    kinds::by_name(name).unwrap()
}

fn now() -> Time {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn body(kind: &Kind, rest: Value) -> Object {
    let mut body =
        json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "x", "namespace": "default"}});
    for (name, value) in rest.as_object().into_iter().flatten() {
        match name.as_str() {
            "labels" | "annotations" | "finalizers" => body["metadata"][name.as_str()] = value.clone(),
            _ => body[name.as_str()] = value.clone(),
        }
    }
    Object(body)
}

/// A sequence of writes by several managers to one object.
struct WriteSequence {
    kind: &'static Kind,
    live: Option<Object>,
}

impl WriteSequence {
    fn with_kind(kind_name: &str) -> WriteSequence {
        WriteSequence { kind: kind(kind_name), live: None }
    }

    fn try_apply(&mut self, manager: &str, rest: Value, force: bool) -> Result<(), String> {
        let who = FieldApplier { manager: ApplyManager { name: manager, force }, subresource: "", now: now() };
        let config = body(self.kind, rest);
        let done = applied(self.kind, self.live.as_ref(), &config, who).map_err(|status| status.message)?;
        self.live = Some(done);
        Ok(())
    }

    fn apply(mut self, manager: &str, rest: Value) -> WriteSequence {
        self.try_apply(manager, rest, false).unwrap();
        self
    }

    fn force(mut self, manager: &str, rest: Value) -> WriteSequence {
        self.try_apply(manager, rest, true).unwrap();
        self
    }

    fn refused(mut self, manager: &str, rest: Value, expected: &str) -> WriteSequence {
        assert_eq!(self.try_apply(manager, rest, false).unwrap_err(), expected);
        self
    }

    /// Replaces the object with an ordinary write.
    fn write(mut self, name: &str, subresource: &'static str, rest: Value) -> WriteSequence {
        let manager = FieldManager { name: name.to_owned(), subresource };
        let mut new = body(self.kind, rest);
        match &self.live {
            None => record_create(self.kind, &mut new, &manager, now()),
            Some(live) => record_update(self.kind, live, &mut new, Some(&manager), now()),
        }
        self.live = Some(new);
        self
    }

    fn live(&self) -> &Object {
        self.live.as_ref().unwrap()
    }

    fn is(self, field: &str, expected: Value) -> WriteSequence {
        let found = field.split('/').fold(&self.live().0, |value, name| &value[name]);
        assert_eq!(*found, expected);
        self
    }

    /// The managers as `{"manager": fields}`; the names of updaters end in `*`.
    fn owners(&self) -> Value {
        let entries = self.live().items(&["metadata", "managedFields"]).iter();
        let entries = entries.map(|entry| {
            let mark = if entry["operation"] == "Update" { "*" } else { "" };
            (format!("{}{mark}", entry["manager"].as_str().unwrap()), entry["fieldsV1"].clone())
        });
        Value::Object(entries.collect())
    }

    fn owned(self, expected: Value) -> WriteSequence {
        assert_eq!(self.owners(), expected);
        self
    }
}

#[test]
fn applied_fields_are_owned_and_omitted_ones_are_removed() {
    WriteSequence::with_kind("configmaps")
        .apply("a", json!({"data": {"x": "1", "w": "1"}, "labels": {"from": "a"}}))
        .owned(json!({"a": {"f:data": {"f:x": {}, "f:w": {}}, "f:metadata": {"f:labels": {"f:from": {}}}}}))
        .refused("b", json!({"data": {"x": "2"}}), "Apply failed with 1 conflict: conflict with \"a\": .data.x")
        .force("b", json!({"data": {"x": "2", "z": "2"}}))
        .owned(json!({"a": {"f:data": {"f:w": {}}, "f:metadata": {"f:labels": {"f:from": {}}}}, "b": {"f:data": {"f:x": {}, "f:z": {}}}}))
        .apply("a", json!({"data": {"w": "1"}}))
        .is("data", json!({"x": "2", "w": "1", "z": "2"}))
        .is("metadata", json!({"name": "x", "namespace": "default", "managedFields": [
            {"manager": "b", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:x": {}, "f:z": {}}}},
            {"manager": "a", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:w": {}}}},
        ]}))
        .apply("b", json!({}))
        .is("data", json!({"w": "1"}))
        .owned(json!({"a": {"f:data": {"f:w": {}}}}));
}

#[test]
fn shared_values_stay_until_the_last_owner_omits_them() {
    WriteSequence::with_kind("configmaps")
        .apply("a", json!({"data": {"x": "1"}}))
        .apply("b", json!({"data": {"x": "1"}}))
        .apply("a", json!({}))
        .is("data", json!({"x": "1"}))
        .owned(json!({"b": {"f:data": {"f:x": {}}}}))
        .apply("b", json!({}))
        .is("data", Value::Null)
        .owned(json!({}));
}

#[test]
fn other_writes_own_what_they_change() {
    WriteSequence::with_kind("configmaps")
        .write("kubectl-create", "", json!({"data": {"a": "1", "b": "1"}}))
        .owned(json!({"kubectl-create*": {"f:data": {".": {}, "f:a": {}, "f:b": {}}}}))
        .write("kubectl-edit", "", json!({"data": {"a": "2", "c": "1"}}))
        .owned(json!({"kubectl-create*": {"f:data": {}}, "kubectl-edit*": {"f:data": {"f:a": {}, "f:c": {}}}}))
        .write("kubectl-label", "", json!({"data": {"a": "2", "c": "1"}, "labels": {"k": "v"}}))
        .refused(
            "a",
            json!({"data": {"a": "3", "c": "3"}, "labels": {"k": "w"}}),
            "Apply failed with 3 conflicts: conflicts with \"kubectl-edit\" using v1:\n- .data.a\n- .data.c\n\
             conflicts with \"kubectl-label\" using v1:\n- .metadata.labels.k",
        )
        .apply("a", json!({"data": {"a": "2"}}))
        .write("kubectl-edit", "", json!({"data": {"a": "4", "c": "1"}, "labels": {"k": "v"}}))
        .owned(json!({
            "kubectl-create*": {"f:data": {}}, "kubectl-edit*": {"f:data": {"f:a": {}, "f:c": {}}},
            "kubectl-label*": {"f:metadata": {"f:labels": {".": {}, "f:k": {}}}},
        }));
}

#[test]
fn fields_without_recorded_managers_get_one_owner() {
    let mut story = WriteSequence::with_kind("configmaps");
    story.live = Some(body(story.kind, json!({"data": {"a": "1", "b": "1"}})));
    story
        .write("kubectl-edit", "", json!({"data": {"a": "2", "b": "1"}}))
        .owned(json!({}))
        .refused(
            "a",
            json!({"data": {"a": "3"}}),
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a",
        )
        .force("a", json!({"data": {"a": "3"}}))
        .owned(json!({"a": {"f:data": {"f:a": {}}}, "before-first-apply*": {"f:data": {".": {}, "f:b": {}}}}));
}

fn deployment(containers: Value) -> Value {
    json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": containers}}}})
}

#[test]
fn lists_by_key_have_an_owner_for_each_item_and_field() {
    let port = |number: u16| json!({"containerPort": number});
    let one =
        deployment(json!([{"name": "web", "image": "a", "env": [{"name": "A", "value": "1"}], "ports": [port(80)]}]));
    let other = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "web", "env": [{"name": "B", "value": "2"}], "ports": [port(81)]}, {"name": "side", "image": "b"}]}}}});
    let containers = |story: &WriteSequence| story.live().0["spec"]["template"]["spec"]["containers"].clone();
    let story = WriteSequence::with_kind("deployments").apply("one", one.clone()).apply("other", other.clone());
    let expected = json!([
        {"name": "web", "image": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "ports": [port(80), port(81)]},
        {"name": "side", "image": "b"},
    ]);
    assert_eq!(containers(&story), expected);
    let item = json!({".": {}, "f:name": {}, "f:env": {"k:{\"name\":\"B\"}": {".": {}, "f:name": {}, "f:value": {}}},
        "f:ports": {"k:{\"containerPort\":81,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}});
    let owned = &story.owners()["other"]["f:spec"]["f:template"]["f:spec"]["f:containers"];
    assert_eq!(owned["k:{\"name\":\"web\"}"], item);
    let message =
        "Apply failed with 1 conflict: conflict with \"one\": .spec.template.spec.containers[name=\"web\"].image";
    let changed = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "c"}]}}}});
    let story = story.refused("other", changed, message);
    let story = story.apply("one", deployment(json!([{"name": "web", "image": "a"}])));
    let expected = json!([{"name": "web", "image": "a", "env": [{"name": "B", "value": "2"}], "ports": [port(81)]}, {"name": "side", "image": "b"}]);
    assert_eq!(containers(&story), expected);
    let story = story.apply("other", json!({}));
    assert_eq!(containers(&story), json!([{"name": "web", "image": "a"}]));
}

#[test]
fn repeated_items_stay_and_do_not_stop_pruning() {
    let twice = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let web = json!({"name": "web", "image": "a", "env": twice});
    let side = json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "b"}]}}}});
    let containers = |story: &WriteSequence| story.live().0["spec"]["template"]["spec"]["containers"].clone();
    let story = WriteSequence::with_kind("deployments").write("user", "", deployment(json!([web]))).apply("m", side);
    assert_eq!(containers(&story), json!([web, {"name": "side", "image": "b"}]));
    let env =
        &story.owners()["user*"]["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"web\"}"]["f:env"];
    assert_eq!(*env, json!({".": {}, "k:{\"name\":\"A\"}": {}}));
    let story = story.apply("m", json!({}));
    assert_eq!(containers(&story), json!([web]));
    assert_eq!(story.owners()["m"], Value::Null);
    // An applied item takes the place of those that repeat its key.
    let single = json!([{"name": "web", "env": [{"name": "A", "value": "3"}]}]);
    let story = story.force("m", json!({"spec": {"template": {"spec": {"containers": single}}}}));
    assert_eq!(containers(&story)[0]["env"], json!([{"name": "A", "value": "3"}]));
    WriteSequence::with_kind("configmaps")
        .write("user", "", json!({"finalizers": ["x/a", "x/a"]}))
        .apply("m", json!({"data": {"k": "1"}}))
        .apply("m", json!({}))
        .is("data", Value::Null)
        .is("metadata/finalizers", json!(["x/a", "x/a"]))
        .owned(json!({"user*": {"f:metadata": {"f:finalizers": {".": {}, "v:\"x/a\"": {}}}}}));
}

#[test]
fn unowned_fields_stay_in_remaining_items() {
    let mut story = WriteSequence::with_kind("deployments")
        .apply("one", deployment(json!([{"name": "web", "image": "a", "tty": true}])));
    let live = story.live.as_mut().unwrap();
    live.0["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    let story = story.apply("one", deployment(json!([{"name": "web", "image": "a"}])));
    let left = json!([{"name": "web", "image": "a", "imagePullPolicy": "Always"}]);
    assert_eq!(story.live().0["spec"]["template"]["spec"]["containers"], left);
    // Without its last owner the complete item is removed.
    let story = story.apply("one", deployment(json!([{"name": "other", "image": "a"}])));
    assert_eq!(story.live().0["spec"]["template"]["spec"]["containers"], json!([{"name": "other", "image": "a"}]));
}

#[test]
fn applied_lists_determine_the_order() {
    let cases = [
        (vec!["a", "b", "c"], vec!["c", "a"], vec!["b", "c", "a"]),
        (vec!["a", "b"], vec!["x", "b", "y"], vec!["a", "x", "b", "y"]),
        (vec!["a"], vec!["x"], vec!["a", "x"]),
        (vec!["a", "b", "c"], vec!["a", "b", "c"], vec!["a", "b", "c"]),
        (vec!["a", "b", "c"], vec!["b", "x"], vec!["a", "b", "c", "x"]),
    ];
    for (first, second, expected) in cases {
        let containers = |names: &[&str]| {
            let containers = names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
            json!({"spec": {"containers": containers}})
        };
        let story = WriteSequence::with_kind("pods").apply("one", containers(&first)).apply("two", containers(&second));
        assert_eq!(story.live().0["spec"], containers(&expected)["spec"], "{first:?} {second:?}");
    }
}

#[test]
fn sets_have_an_owner_for_each_value_and_other_lists_one_owner() {
    WriteSequence::with_kind("configmaps")
        .apply("a", json!({"finalizers": ["x/a", "x/b"]}))
        .apply("b", json!({"finalizers": ["x/b", "x/c"]}))
        .is("metadata/finalizers", json!(["x/a", "x/b", "x/c"]))
        .apply("a", json!({}))
        .is("metadata/finalizers", json!(["x/b", "x/c"]))
        .owned(json!({"b": {"f:metadata": {"f:finalizers": {"v:\"x/b\"": {}, "v:\"x/c\"": {}}}}}));
    let args = |args: Value| json!({"spec": {"containers": [{"name": "c", "args": args}]}});
    WriteSequence::with_kind("pods").apply("a", args(json!(["1", "2"]))).refused(
        "b",
        args(json!(["3"])),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.containers[name=\"c\"].args",
    );
    let selector = |labels: Value| json!({"spec": {"selector": labels}});
    WriteSequence::with_kind("services")
        .apply("a", selector(json!({"a": "1"})))
        .owned(json!({"a": {"f:spec": {"f:selector": {}}}}))
        .force("b", selector(json!({"b": "1"})))
        .is("spec/selector", json!({"b": "1"}))
        .owned(json!({"b": {"f:spec": {"f:selector": {}}}}));
}

#[test]
fn subresources_have_separate_managers() {
    let replicas = |count: i64| json!({"spec": {"replicas": count}});
    WriteSequence::with_kind("deployments")
        .apply("kubectl", replicas(0))
        .write("kubectl", "scale", replicas(1))
        .owned(json!({"kubectl*": {"f:spec": {"f:replicas": {}}}}))
        .refused(
            "kubectl",
            replicas(0),
            "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas",
        );
    let story = WriteSequence::with_kind("deployments").write(
        "a",
        "",
        json!({"spec": {"replicas": 1}, "status": {"replicas": 1}}),
    );
    story.owned(json!({"a*": {"f:spec": {"f:replicas": {}}}}));
}

#[test]
fn embedded_go_structs_have_no_owner() {
    let containers = json!([{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]);
    let labels = json!({"a": "b"});
    let spec = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}});
    let story = WriteSequence::with_kind("deployments").write("kubectl-create", "", json!({"spec": spec}));
    let expected = json!({"f:spec": {
        "f:selector": {}, "f:strategy": {"f:type": {}, "f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
        "f:template": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
            ".": {}, "f:name": {}, "f:image": {}, "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}}}}}}},
    }});
    story.owned(json!({"kubectl-create*": expected}));
}

#[test]
fn configuration_errors_name_their_path() {
    let cases = [
        ("configmaps", json!({"datum": {}}), "v1", ".datum: field not declared in schema"),
        (
            "deployments",
            deployment(json!([{"name": "web", "env": [{"name": "A"}, {"name": "A"}]}])),
            "apps/v1",
            ".spec.template.spec.containers[name=\"web\"].env: duplicate entries for key [name=\"A\"]",
        ),
        (
            "deployments",
            deployment(json!([{"name": "web", "imagee": "x"}])),
            "apps/v1",
            ".spec.template.spec.containers[name=\"web\"].imagee: field not declared in schema",
        ),
        (
            "services",
            json!({"spec": {"ports": [{"port": 1, "protocol": "UDP"}, {"port": 1}, {"port": 1}]}}),
            "v1",
            ".spec.ports: duplicate entries for key [port=1,protocol=\"TCP\"]",
        ),
        (
            "deployments",
            deployment(json!([
                {"name": "web", "env": [{"name": "A"}, {"name": "A"}]},
                {"name": "web", "env": [{"value": "x"}], "ports": [{"name": "p"}]},
            ])),
            "apps/v1",
            "errors:\n  .spec.template.spec.containers[name=\"web\"].env: duplicate entries for key [name=\"A\"]\n  \
             .spec.template.spec.containers: duplicate entries for key [name=\"web\"]",
        ),
    ];
    let wrong_types = [
        (
            "deployments",
            json!({"spec": {"replicas": "2"}}),
            "apps/v1",
            ".spec.replicas: expected numeric (int or float), got string",
        ),
        (
            "configmaps",
            json!({"data": {"k": 1}}),
            "v1",
            ".data.k: expected string, got &value.valueUnstructured{Value:1}",
        ),
        ("configmaps", json!({"data": ["k"]}), "v1", ".data: expected map, got &{[k]}"),
        ("configmaps", json!({"one": 1, "other": 2}), "v1", ".one: field not declared in schema"),
        (
            "deployments",
            deployment(json!([{"name": 1}])),
            "apps/v1",
            ".spec.template.spec.containers[name=1].name: expected string, got &value.valueUnstructured{Value:1}",
        ),
    ];
    for (name, rest, version, why) in cases.into_iter().chain(wrong_types) {
        let version = if version == "v1" { "/v1" } else { version };
        let place = format!("default/x; {version}, Kind={}", kind(name).kind);
        let expected = format!("failed to create typed patch object ({place}): {why}");
        WriteSequence::with_kind(name).refused("a", rest, &expected);
    }
}

#[test]
fn custom_values_of_another_type_than_their_schema_has_are_refused() {
    let text = json!({"type": "string"});
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": text}}});
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": text});
    let atomic = json!({"type": "array", "items": {"type": "object", "properties": {"k": text}}});
    let port = json!({"x-kubernetes-int-or-string": true});
    let fields = json!({"n": {"type": "integer"}, "keyed": keyed, "set": set, "atomic": atomic, "port": port});
    let schema: &'static Value = Box::leak(Box::new(json!({"type": "object", "properties": fields})));
    for (value, why) in [
        (json!({"n": "x"}), Some(".n: expected numeric (int or float), got string")),
        (json!({"keyed": {}}), Some(".keyed: expected list, got &{map[]}")),
        (json!({"keyed": [null]}), Some(".keyed: element 0: associative list with keys may not have a null element")),
        (json!({"set": [1]}), Some(".set[=1]: expected string, got &value.valueUnstructured{Value:1}")),
        (json!({"set": [{}]}), Some(".set: element 0: associative list without keys has an element that's a map type")),
        (json!({"atomic": [{"k": "x"}, {"z": 1}]}), Some(".atomic[1].z: field not declared in schema")),
        (json!({"port": {}}), Some(".port: expected any scalar, got &{map[]}")),
        (json!({"n": 1.5, "keyed": null, "set": ["x"], "port": "http"}), None),
    ] {
        let checked = super::typed::check(&value, ValueShape::Custom(schema, false));
        assert_eq!(checked.err().as_deref(), why, "{value}");
    }
}

#[test]
fn conflicts_name_the_fields_of_a_level_before_those_below() {
    let mut conflict = super::fields::FieldSet::default();
    let below =
        super::fields::FieldSet::from_json(&json!({"f:env": {"k:{\"name\":\"E\"}": {"f:value": {}}}, "f:image": {}}))
            .unwrap();
    conflict.put("f:spec", below);
    assert_eq!(conflict.paths(), [".spec.image", ".spec.env[name=\"E\"].value"]);
}

#[test]
fn number_of_updating_managers_is_limited() {
    let data = |count: usize| (0..count).map(|index| (format!("k{index:02}"), json!("v"))).collect::<Map<_, _>>();
    let mut story = WriteSequence::with_kind("configmaps").write("first", "", json!({"data": data(1)}));
    for count in 2..=14 {
        story = story.write(&format!("m{count:02}"), "", json!({"data": data(count)}));
    }
    let owners = story.owners();
    assert_eq!(owners.as_object().unwrap().len(), 10);
    let ancient = json!({"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}, "f:k03": {}, "f:k04": {}}});
    assert_eq!(owners["ancient-changes*"], ancient);
}

#[test]
fn managers_are_dropped_on_request() {
    let mut story = WriteSequence::with_kind("configmaps").write("a", "", json!({"data": {"x": "1"}}));
    for (list, is_kept) in [(Value::Null, true), (json!([]), false), (json!([{}]), false)] {
        let mut new = story.live().clone();
        new.set(&["metadata", "managedFields"], list);
        let manager = FieldManager { name: "b".to_owned(), subresource: "" };
        record_update(story.kind, story.live(), &mut new, Some(&manager), now());
        assert_eq!(super::is_tracked(&new), is_kept);
        if is_kept {
            assert!(super::are_same(&new, story.live()));
        } else {
            story.live = Some(new);
        }
    }
}

fn any_data() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-d]", "[0-2]", 0..4).prop_map(|data| json!({ "data": data }))
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing(first in any_data(), second in any_data()) {
        let once = WriteSequence::with_kind("configmaps").force("a", first).force("b", second.clone());
        let before = once.live().clone();
        let twice = once.apply("b", second);
        prop_assert_eq!(twice.live(), &before);
    }

    #[test]
    fn sole_manager_leaves_exactly_the_applied_object(first in any_data(), second in any_data()) {
        let story = WriteSequence::with_kind("configmaps").force("a", first).force("a", second.clone());
        let left = story.live().0["data"].as_object().cloned().unwrap_or_default();
        prop_assert_eq!(Value::Object(left), second["data"].clone());
    }

    #[test]
    fn independent_managers_commute(one in any_data(), other in any_data()) {
        let renamed: Map<String, Value> = other["data"].as_object().unwrap().iter().map(|(key, value)| (format!("o{key}"), value.clone())).collect();
        let other = json!({"data": renamed});
        let there = WriteSequence::with_kind("configmaps").apply("a", one.clone()).apply("b", other.clone());
        let before = there.live().clone();
        let there = there.apply("a", one.clone());
        prop_assert_eq!(there.live(), &before);
        let back = WriteSequence::with_kind("configmaps").apply("b", other).apply("a", one);
        prop_assert_eq!(&there.live().0["data"], &back.live().0["data"]);
        prop_assert_eq!(there.owners(), back.owners());
    }
}
