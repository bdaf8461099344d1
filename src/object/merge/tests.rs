use super::*;
use crate::kinds::catalogue::merge_rules::schema_for;
use serde_json::json;

fn deployment() -> MergeSchemaRef {
    schema_for("apps/v1", "Deployment").unwrap()
}

fn pod() -> MergeSchemaRef {
    schema_for("v1", "Pod").unwrap()
}

fn spec(value: Value) -> Value {
    json!({ "spec": value })
}

#[test]
fn only_built_in_groups_have_schemas() {
    for (api_version, kind, known) in [
        ("v1", "Pod", true),
        ("apps/v1", "Deployment", true),
        ("rbac.authorization.k8s.io/v1", "Role", true),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", true),
        ("example.com/v1", "Pod", false),
        ("gateway.networking.k8s.io/v1", "Gateway", false),
        ("", "Pod", false),
    ] {
        assert_eq!(schema_for(api_version, kind).is_some(), known, "{api_version}");
    }
}

#[test]
fn strategic_patches_apply() {
    let two = json!([{"name": "a", "image": "a:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                     {"name": "b", "image": "b:1"}]);
    let base = spec(json!({"containers": two, "nodeSelector": {"x": "y"}, "tolerations": [{"key": "t"}]}));
    for (name, patch, field, wanted) in [
        (
            "merge by name, new ones first",
            json!({"containers": [{"name": "b", "image": "b:2"}, {"name": "c"}]}),
            "containers",
            json!([two[0], {"name": "b", "image": "b:2"}, {"name": "c"}]),
        ),
        (
            "delete an element",
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            "containers",
            json!([two[1]]),
        ),
        (
            "replace a list",
            json!({"containers": [{"$patch": "replace"}, {"name": "c"}]}),
            "containers",
            json!([{"name": "c"}]),
        ),
        ("replace a map", json!({"nodeSelector": {"$patch": "replace", "z": "1"}}), "nodeSelector", json!({"z": "1"})),
        ("delete a map's content", json!({"nodeSelector": {"$patch": "delete"}}), "nodeSelector", json!({})),
        ("null deletes", json!({"nodeSelector": {"x": null, "n": null, "z": "1"}}), "nodeSelector", json!({"z": "1"})),
        (
            "lists without key are replaced",
            json!({"tolerations": [{"key": "u"}]}),
            "tolerations",
            json!([{"key": "u"}]),
        ),
        (
            "order",
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            "containers",
            json!([two[1], two[0]]),
        ),
        (
            "order with a change",
            json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "c"}]}),
            "containers",
            json!([{"name": "c"}, two[0], two[1]]),
        ),
        (
            "nested",
            json!({"containers": [{"name": "a", "env": [{"name": "B", "$patch": "delete"}, {"name": "C", "value": "3"}]}]}),
            "containers",
            json!([{"name": "a", "image": "a:1", "env": [{"name": "C", "value": "3"}, {"name": "A", "value": "1"}]}, two[1]]),
        ),
        (
            "a new map has no directives",
            json!({"volumes": [{"name": "v", "emptyDir": {"medium": null}}, {"name": "w", "$patch": "delete"}]}),
            "volumes",
            json!([{"name": "v", "emptyDir": {}}]),
        ),
        (
            "a new list element has no directives",
            json!({"containers": [{"name": "c", "$setElementOrder/env": [{"name": "A"}], "env": [{"name": "A"}], "image": null}]}),
            "containers",
            json!([{"name": "c", "env": [{"name": "A"}]}, two[0], two[1]]),
        ),
    ] {
        let merged = strategic_merge(&base, &spec(patch), pod()).unwrap();
        assert_eq!(merged["spec"][field], wanted, "{name}");
    }
}

#[test]
fn primitive_lists_are_sets() {
    let base = json!({"metadata": {"finalizers": ["a", "b"]}});
    for (patch, wanted) in [
        (json!({"finalizers": ["c", "a"]}), json!(["c", "a", "b"])),
        (json!({"$deleteFromPrimitiveList/finalizers": ["a"]}), json!(["b"])),
        (json!({"$setElementOrder/finalizers": ["b", "a"]}), json!(["b", "a"])),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]}),
            json!(["c", "b"]),
        ),
    ] {
        let merged = strategic_merge(&base, &json!({ "metadata": patch }), pod()).unwrap();
        assert_eq!(merged["metadata"]["finalizers"], wanted, "{patch}");
    }
    let absent = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    assert_eq!(strategic_merge(&json!({}), &absent, pod()).unwrap(), json!({"metadata": {}}));
}

#[test]
fn retained_keys_exclude_the_others() {
    let base = spec(json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}));
    let patch = spec(json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}));
    let merged = strategic_merge(&base, &patch, deployment()).unwrap();
    assert_eq!(merged, spec(json!({"strategy": {"type": "Recreate"}})));
    assert_eq!(
        two_way_strategic(&base, &merged, deployment()).unwrap()["spec"]["strategy"],
        json!({
        "$retainKeys": ["type"], "type": "Recreate", "rollingUpdate": null})
    );
}

#[test]
fn malformed_patches_are_refused() {
    let base = spec(json!({"containers": [{"name": "a"}], "strategy": {"type": "x"}}));
    for (patch, wanted) in [
        (json!({"containers": [{"image": "x"}]}), "map: map[image:x] does not contain declared merge key: name"),
        (json!({"containers": [{"$patch": "delete"}]}), "does not contain declared merge key: name"),
        (json!({"containers": [{"$patch": "odd", "name": "a"}]}), "unknown patch type: odd in map"),
        (
            json!({"containers": [{"$patch": "merge", "name": "a"}]}),
            "merging lists cannot yet be specified in the patch",
        ),
        (json!({"strategy": {"$patch": 5}}), "unknown patch type: 5 in map"),
        (json!({"strategy": {"$retainKeys": ["a"], "b": 1}}), "invalid patch format of retainKeys"),
        (json!({"strategy": {"$retainKeys": "a"}}), "invalid patch format of retainKeys"),
        (json!({"containers": [["a"]]}), "list element types are not identical: [[map[name:a]] [[a]]]"),
        (json!({"containers": ["a"]}), "list element types are not identical: [[map[name:a]] [a]]"),
        (
            json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}),
            "The order in patch list",
        ),
        (json!({"$setElementOrder/containers": 5}), "is not a list"),
    ] {
        let error = strategic_merge(&base, &spec(patch.clone()), pod()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{patch}: {error}");
    }
    assert!(strategic_merge(&base, &json!([1]), pod()).is_err());
}

#[test]
fn two_way_patch_turns_the_original_into_the_modified_version() {
    let versions = [
        json!({}),
        spec(json!({"containers": [{"name": "a", "image": "1"}]})),
        spec(json!({"containers": [{"name": "b", "image": "1", "args": ["x"]}, {"name": "a", "image": "2"}]})),
        spec(
            json!({"containers": [{"name": "a", "image": "2", "ports": [{"containerPort": 80}, {"containerPort": 81}]},
                                   {"name": "b", "image": "1"}], "volumes": [{"name": "v", "emptyDir": {}}]}),
        ),
        spec(json!({"containers": [{"name": "a", "image": "2", "ports": [{"containerPort": 81}]}],
                    "volumes": [{"name": "v", "hostPath": {"path": "/"}}]})),
        json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": "y"}}}),
        json!({"metadata": {"finalizers": ["c", "b"], "labels": {}}}),
    ];
    for original in &versions {
        for modified in &versions {
            let patch = two_way_strategic(original, modified, pod()).unwrap();
            assert_eq!(&strategic_merge(original, &patch, pod()).unwrap(), modified, "{original} with {patch}");
            assert_eq!(patch == json!({}), original == modified);
        }
    }
}

/// Applies the patch of `kubectl apply`.
fn apply(original: Value, modified: Value, current: Value, schema: MergeSchemaRef) -> (Value, Value) {
    let patch = three_way_strategic(&original, &modified, &current, schema, true).unwrap();
    let merged = strategic_merge(&current, &patch, schema).unwrap();
    (patch, merged)
}

#[test]
fn apply_keeps_fields_of_other_writers() {
    let container = |image: &str, env: Value| json!({"name": "main", "image": image, "env": env});
    let original = spec(json!({"replicas": 0, "template": {"spec": {"containers": [
        container("s:1", json!([{"name": "MODE", "value": "dev"}, {"name": "DEBUG", "value": "1"}])), {"name": "side"}],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "c"}}]}}}));
    let current = spec(json!({"replicas": 0, "paused": true, "template": {"spec": {"containers": [
        {"name": "injected", "image": "i"},
        container("s:1", json!([{"name": "MODE", "value": "dev"}, {"name": "DEBUG", "value": "1"}, {"name": "HAND", "value": "made"}])),
        {"name": "side", "imagePullPolicy": "Always"}],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "c", "defaultMode": 420}}]}}}));
    let modified = spec(json!({"template": {"spec": {"containers": [
        container("s:2", json!([{"name": "EXTRA", "value": "y"}, {"name": "MODE", "value": "prod"}]))],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]}}}));
    let (_, merged) = apply(original, modified.clone(), current, deployment());
    let wanted = spec(json!({"paused": true, "template": {"spec": {"containers": [
        {"name": "injected", "image": "i"},
        container("s:2", json!([{"name": "HAND", "value": "made"}, {"name": "EXTRA", "value": "y"}, {"name": "MODE", "value": "prod"}]))],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]}}}));
    assert_eq!(merged, wanted);
    let (patch, again) = apply(modified.clone(), modified, merged, deployment());
    assert_eq!(patch, json!({}));
    assert_eq!(again, wanted);
}

#[test]
fn apply_of_an_unchanged_manifest_is_empty() {
    let manifest = json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "args": ["a"]}]}});
    let live = json!({"metadata": {"name": "x", "uid": "1", "labels": {"a": "b", "c": "d"}},
        "spec": {"containers": [{"name": "c", "args": ["a"], "tty": false}, {"name": "d"}], "restartPolicy": "Always"}});
    assert_eq!(apply(manifest.clone(), manifest.clone(), live.clone(), pod()).0, json!({}));
    assert_eq!(apply(json!({}), manifest, live, pod()).0, json!({}));
}

#[test]
fn apply_deletes_only_fields_that_it_had_set() {
    let original = json!({"metadata": {"labels": {"mine": "1", "gone": "1"}, "finalizers": ["a", "b"]}});
    let modified = json!({"metadata": {"labels": {"mine": "2"}, "finalizers": ["b"]}});
    let current =
        json!({"metadata": {"labels": {"mine": "1", "gone": "1", "theirs": "1"}, "finalizers": ["a", "b", "c"]}});
    let (_, merged) = apply(original, modified, current, pod());
    assert_eq!(merged, json!({"metadata": {"labels": {"mine": "2", "theirs": "1"}, "finalizers": ["b", "c"]}}));
}

#[test]
fn difference_without_overwrite_is_a_conflict() {
    let of = |replicas: i64| spec(json!({ "replicas": replicas }));
    let (original, modified, current) = (of(1), of(2), of(3));
    let error = three_way_strategic(&original, &modified, &current, deployment(), false).unwrap_err();
    let wanted = "patch:\nspec:\n  replicas: 2\n\nconflicts with changes made from original to current:\nspec:\n  replicas: 3\n\n";
    assert_eq!(error, MergeError::Conflict(wanted.into()));
    let patch = |current| three_way_strategic(&original, &modified, &current, deployment(), false);
    assert_eq!(patch(of(1)), Ok(of(2)));
    assert_eq!(patch(of(2)), Ok(json!({})));
    let env = |value: &str, other: &str| spec(json!({"containers": [{"name": "a", "x": value, "y": other}]}));
    let by_key = |current| three_way_strategic(&env("1", "1"), &env("2", "1"), &current, pod(), false);
    assert!(by_key(env("1", "9")).is_err());
    assert!(three_way_strategic(&env("1", "1"), &env("2", "1"), &env("1", "1"), pod(), false).is_ok());
}

#[test]
fn custom_resources_merge_as_json() {
    let original = spec(json!({"a": 1, "b": 2, "l": [1], "m": {"x": 1}}));
    let modified = spec(json!({"a": 5, "l": [2], "e": {}}));
    let current = spec(json!({"a": 1, "b": 2, "l": [1, 9], "m": {"x": 1, "y": 2}, "theirs": 3}));
    let patch = three_way_json_merge(&original, &modified, &current).unwrap();
    assert_eq!(patch, spec(json!({"a": 5, "b": null, "l": [2], "m": null, "e": {}})));
    assert_eq!(three_way_json_merge(&modified, &modified, &modified), Ok(json!({})));
    assert_eq!(three_way_json_merge(&json!({}), &modified, &modified), Ok(json!({})));
}

/// Applies the patches of a recorded conversation to its file, and compares the result with the recorded `get -o yaml`.
#[test]
fn recorded_patches_lead_to_the_recorded_object() {
    let shared = std::env::var("KLOOP_SHARED").unwrap_or_else(|_| "../shared".into());
    let folder = std::path::Path::new(&shared).join("golden/patch-kinds");
    let Ok(conversation) = std::fs::read_to_string(folder.join("conversation.txt")) else {
        skip!("no golden recordings in {}", folder.display());
        return;
    };
    let file = std::fs::read_to_string(folder.join("dep.yaml")).unwrap();
    let mut object = crate::object::yaml::documents(&file).unwrap().remove(0).value;
    for step in conversation.split("\n$ ") {
        let (command, output) = step.split_once('\n').unwrap_or((step, ""));
        if let Some(patch) = command.strip_prefix("kubectl patch deployment web -p '") {
            let patch: Value = serde_json::from_str(patch.trim_end_matches('\'')).unwrap();
            object = strategic_merge(&object, &patch, deployment()).unwrap();
        } else if command == "kubectl get deployment web -o yaml" {
            let text: String =
                output.lines().take_while(|line| *line != "? 0").map(|line| format!("{line}\n")).collect();
            let recorded = crate::object::yaml::documents(&text).unwrap().remove(0).value;
            assert_is_in(&object["spec"], &recorded["spec"], "spec");
            assert_eq!(object["metadata"]["labels"], recorded["metadata"]["labels"]);
            return;
        }
    }
    panic!("the conversation has no object to compare with");
}

/// Asserts that a value contains another one and at most defaults besides; lists must have equal lengths.
fn assert_is_in(small: &Value, large: &Value, path: &str) {
    match (small, large) {
        (Value::Object(small), Value::Object(large)) => {
            for (key, value) in small {
                let other = large.get(key).unwrap_or_else(|| panic!("{path}.{key} is missing"));
                assert_is_in(value, other, &format!("{path}.{key}"));
            }
        }
        (Value::Array(small), Value::Array(large)) => {
            assert_eq!(small.len(), large.len(), "{path}");
            small.iter().zip(large).enumerate().for_each(|(at, (a, b))| assert_is_in(a, b, &format!("{path}[{at}]")));
        }
        _ => assert_eq!(small, large, "{path}"),
    }
}

#[test]
fn long_lists_merge_in_linear_time() {
    let containers =
        |from: usize| (from..from + 4_000).map(|n| json!({"name": n.to_string(), "image": "x"})).collect::<Vec<_>>();
    let (old, new) = (spec(json!({"containers": containers(0)})), spec(json!({"containers": containers(2_000)})));
    let patch = three_way_strategic(&old, &new, &old, pod(), true).unwrap();
    assert_eq!(strategic_merge(&old, &patch, pod()).unwrap()["spec"]["containers"].as_array().unwrap().len(), 4_000);
    let finalizers = |from: usize| json!({"metadata": {"finalizers": (from..from + 4_000).map(|n| n.to_string()).collect::<Vec<_>>()}});
    let patch = two_way_strategic(&finalizers(0), &finalizers(2_000), pod()).unwrap();
    assert_eq!(strategic_merge(&finalizers(0), &patch, pod()).unwrap(), finalizers(2_000));
}

#[test]
fn kustomization_merges_lists_by_all_of_their_keys() {
    let port = |port: u16, protocol: &str, name: &str| json!({"port": port, "protocol": protocol, "name": name});
    let bare = json!({"port": 80, "name": "b"});
    let (tcp, udp) = (port(53, "TCP", "t"), port(53, "UDP", "u"));
    let both = json!([tcp, udp]);
    let with_node_port = json!({"port": 53, "protocol": "UDP", "name": "u", "nodePort": 30053});
    let others = json!([port(80, "TCP", "t"), port(90, "TCP", "u")]);
    let (other, web) = (port(80, "UDP", "web"), port(80, "UDP", "u"));
    for (base, patch, expected) in [
        (&both, json!([{"port": 53, "protocol": "UDP", "nodePort": 30053}]), json!([with_node_port, tcp])),
        (&both, json!([{"port": 53, "protocol": "UDP", "$patch": "delete"}]), json!([tcp])),
        (
            &both,
            json!([{"port": 53, "protocol": "UDP", "nodePort": 30053}, {"port": 53, "protocol": "TCP"}]),
            json!([with_node_port, tcp]),
        ),
        (&others, json!([other]), json!([other, others[0], others[1]])),
        // The protocol is absent in the patch, in the base, or in both.
        (&json!([web]), json!([{"port": 80, "name": "w"}]), json!([port(80, "UDP", "w")])),
        (&json!([web]), json!([{"port": 80, "$patch": "delete"}]), json!([])),
        (&json!([web]), json!([{"port": 80}, {"port": 80, "protocol": "UDP"}]), json!([{"port": 80}, web])),
        (&both, json!([{"port": 53, "name": "w"}]), json!([port(53, "TCP", "w"), udp])),
        (&json!([bare]), json!([port(80, "TCP", "w")]), json!([port(80, "TCP", "w")])),
        (&json!([bare]), json!([other]), json!([other, bare])),
        (&json!([bare]), json!([{"port": 80, "name": "w"}]), json!([{"port": 80, "name": "w"}])),
        (&both, json!([{"$patch": "replace"}, {"port": 53}]), json!([{"port": 53}])),
        // In an element with a key it concerns the element: a known one stays, a new one is added.
        (&both, json!([{"port": 53, "protocol": "TCP", "name": "w", "$patch": "replace"}]), both.clone()),
        (
            &json!([bare]),
            json!([{"port": 81, "name": "w", "$patch": "replace"}]),
            json!([{"port": 81, "name": "w"}, bare]),
        ),
        (&Value::Null, json!([{"port": 81, "$patch": "replace"}]), json!([{"port": 81}])),
    ] {
        let [of, by] = [base.clone(), patch.clone()].map(|ports| spec(json!({ "ports": ports })));
        let merged = overlay(&of, &by, schema_for("v1", "Service")).unwrap();
        assert_eq!(merged["spec"]["ports"], expected, "{base} with {patch}");
    }
    let ports = |list: Value| spec(json!({"containers": [{"name": "a", "ports": list}]}));
    let base = ports(json!([{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]));
    let patch = ports(json!([{"containerPort": 53, "protocol": "UDP", "$patch": "delete"}]));
    let rest = ports(json!([{"containerPort": 53, "protocol": "TCP"}]));
    assert_eq!(overlay(&base, &patch, Some(pod())), Ok(rest));
    let spread =
        |key: &str, action: &str, skew: u8| json!({"topologyKey": key, "whenUnsatisfiable": action, "maxSkew": skew});
    let constraints = |list: Value| spec(json!({ "topologySpreadConstraints": list }));
    let base = constraints(json!([spread("zone", "DoNotSchedule", 1), spread("zone", "ScheduleAnyway", 1)]));
    let patch = constraints(json!([spread("zone", "ScheduleAnyway", 2)]));
    let merged = constraints(json!([spread("zone", "ScheduleAnyway", 2), spread("zone", "DoNotSchedule", 1)]));
    assert_eq!(overlay(&base, &patch, Some(pod())), Ok(merged));
    // kubectl uses only the first key.
    let base = spec(json!({ "ports": both }));
    let by_one = strategic_merge(
        &base,
        &spec(json!({"ports": [{"port": 53, "$patch": "delete"}]})),
        schema_for("v1", "Service").unwrap(),
    );
    assert_eq!(by_one.unwrap()["spec"]["ports"], json!([]));
}
