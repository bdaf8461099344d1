//! Autoscalers, nodes that are down, claims, probes, and pods that are updated by hand.

use super::*;

#[test]
fn an_autoscaler_that_holds_its_size_is_as_it_was_asked_for() {
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
    for (conditions, desired, pretends, expected) in [
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
        let plane = ControlPlaneState { runs: true, pretends, ..ControlPlaneState::default() };
        let answer = explain(&mut world(&[scaler]), &key, &plane).unwrap();
        assert_eq!(answer.standing(), expected, "{answer:#?}");
    }
}

#[test]
fn an_autoscaler_whose_pods_ask_for_nothing_is_found_before_anybody_has_measured_them() {
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
            &ControlPlaneState { runs: true, pretends: true, ..ControlPlaneState::default() },
        )
        .unwrap();
        let link = &answer.links[1];
        assert_eq!(link.standing, expected, "{answer:#?}");
        if expected == ConvergenceState::Stuck {
            let error = "FailedGetResourceMetric: missing request for cpu in container c of Pod p";
            assert_eq!(link.error.as_deref(), Some(error));
            let next = link.next.as_deref().unwrap_or_default();
            assert!(next.contains("resources.requests.cpu"), "{next}");
        }
    }
}

#[test]
fn a_pod_that_waits_for_a_node_that_is_down_or_cordoned_is_told_which() {
    let named = |name: &str, ready: &str| {
        let mut node = node(ready);
        node["metadata"]["name"] = name.into();
        node["metadata"]["labels"] = json!({"host": name});
        node
    };
    let mut stopped = named("two", "Unknown");
    stopped["metadata"]["annotations"] = json!({"kloop.dev/stopped": "2026-01-01T00:09:00Z"});
    stopped["spec"]["taints"] = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
    let mut cordoned = named("two", "True");
    cordoned["spec"]["unschedulable"] = true.into();
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "", "local": {"path": "/x"},
            "claimRef": {"namespace": "default", "name": "data", "uid": "PersistentVolumeClaim-data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "host", "operator": "In", "values": ["two"]}]}]}},
        },
        "status": {"phase": "Bound"},
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "status": {"phase": "Bound"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "v",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let uses = pod(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}), Value::Null);
    let picky = pod(json!({"nodeSelector": {"host": "two"}}), Value::Null);
    for (objects, expected) in [
        (vec![stopped.clone(), pod(json!({}), Value::Null)], "node/two is not ready"),
        (vec![named("one", "True"), stopped.clone(), picky], "kloop node start two"),
        (
            vec![named("one", "True"), named("three", "True"), cordoned, volume.clone(), claim.clone(), uses.clone()],
            "kloop uncordon two",
        ),
        (vec![named("one", "True"), named("three", "True"), stopped, volume, claim, uses], "kloop node start two"),
    ] {
        let next = ask(&objects, "pod/p", true).next();
        assert!(next.contains(expected), "{expected}: {next}");
    }
}

#[test]
fn a_claim_that_no_node_can_meet_does_not_wait_for_its_pod() {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "status": {"phase": "Pending"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let uses = pod(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}), Value::Null);
    for about in ["persistentvolumeclaim/data", "pod/p"] {
        let answer = ask(&[node("True"), class.clone(), claim.clone(), uses.clone()], about, true);
        assert_eq!(answer.standing(), ConvergenceState::Stuck, "{answer:#?}");
        assert!(answer.next().contains("apply a PersistentVolume of at least 1Gi"), "{}", answer.next());
    }
    let alone = ask(&[node("True"), class, claim], "persistentvolumeclaim/data", true);
    assert_ne!(alone.standing(), ConvergenceState::Stuck, "{alone:#?}");
}

#[test]
fn a_container_that_its_liveness_probe_ends_is_told_so() {
    let probe = json!({"containers": [{"name": "c", "livenessProbe": {"exec": {"command": ["cat", "/x"]}}}]});
    let unhealthy = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1"}, "involvedObject": {"uid": "Pod-p"},
        "reason": "Unhealthy", "message": "Liveness probe failed: no such file", "lastTimestamp": "2026-01-01T00:09:00Z",
    });
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}});
    let next = ask(&[node("True"), pod(probe, waiting), unhealthy], "pod/p", true).next();
    assert!(next.contains("livenessProbe (cat /x)") && next.contains("kloop logs p -c c --previous"), "{next}");
}

#[test]
fn a_pod_that_is_updated_when_it_is_deleted_is_named_and_nothing_is_due() {
    let template = |env: &str| json!({"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": env}]}});
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "StatefulSet-s", "controller": true}]);
    let revision = |number: i64| {
        json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
            "metadata": {"name": format!("s-r{number}"), "ownerReferences": owner},
            "data": {"spec": {"template": template(&number.to_string())}},
        })
    };
    let mut old = pod(json!({}), json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}}));
    old["metadata"] = json!({
        "name": "s-0", "ownerReferences": owner,
        "labels": {"app": "s", "controller-revision-hash": "s-r1", "statefulset.kubernetes.io/pod-name": "s-0"},
    });
    old["status"]["phase"] = "Running".into();
    old["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    old["status"]["containerStatuses"][0]["ready"] = true.into();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "generation": 1},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "s"}}, "updateStrategy": {"type": "OnDelete"},
            "serviceName": "s", "template": template("2"),
        },
        "status": {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1},
    });
    let answer = ask(&[node("True"), set, revision(1), revision(2), old], "statefulset/s", true);
    let link = answer.links.iter().find(|link| link.what == "statefulset/s").unwrap();
    assert_eq!(link.wanted, "1 available");
    let told = "1 pod has an older template (OnDelete); to update one: kloop delete pod s-0";
    assert!(link.more.iter().any(|line| line == told), "{answer:#?}");
}

#[test]
fn a_cron_job_says_when_it_starts_the_next_job() {
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {
            "schedule": "30 9 * * *", "timeZone": "Asia/Kathmandu", "concurrencyPolicy": "Allow",
            "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}},
        },
    });
    let answer = ask(&[cron_job], "cronjob/tick", true);
    assert_eq!(answer.standing(), ConvergenceState::Converged);
    assert_eq!(answer.links[1].seen, "the next Job is due at 2026-01-01T03:45:00Z");
}
