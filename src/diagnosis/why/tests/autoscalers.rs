//! Autoscalers that hold their size, and that cannot measure it.

use super::*;

#[test]
fn autoscaler_that_holds_its_size_is_as_wanted() {
    let condition = |kind: &str, status: &str, reason: &str, message: &str, since: &str| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since});
    let (old, new) = ("2026-01-01T00:01:00Z", "2026-01-01T00:09:55Z");
    let able = condition("AbleToScale", "True", "ReadyForNewScale", "m", old);
    let active = condition("ScalingActive", "True", "ValidMetricFound", "m", old);
    let limited = condition("ScalingLimited", "True", "TooFewReplicas", "m", old);
    let silent = |since: &str| {
        let message = "unable to get metrics for resource cpu: no metrics returned from resource metrics API";
        condition("ScalingActive", "False", "FailedGetResourceMetric", message, since)
    };
    let unasked = condition("ScalingActive", "False", "FailedGetResourceMetric", "missing request for cpu", new);
    let off = condition("ScalingActive", "False", "ScalingDisabled", "m", old);
    for (conditions, desired, is_preview, expected) in [
        (vec![&able, &active, &limited], 2, false, ConvergenceState::Converged),
        (vec![&able, &active], 3, false, ConvergenceState::Converging),
        (vec![&able, &off], 2, false, ConvergenceState::Converged),
        (vec![&able, &silent(new)], 2, false, ConvergenceState::Converging),
        (vec![&able, &silent(old)], 2, false, ConvergenceState::Stuck),
        (vec![&able, &silent(old)], 2, true, ConvergenceState::Converged),
        (vec![&able, &unasked], 2, true, ConvergenceState::Stuck),
        (vec![], 0, false, ConvergenceState::Converging),
    ] {
        let scaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
            "status": {"currentReplicas": 2, "desiredReplicas": desired, "conditions": conditions},
        });
        let key = Key::new(crate::object::Resource("horizontalpodautoscalers.autoscaling"), "default", "h");
        let plane = ControlPlaneState { runs: true, is_preview, ..ControlPlaneState::default() };
        let answer = explain(&mut world(&[scaler]), &key, &plane).unwrap();
        assert_eq!(answer.state(), expected, "{answer:#?}");
    }
}

#[test]
fn autoscaler_whose_pods_request_nothing_is_found_before_any_measurement() {
    let message = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API";
    let scaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {
            "maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
        },
        "status": {"currentReplicas": 1, "desiredReplicas": 1, "conditions": [
            {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": message}]},
    });
    for (requests, expected) in
        [(json!({"memory": "1Gi"}), ConvergenceState::Stuck), (json!({"cpu": "1m"}), ConvergenceState::Converged)]
    {
        let containers = json!([{"name": "c", "image": "x", "resources": {"requests": requests}}]);
        let mut pod = pod(json!({"containers": containers}), json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}}));
        pod["metadata"]["labels"] = json!({"app": "d"});
        let status = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1});
        let mut world = world(&[node("True"), scaler.clone(), deployment(json!({}), status), pod]);
        let key = Key::new(crate::object::Resource("horizontalpodautoscalers.autoscaling"), "default", "h");
        let answer = explain(
            &mut world,
            &key,
            &ControlPlaneState { runs: true, is_preview: true, ..ControlPlaneState::default() },
        )
        .unwrap();
        let link = &answer.links[1];
        assert_eq!(link.state, expected, "{answer:#?}");
        if expected == ConvergenceState::Stuck {
            let error = "FailedGetResourceMetric: missing request for cpu in container c of Pod p";
            assert_eq!(link.error.as_deref(), Some(error));
            let next = link.next.as_deref().unwrap_or_default();
            assert!(next.contains("resources.requests.cpu"), "{next}");
        }
    }
}
