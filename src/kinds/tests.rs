//! Tests of the rules for statuses, and of other changes of objects.

use super::testing::status_refusals;
use super::{Kind, by_kind};
use crate::object::Object;
use serde_json::{Value, json};

/// The errors of the status `after` of an object that had the status `before`.
fn refusals(api_version: &str, kind: &str, before: &Value, after: &Value) -> String {
    let body = json!({"apiVersion": api_version, "kind": kind});
    status_refusals(body, &json!({"status": before}), &json!({"status": after})).join("; ")
}

#[test]
fn statuses_of_workloads_have_consistent_counts() {
    const NEGATIVE: &str = "must be greater than or equal to 0";
    let all = "cannot be greater than status.replicas";
    let cases = [
        (
            "apps/v1",
            "Deployment",
            json!({"replicas": 2, "updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 2}),
            String::new(),
        ),
        ("apps/v1", "Deployment", json!({"replicas": -5}), format!("status.replicas: Invalid value: -5: {NEGATIVE}")),
        (
            "apps/v1",
            "Deployment",
            json!({"replicas": 1, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 3}),
            format!(
                "status.updatedReplicas: Invalid value: 2: {all}; status.readyReplicas: Invalid value: 2: {all}; \
                 status.availableReplicas: Invalid value: 3: {all}; \
                 status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas"
            ),
        ),
        ("apps/v1", "StatefulSet", json!({"replicas": 1, "currentReplicas": 1, "readyReplicas": 1}), String::new()),
        (
            "apps/v1",
            "StatefulSet",
            json!({"replicas": 1, "currentReplicas": 2, "availableReplicas": 1, "observedGeneration": -1}),
            format!(
                "status.observedGeneration: Invalid value: -1: {NEGATIVE}; status.currentReplicas: Invalid value: 2: {all}; \
                 status.availableReplicas: Invalid value: 1: cannot be greater than status.readyReplicas"
            ),
        ),
        ("apps/v1", "DaemonSet", json!({"numberReady": 3, "desiredNumberScheduled": 2}), String::new()),
        (
            "apps/v1",
            "DaemonSet",
            json!({"numberReady": -1, "numberAvailable": -2}),
            format!(
                "status.numberReady: Invalid value: -1: {NEGATIVE}; status.numberAvailable: Invalid value: -2: {NEGATIVE}"
            ),
        ),
        (
            "apps/v1",
            "ReplicaSet",
            json!({"replicas": 1, "fullyLabeledReplicas": 2, "readyReplicas": -1}),
            format!(
                "status.readyReplicas: Invalid value: -1: {NEGATIVE}; status.fullyLabeledReplicas: Invalid value: 2: {all}; \
                     status.availableReplicas: Invalid value: 0: cannot be greater than readyReplicas"
            ),
        ),
        (
            "v1",
            "ReplicationController",
            json!({"replicas": 1, "readyReplicas": 2}),
            format!("status.readyReplicas: Invalid value: 2: {all}"),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"currentReplicas": -1, "desiredReplicas": -2}),
            format!(
                "status.currentReplicas: Invalid value: -1: {NEGATIVE}; status.desiredReplicas: Invalid value: -2: {NEGATIVE}"
            ),
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            json!({"disruptionsAllowed": -1, "expectedPods": 2}),
            format!("status.disruptionsAllowed: Invalid value: -1: {NEGATIVE}"),
        ),
    ];
    for (api_version, kind, status, problems) in cases {
        assert_eq!(refusals(api_version, kind, &json!({}), &status), problems, "{kind} {status}");
    }
}

/// A body as it is stored at its creation.
fn stored(body: &Value) -> Value {
    let kind = by_kind(body["apiVersion"].as_str().unwrap(), body["kind"].as_str().unwrap()).unwrap();
    (kind.normalize)(body, &mut |_| {}).unwrap()
}

#[test]
fn empty_lists_and_maps_are_not_stored() {
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "spec": {"ingress": [{"from": [], "ports": []}], "egress": [{"to": [], "ports": []}]}});
    let spec = &stored(&policy)["spec"];
    assert_eq!((&spec["ingress"], &spec["egress"]), (&json!([{}]), &json!([{}])));
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "h",
        "overhead": {"podFixed": {}}, "scheduling": {"nodeSelector": {}, "tolerations": []}});
    let class = stored(&class);
    assert_eq!((&class["overhead"], &class["scheduling"]), (&json!({}), &json!({})));
    let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "webhooks": [{"name": "a", "clientConfig": {"caBundle": ""}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]});
    assert_eq!(stored(&hooks)["webhooks"][0]["clientConfig"], json!({}));
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [], "affinity": affinity, "schedulingGroup": {}}});
    let spec = stored(&pod)["spec"].clone();
    let terms =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!((terms, &spec["schedulingGroup"]), (&json!([{}]), &Value::Null));
}

#[test]
fn times_of_node_conditions_are_stored_as_null() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "spec": {"configSource": {}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let node = stored(&node);
    let condition = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": null, "lastTransitionTime": null});
    assert_eq!((&node["status"]["conditions"][0], &node["spec"]["configSource"]), (&condition, &Value::Null));
}

#[test]
fn count_of_collisions_does_not_fall() {
    let problem = |count: i32| format!("status.collisionCount: Invalid value: {count}: cannot be decremented");
    for kind in ["Deployment", "StatefulSet", "DaemonSet"] {
        let change = |before: Value, after: Value| {
            refusals("apps/v1", kind, &json!({"collisionCount": before}), &json!({"collisionCount": after}))
        };
        assert_eq!(change(json!(null), json!(1)), "");
        assert_eq!(change(json!(2), json!(1)), problem(1));
        assert_eq!(change(json!(2), json!(null)), problem(0));
    }
}

#[test]
fn amounts_of_a_quota_status_are_checked() {
    let status = json!({"hard": {"pods": "1.5", "odd": "1"}, "used": {"pods": "-1", "cpu": "500m"}});
    let found = refusals("v1", "ResourceQuota", &json!({}), &status);
    for problem in [
        "status.hard[pods]: Invalid value: \"1500m\": must be an integer",
        "status.hard[odd]: Invalid value: \"odd\": must be a standard resource for quota",
        "status.used[pods]: Invalid value: \"-1\": must be greater than or equal to 0",
    ] {
        assert!(found.contains(problem), "{found}");
    }
    assert!(!found.contains("cpu"), "{found}");
}

#[test]
fn phase_of_a_namespace_follows_its_deletion() {
    let body =
        |deletion: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"deletionTimestamp": deletion}});
    let phase = |deletion: Value, phase: &str| {
        status_refusals(body(deletion), &json!({}), &json!({"status": {"phase": phase}})).join("; ")
    };
    let now = json!("2026-01-01T00:00:00Z");
    assert_eq!(phase(json!(null), "Active") + &phase(now.clone(), "Terminating"), "");
    assert_eq!(
        phase(json!(null), "Terminating"),
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    );
    assert_eq!(
        phase(now, "Active"),
        "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"
    );
}

#[test]
fn points_of_ingress_are_checked() {
    let ip = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    let service = |kind: &str| json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": kind}});
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"});
    let point = |field: &str, text: &str| {
        (format!("status.loadBalancer.ingress[0].{field}: Invalid value: {text:?}: "), json!({field: text}))
    };
    let (at_ip, bad_ip) = point("ip", "bad");
    let (at_name, address) = point("hostname", "10.0.0.1");
    let mode = "status.loadBalancer.ingress[0].ipMode";
    let only = "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'";
    let cases = [
        (service("LoadBalancer"), json!({"ip": "10.0.0.1"}), String::new()),
        (service("LoadBalancer"), bad_ip.clone(), format!("{at_ip}{ip}")),
        (service("LoadBalancer"), address.clone(), format!("{at_name}must be a DNS name, not an IP address")),
        (
            service("LoadBalancer"),
            json!({"ip": "10.0.0.1", "ipMode": "Odd"}),
            format!("{mode}: Unsupported value: \"Odd\": supported values: \"Proxy\", \"VIP\""),
        ),
        (
            service("LoadBalancer"),
            json!({"hostname": "a.b", "ipMode": "VIP"}),
            format!("{mode}: Forbidden: may not be specified when `ip` is not set"),
        ),
        (service("ClusterIP"), json!({"ip": "10.0.0.1"}), only.to_owned()),
        (ingress.clone(), json!({"ip": "10.0.0.1", "hostname": "a.b"}), String::new()),
        (ingress.clone(), bad_ip.clone(), format!("{at_ip}{ip}")),
        (ingress.clone(), address, format!("{at_name}must be a DNS name, not an IP address")),
    ];
    let status = |point: &Value| json!({"status": {"loadBalancer": {"ingress": [point]}}});
    for (body, point, problems) in cases {
        assert_eq!(status_refusals(body, &json!({}), &status(&point)).join("; "), problems, "{point}");
    }
    for body in [service("LoadBalancer"), ingress] {
        assert_eq!(status_refusals(body, &status(&bad_ip), &json!({})), [""; 0], "a known address may stay");
    }
}

#[test]
fn conditions_of_a_disruption_budget_are_checked() {
    let good = json!({"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let with = |patch: Value| {
        let mut condition = good.clone();
        json_patch::merge(&mut condition, &patch);
        condition
    };
    let at = "status.conditions[0]";
    let cases = [
        (json!([good]), String::new()),
        (json!([good, good]), "status.conditions[1].type: Duplicate value: \"A\"".to_owned()),
        (
            json!([with(json!({"status": "x"}))]),
            format!("{at}.status: Unsupported value: \"x\": supported values: \"False\", \"True\", \"Unknown\""),
        ),
        (json!([with(json!({"reason": ""}))]), format!("{at}.reason: Required value")),
    ];
    for (conditions, problems) in cases {
        let found = refusals("policy/v1", "PodDisruptionBudget", &json!({}), &json!({"conditions": conditions}));
        assert_eq!(found, problems, "{conditions}");
    }
    let odd = refusals(
        "policy/v1",
        "PodDisruptionBudget",
        &json!({}),
        &json!({"conditions": [with(json!({"reason": "a b"}))]}),
    );
    assert!(
        odd.starts_with("status.conditions[0].reason: Invalid value: \"a b\": a condition reason must start with"),
        "{odd}"
    );
}

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
