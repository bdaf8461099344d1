//! Budgets of disruptions.

use super::*;

fn ready(name: &str, ready: bool) -> Value {
    let mut one = pod(json!({}), json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}}));
    one["metadata"]["name"] = name.into();
    one["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "Deployment-d", "controller": true}]);
    one["status"]["phase"] = "Running".into();
    let status = if ready { "True" } else { "False" };
    one["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
    one
}

#[test]
fn budget_explanation_says_how_many_may_be_disrupted_what_blocks_and_what_to_do() {
    let budget = |spec: Value, counts: [i64; 4], conditions: Value| {
        let [healthy, desired, expected, allowed] = counts;
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "p"}});
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "x", "generation": 1}, "spec": spec,
            "status": {"currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected,
                "disruptionsAllowed": allowed, "observedGeneration": 1, "conditions": conditions},
        })
    };
    let mut owner = deployment(json!({}), json!({"observedGeneration": 1}));
    owner["spec"]["replicas"] = 2.into();
    let base = [node("True"), owner];
    let two = json!({"minAvailable": 2});
    let told = |allowed: bool| {
        let (status, reason) = if allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        json!([{"type": "DisruptionAllowed", "status": status, "reason": reason, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:05:00Z"}])
    };
    let failed = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "found no controller ref",
        "lastTransitionTime": "2026-01-01T00:05:00Z"}]);
    for (case, budget, pods, state, seen, said) in [
        (
            "one may go",
            budget(json!({"maxUnavailable": "50%"}), [2, 1, 2, 1], told(true)),
            vec![ready("a", true), ready("b", true)],
            ConvergenceState::Converged,
            "2 of 2 pods are healthy; 1 more may be evicted",
            "",
        ),
        (
            "as many as there are",
            budget(two.clone(), [2, 2, 2, 0], told(false)),
            vec![ready("a", true), ready("b", true)],
            ConvergenceState::Converged,
            "0 more may be evicted",
            "kloop scale deployment/d --replicas=3), or lower minAvailable 2: kloop edit poddisruptionbudget/x",
        ),
        (
            "the bound is maxUnavailable",
            budget(json!({"maxUnavailable": 0}), [2, 2, 2, 0], told(false)),
            vec![ready("a", true), ready("b", true)],
            ConvergenceState::Converged,
            "0 more may be evicted",
            "until more than 2 are healthy: raise maxUnavailable 0: kloop edit poddisruptionbudget/x",
        ),
        (
            "one is not ready",
            budget(two.clone(), [1, 2, 2, 0], told(false)),
            vec![ready("a", true), ready("b", false)],
            ConvergenceState::Converging,
            "1 of 2 pods are healthy; 0 more may be evicted",
            "pod/b is not ready",
        ),
        (
            "none is meant",
            budget(two.clone(), [0, 2, 0, 0], told(false)),
            vec![],
            ConvergenceState::Converged,
            "spec.selector matches no pods",
            "correct spec.selector: kloop edit poddisruptionbudget/x",
        ),
        (
            "they cannot be counted",
            budget(json!({"maxUnavailable": 1}), [0, 0, 0, 0], failed),
            vec![ready("a", true)],
            ConvergenceState::Stuck,
            "its pods cannot be counted",
            "minAvailable",
        ),
    ] {
        let objects: Vec<Value> = base.iter().cloned().chain(pods).chain([budget]).collect();
        let mut world = world(&objects);
        let key = Key::new(crate::object::Resource("poddisruptionbudgets.policy"), "default", "x");
        let answer =
            explain(&mut world, &key, &ControlPlaneState { runs: true, ..ControlPlaneState::default() }).unwrap();
        let link = &answer.links[1];
        assert_eq!(link.state, state, "{case}: {link:#?}");
        assert!(link.seen.contains(seen), "{case}: {link:#?}");
        let told = format!("{:?} {:?} {:?}", link.next, link.more, link.wanted);
        assert!(told.contains(said), "{case}: {told}");
    }
}
