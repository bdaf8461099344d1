//! Tests of changes of objects.

use super::{Kind, by_kind};
use crate::object::Object;
use serde_json::{Value, json};

/// The errors of an update of one field of an object.
fn change_refusals(api_version: &str, kind: &str, specs: [&Value; 2]) -> String {
    let kind: &Kind = by_kind(api_version, kind).unwrap();
    let [old, new] = specs.map(|spec| {
        let body = json!({"apiVersion": api_version, "kind": kind.kind, "metadata": {"name": "a"}, "spec": spec});
        Object((kind.normalize)(&body, &mut |field| panic!("{}", field.complaint())).unwrap())
    });
    let errors = (kind.validate)(&new, Some(&old));
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn class_of_a_load_balancer_stays() {
    let service = |kind: &str, class: Value| json!({"type": kind, "ports": [{"port": 80}], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "loadBalancerClass": class});
    let (balancer, other) = (service("LoadBalancer", json!("a.b/c")), service("ClusterIP", json!(null)));
    let problem = |class: &str| format!("spec.loadBalancerClass: Invalid value: {class}: may not change once set");
    let cases = [
        (&balancer, balancer.clone(), String::new()),
        (&balancer, other.clone(), String::new()),
        (&other, balancer.clone(), String::new()),
        (&balancer, service("LoadBalancer", json!("a.b/d")), problem("\"a.b/d\"")),
        (&balancer, service("LoadBalancer", json!(null)), problem("null")),
        (&service("LoadBalancer", json!(null)), balancer.clone(), problem("\"a.b/c\"")),
    ];
    for (old, new, problems) in cases {
        assert_eq!(change_refusals("v1", "Service", [old, &new]), problems, "{new}");
    }
}

#[test]
fn some_fields_of_a_csi_driver_are_immutable() {
    let cases = [
        (json!({"podInfoOnMount": true}), ""),
        (json!({"attachRequired": false}), "spec.attachedRequired: Invalid value: false: field is immutable"),
        (
            json!({"volumeLifecycleModes": ["Ephemeral"]}),
            "spec.volumeLifecycleModes: Invalid value: [\"Ephemeral\"]: field is immutable",
        ),
    ];
    for (new, problems) in cases {
        assert_eq!(change_refusals("storage.k8s.io/v1", "CSIDriver", [&json!({}), &new]), problems);
    }
}
