//! The bounds for the lists of a pod's spec. They hold for the body of a request already: everything after that costs time per item.
//!
//! Start reading at [`check_body`].

use crate::kinds::{FieldErrors, FieldPath, Kind};
use crate::object::Object;
use k8s_openapi::api::core::v1::PodSpec;

/// Maximum number of containers of each kind, and of volumes. Kubernetes limits them by the size of the object only; here each one costs
/// time under the write lock when the pod starts.
const MAX_PARTS: usize = 1000;

/// The lists.
const LISTS: [&str; 4] = ["volumes", "containers", "initContainers", "ephemeralContainers"];

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
    let count = |list: &str| spec.get(list).and_then(|list| list.as_array()).map_or(0, Vec::len);
    let [first, rest @ ..] = path else { return };
    let place = rest.iter().fold(FieldPath::root(first), |place, field| place.child(field));
    check_counts(LISTS.map(count), &place, errors);
}

/// Refuses too long lists. Returns whether there were any; their items are then not checked.
pub fn has_too_many_parts(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let counts = [
        spec.volumes.as_ref().map_or(0, Vec::len),
        spec.containers.len(),
        spec.init_containers.as_ref().map_or(0, Vec::len),
        spec.ephemeral_containers.as_ref().map_or(0, Vec::len),
    ];
    check_counts(counts, path, errors)
}

fn check_counts(counts: [usize; LISTS.len()], path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let too_long = LISTS.into_iter().zip(counts).filter(|(_, count)| *count > MAX_PARTS);
    too_long.map(|(list, count)| errors.too_many(&path.child(list), count, MAX_PARTS)).count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::{Value, json};

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
}
