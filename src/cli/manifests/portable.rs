//! Objects as manifests: without the fields that a server sets, so that they can be created again, here or in another cluster.
//!
//! Start reading at [`strip_server_fields`].

use crate::kinds::shared::manifest_folder;
use crate::kinds::{Kind, deployment, persistent_volume, persistent_volume_claim};
use crate::object::{LAST_APPLIED, Object};
use serde_json::Value;

/// Metadata that the server sets.
const METADATA: [&str; 9] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "ownerReferences",
];

/// Annotations that controllers set.
const ANNOTATIONS: [&str; 6] = [
    deployment::REVISION,
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
];

/// Labels by which a Job finds its pods, which the server makes from its uid.
const JOB_LABELS: [&str; 4] =
    ["controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"];

/// Returns an object without its status and the fields that the server sets, ready to be created.
pub fn strip_server_fields(object: &Object, kind: &Kind) -> Object {
    let mut object = object.clone();
    object.unset(&["status"]);
    for field in METADATA {
        object.unset(&["metadata", field]);
    }
    for name in ANNOTATIONS {
        object.unset(&["metadata", "annotations", name]);
    }
    match kind.resource.0 {
        "pods" => {
            object.unset(&["spec", "nodeName"]);
        }
        "persistentvolumeclaims" => {
            object.unset(&["spec", "volumeName"]);
        }
        "namespaces" => {
            object.unset(&["spec", "finalizers"]);
        }
        "jobs.batch" if object.value_at(&["spec", "manualSelector"]) != Some(&Value::Bool(true)) => {
            object.unset(&["spec", "selector"]);
            for label in JOB_LABELS {
                object.unset(&["spec", "template", "metadata", "labels", label]);
                object.unset(&["metadata", "labels", label]);
            }
        }
        _ => {}
    }
    let protections =
        [persistent_volume_claim::PROTECTION, persistent_volume::PROTECTION, persistent_volume::PROVISIONER_FINALIZER];
    protections.into_iter().for_each(|finalizer| object.remove_finalizer(finalizer));
    object
}

/// Returns an object as a manifest for any cluster: also without addresses of this cluster, and without annotations of commands.
pub fn make_portable(object: &Object, kind: &Kind) -> Object {
    let mut object = strip_server_fields(object, kind);
    for name in [LAST_APPLIED, manifest_folder::ANNOTATION] {
        object.unset(&["metadata", "annotations", name]);
    }
    manifest_folder::remove(&mut object);
    if kind.resource.0 == "services" && object.text(&["spec", "clusterIP"]) != Some("None") {
        object.unset(&["spec", "clusterIP"]);
        object.unset(&["spec", "clusterIPs"]);
    }
    if object.value_at(&["metadata", "annotations"]).and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
        object.unset(&["metadata", "annotations"]);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    fn stripped(resource: &str, object: Value) -> Value {
        make_portable(&Object(object), kinds::by_name(resource).unwrap()).0
    }

    #[test]
    fn portable_objects_have_no_fields_of_the_server() {
        let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "1", "annotations": {LAST_APPLIED: "{}"}});
        let service = json!({"metadata": metadata, "spec": {"clusterIP": "127.1.1.1", "ports": []}, "status": {}});
        assert_eq!(stripped("services", service), json!({"metadata": {"name": "a"}, "spec": {"ports": []}}));
        let labels = json!({"controller-uid": "u", "app": "a"});
        let job =
            json!({"metadata": {"name": "a"}, "spec": {"selector": {}, "template": {"metadata": {"labels": labels}}}});
        let expected = json!({"metadata": {"name": "a"}, "spec": {"template": {"metadata": {"labels": {"app": "a"}}}}});
        assert_eq!(stripped("jobs", job), expected);
        let claim = json!({"metadata": {"name": "a", "finalizers": ["kubernetes.io/pvc-protection"]}, "spec": {"volumeName": "v"}});
        assert_eq!(stripped("persistentvolumeclaims", claim), json!({"metadata": {"name": "a"}, "spec": {}}));
    }
}
