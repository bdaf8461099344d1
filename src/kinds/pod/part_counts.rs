//! The bounds for the lists of a pod's spec. They hold for the body of a request already: everything after that costs time per item.
//!
//! Start reading at [`check_body`].

use crate::kinds::{FieldErrors, FieldPath, Kind};
use crate::object::Object;
use k8s_openapi::api::core::v1::{PodSpec, VolumeMount};
use serde_json::Value;

/// Maximum number of containers of each kind, of volumes, and of the mounts of a container. Kubernetes limits them by the size of the
/// object only; here each one costs time under the write lock when the pod starts, and each mount a descriptor.
const MAX_PARTS: usize = 1000;

/// Prefix of the volume with the account's token, which admission adds to a pod and mounts in each container. It does not count.
pub const TOKEN_VOLUME: &str = "kube-api-access-";

/// The lists of containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Refuses too long lists in the body of a pod, or of a kind with a pod template; other kinds have none.
pub fn check_body(kind: &Kind, body: &Object, errors: &mut FieldErrors) {
    let path: &[&str] = match kind.resource.0 {
        "pods" => &["spec"],
        "podtemplates" => &["template", "spec"],
        "cronjobs.batch" => &["spec", "jobTemplate", "spec", "template", "spec"],
        "replicationcontrollers" | "jobs.batch" => &["spec", "template", "spec"],
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" => {
            &["spec", "template", "spec"]
        }
        _ => return,
    };
    let Some(spec) = body.value_at(path) else { return };
    let [first, rest @ ..] = path else { return };
    let place = rest.iter().fold(FieldPath::root(first), |place, field| place.child(field));
    let count =
        |object: &Value, name| count_parts(list(object, name).iter().map(|part| part["name"].as_str().unwrap_or("")));
    let mounts = |name| list(spec, name).iter().map(|container| count(container, "volumeMounts"));
    check_counts(count(spec, "volumes"), CONTAINERS.map(|name| (name, mounts(name))), &place, errors);
}

fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Counts volumes or mounts by their names, without one that admission added.
fn count_parts<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    let (count, added) =
        names.fold((0, 0), |(count, added), name| (count + 1, added.max(usize::from(name.starts_with(TOKEN_VOLUME)))));
    count - added
}

/// Refuses too long lists. Returns whether there were any; their items are then not checked.
pub fn has_too_many_parts(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let mounts = |mounts: &Option<Vec<VolumeMount>>| count_parts(mounts.iter().flatten().map(|mount| &*mount.name));
    let ephemeral = spec.ephemeral_containers.as_deref().unwrap_or_default();
    let containers = [&spec.containers[..], spec.init_containers.as_deref().unwrap_or_default()];
    let [main, init] = containers.map(|list| list.iter().map(|one| mounts(&one.volume_mounts)).collect::<Vec<_>>());
    let ephemeral = ephemeral.iter().map(|one| mounts(&one.volume_mounts)).collect();
    let [first, second, third] = CONTAINERS;
    let mounts = [(first, main), (second, init), (third, ephemeral)].map(|(name, list)| (name, list.into_iter()));
    let volumes = count_parts(spec.volumes.iter().flatten().map(|volume| &*volume.name));
    check_counts(volumes, mounts, path, errors)
}

/// Checks the number of volumes, and for each list of containers their number and the number of the mounts of each one.
fn check_counts<I: ExactSizeIterator<Item = usize>>(
    volumes: usize,
    containers: [(&str, I); CONTAINERS.len()],
    path: &FieldPath,
    errors: &mut FieldErrors,
) -> bool {
    let before = errors.0.len();
    if volumes > MAX_PARTS {
        errors.too_many(&path.child("volumes"), volumes, MAX_PARTS);
    }
    for (name, mounts) in containers {
        let path = path.child(name);
        if mounts.len() > MAX_PARTS {
            errors.too_many(&path, mounts.len(), MAX_PARTS);
            continue;
        }
        for (place, count) in mounts.enumerate().filter(|(_, count)| *count > MAX_PARTS) {
            errors.too_many(&path.index(place).child("volumeMounts"), count, MAX_PARTS);
        }
    }
    errors.0.len() > before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    #[test]
    fn lists_of_pods_and_templates_have_a_bound() {
        let text = |resource: &str, count: usize| {
            let spec = json!({"containers": vec![Value::Null; count], "volumes": null});
            let template = json!({"spec": spec});
            let body = json!({
                "spec": {"containers": spec["containers"], "template": template, "jobTemplate": {"spec": {"template": template}}},
                "template": template
            });
            let mut errors = FieldErrors::default();
            check_body(kinds::by_name(resource).unwrap(), &Object(body), &mut errors);
            errors.0.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for (resource, path) in [
            ("pods", "spec"),
            ("podtemplates", "template.spec"),
            ("cronjobs", "spec.jobTemplate.spec.template.spec"),
            ("jobs", "spec.template.spec"),
            ("replicationcontrollers", "spec.template.spec"),
            ("deployments", "spec.template.spec"),
            ("replicasets", "spec.template.spec"),
            ("statefulsets", "spec.template.spec"),
            ("daemonsets", "spec.template.spec"),
        ] {
            assert_eq!(
                text(resource, 1001),
                [format!("{path}.containers: Too many: 1001: must have at most 1000 items")]
            );
            assert_eq!(text(resource, 1000), Vec::<String>::new());
        }
        assert_eq!(text("configmaps", 1001), Vec::<String>::new());
    }

    #[test]
    fn mounts_of_a_container_have_a_bound() {
        let container = |count: usize| {
            let token = json!({"name": "kube-api-access-abcde", "mountPath": "/t"});
            let mounts = [vec![json!({"name": "v", "mountPath": "/v"}); count], vec![token; usize::from(count > 0)]];
            json!({"name": "c", "volumeMounts": mounts.concat()})
        };
        let text = |spec: Value| {
            let (mut body, mut typed) = (FieldErrors::default(), FieldErrors::default());
            check_body(kinds::by_name("pods").unwrap(), &Object(json!({"spec": spec})), &mut body);
            has_too_many_parts(&serde_json::from_value(spec).unwrap(), &FieldPath::root("spec"), &mut typed);
            let texts = |errors: FieldErrors| errors.0.iter().map(ToString::to_string).collect::<Vec<_>>();
            let (body, typed) = (texts(body), texts(typed));
            assert_eq!(body, typed);
            body.join("\n")
        };
        assert_eq!(text(json!({"containers": [container(1000)], "initContainers": [container(1000)]})), "");
        for list in CONTAINERS {
            let mut spec = json!({"containers": []});
            spec[list] = json!([container(0), container(1001)]);
            let refusal = "volumeMounts: Too many: 1001: must have at most 1000 items";
            assert_eq!(text(spec), format!("spec.{list}[1].{refusal}"));
        }
        let tokens = vec![json!({"name": "kube-api-access-abcde", "emptyDir": {}}); 1002];
        let refusal = "spec.volumes: Too many: 1001: must have at most 1000 items";
        assert_eq!(text(json!({"containers": [], "volumes": tokens})), refusal);
    }
}
