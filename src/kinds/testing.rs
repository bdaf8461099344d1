//! Checks of objects, for the tests of kinds.

use super::catalogue::typed::{self, Typed};
use super::{FieldError, by_kind, validate_metadata};
use crate::object::Object;
use serde_json::{Value, json};

/// Returns the errors of an object, once it has its defaults.
pub fn field_errors<T: Typed>(body: &Value, old: Option<&Object>) -> Vec<FieldError> {
    let body = typed::normalize::<T>(body, &mut |_| {}).unwrap();
    typed::validate::<T>(&Object(body), old)
}

/// Returns the errors of a body that is created, one line each: its field and the message.
pub fn refusals(mut body: Value) -> Vec<String> {
    let kind = by_kind(body["apiVersion"].as_str().unwrap(), body["kind"].as_str().unwrap()).unwrap();
    for (field, value) in [("name", "a"), ("namespace", "default")] {
        if body["metadata"][field].is_null() && (kind.namespaced || field == "name") {
            body["metadata"][field] = json!(value);
        }
    }
    let mut object = Object((kind.normalize)(&body, &mut |field| panic!("{}", field.complaint())).unwrap());
    object.set(&["metadata", "uid"], "0a1b2c3d-0000-4000-8000-000000000000");
    (kind.prepare)(&mut object, None);
    let mut errors = validate_metadata(&object, None, kind);
    errors.extend((kind.validate)(&object, None));
    errors.iter().map(ToString::to_string).collect()
}

/// Returns the errors of a new status of an object, one line each. The patches are merged into a minimal object; the second one makes the
/// new form of the first.
pub fn status_refusals(mut body: Value, before: &Value, after: &Value) -> Vec<String> {
    let kind = by_kind(body["apiVersion"].as_str().unwrap(), body["kind"].as_str().unwrap()).unwrap();
    let normalized =
        |body: &Value| Object((kind.normalize)(body, &mut |field| panic!("{}", field.complaint())).unwrap());
    json_patch::merge(&mut body, before);
    let old = normalized(&body);
    json_patch::merge(&mut body, after);
    (kind.validate_status)(&normalized(&body), &old).iter().map(ToString::to_string).collect()
}

/// Returns the errors of a change of an object, as a merge patch.
pub fn change_refusals(mut body: Value, change: &Value) -> Vec<String> {
    let kind = by_kind(body["apiVersion"].as_str().unwrap(), body["kind"].as_str().unwrap()).unwrap();
    let normalized =
        |body: &Value| Object((kind.normalize)(body, &mut |field| panic!("{}", field.complaint())).unwrap());
    let old = normalized(&body);
    json_patch::merge(&mut body, change);
    (kind.validate)(&normalized(&body), Some(&old)).iter().map(ToString::to_string).collect()
}

#[test]
fn refused_changes_are_named_as_kubernetes_names_them() {
    let metadata = json!({"name": "a", "namespace": "default"});
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "a"}, "provisioner": "a.b/c"});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}, "nodeAffinity": {"required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}]}}}});
    let terms = |key: &str| {
        json!({"spec": {"nodeAffinity": {"required": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}}})
    };
    let source = "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n@@ -2,7 +2,7 @@\n  \
                  \"GCEPersistentDisk\": null,\n  \"AWSElasticBlockStore\": null,\n  \"HostPath\": {\n-  \"Path\": \"/x\",\n+  \"Path\": \
                  \"/y\",\n   \"Type\": \"\"\n  },\n  \"Glusterfs\": null,\n";
    let affinity = "nodeAffinity: Invalid value: {\"Required\":{\"NodeSelectorTerms\":[{\"MatchExpressions\":[{\"Key\":\"z\",\"Operator\":\
                    \"Exists\",\"Values\":null}],\"MatchFields\":null}]}}: field is immutable, except for updating from beta label to GA";
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let priority =
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "a"}, "value": 1});
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "a"}, "spec": {"cidrs": ["10.0.0.0/8"]}});
    for (body, change, wanted) in [
        (
            &class,
            json!({"parameters": {"a": "c"}}),
            vec!["parameters: Invalid value: {\"a\":\"c\"}: field is immutable"],
        ),
        (&class, json!({"provisioner": "x/y"}), vec!["provisioner: Invalid value: \"x/y\": field is immutable"]),
        (&volume, json!({"spec": {"hostPath": {"path": "/y"}}}), vec![source]),
        (
            &volume,
            json!({"spec": {"volumeMode": "Block"}}),
            vec!["volumeMode: Invalid value: \"Block\": field is immutable"],
        ),
        (&volume, terms("z"), vec![affinity]),
        (&volume, terms("kubernetes.io/os"), vec![]),
        (
            &set,
            json!({"spec": {"selector": {"matchLabels": {"c": "d"}}}}),
            vec![
                "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"c\":\"d\"}}: field is immutable",
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        ),
        (&range, json!({"spec": {"cidrs": ["x"]}}), vec!["spec.cidrs[0]: Invalid value: \"x\": field is immutable"]),
        (
            &priority,
            json!({"preemptionPolicy": "Never"}),
            vec!["preemptionPolicy: Invalid value: \"Never\": field is immutable"],
        ),
    ] {
        let found = change_refusals(body.clone(), &change);
        assert_eq!(found, wanted, "{change}");
    }
}
