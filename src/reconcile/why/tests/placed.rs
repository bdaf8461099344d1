//! Tests of remedies for unschedulable pods: each one helps, and its command runs as printed.

use super::*;

fn named(name: &str, cpu: &str, spec: Value) -> Value {
    let mut node = node("True");
    node["metadata"]["name"] = name.into();
    node["metadata"]["labels"] = json!({"kubernetes.io/hostname": name});
    node["status"]["allocatable"]["cpu"] = cpu.into();
    node["spec"] = spec;
    node
}

fn tainted(keys: &[&str]) -> Value {
    let taints = keys.iter().map(|key| json!({"key": key, "value": "x", "effect": "NoSchedule"}));
    json!({"taints": taints.collect::<Vec<_>>()})
}

#[test]
fn only_what_would_really_help_is_proposed_and_by_its_name() {
    let cordoned =
        json!({"unschedulable": true, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]});
    let wants = |cpu: &str, spec: Value| {
        let mut all = json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]});
        json_patch::merge(&mut all, &spec);
        pod(all, Value::Null)
    };
    let none = json!({});
    let bears_team = json!({"tolerations": [{"key": "team", "operator": "Exists"}]});
    let ssd = json!({"nodeSelector": {"disk": "ssd"}});
    for (case, objects, expected, never) in [
        (
            "a taint by its key",
            vec![named("a", "4", tainted(&["dedicated"])), wants("1", none.clone())],
            "take it away: kloop taint node a dedicated-",
            "KEY-",
        ),
        (
            "only the taints that it does not bear",
            vec![named("a", "4", tainted(&["team", "dedicated"])), wants("1", bears_team)],
            "tolerate the taint dedicated=x:NoSchedule in spec.tolerations, or take it away: kloop taint node a dedicated-",
            "team",
        ),
        (
            "not the cordoned ones that are too small as well, although they are more",
            vec![
                named("a", "1", cordoned.clone()),
                named("b", "1", cordoned.clone()),
                named("c", "4", tainted(&["dedicated"])),
                wants("3", none.clone()),
            ],
            "kloop taint node c dedicated-",
            "uncordon",
        ),
        (
            "the cordoned one that is large enough",
            vec![named("a", "1", cordoned.clone()), named("b", "4", cordoned.clone()), wants("3", none.clone())],
            "let b take pods again: kloop uncordon b",
            "uncordon a",
        ),
        (
            "all that one node takes where no single thing helps",
            vec![named("a", "1", tainted(&["dedicated"])), wants("3", none.clone())],
            "node/a is nearest, but takes all of this: tolerate the taint dedicated=x:NoSchedule in spec.tolerations, or take it away: \
             kloop taint node a dedicated-; and ask for less in resources.requests",
            "free",
        ),
        (
            "a larger node where no node is large enough",
            vec![named("a", "1", none.clone()), named("b", "2", none.clone()), wants("3", none.clone())],
            "ask for less in resources.requests, or add a larger node: kloop node add NAME --cpu 3",
            "free",
        ),
        (
            "what has the labels that it asks for, although others would need as little",
            vec![
                named("a", "4", tainted(&["dedicated"])),
                named("b", "4", none.clone()),
                named("c", "4", none.clone()),
                { wants("1", json!({"nodeSelector": {"kubernetes.io/hostname": "a"}})) },
            ],
            "kloop taint node a dedicated-",
            "label",
        ),
        (
            "a node that offers what no flag names",
            vec![named("a", "4", none.clone()), {
                wants(
                    "1",
                    json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}}]}),
                )
            }],
            "apply a Node (kloop.dev/runtime: simulated) with more example.com/gpu in status.capacity",
            "kloop node add",
        ),
        (
            "no new node for who wants to be near somebody who is not there",
            vec![
                named("a", "4", none.clone()),
                wants(
                    "1",
                    json!({"affinity": {"podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "nobody"}}}]}}}),
                ),
            ],
            "run a pod that spec.affinity.podAffinity asks for",
            "node add",
        ),
        (
            "the label over which it is to be spread",
            vec![
                named("a", "4", none.clone()),
                wants(
                    "1",
                    json!({"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "p"}}}]}),
                ),
            ],
            "kloop label node a zone=VALUE",
            "node add",
        ),
        (
            "labels as they are asked for",
            vec![named("a", "4", none.clone()), wants("1", ssd)],
            "kloop label node a disk=ssd",
            "KEY=VALUE",
        ),
        (
            "a node of that name",
            vec![named("a", "4", none.clone()), wants("1", json!({"nodeSelector": {"kubernetes.io/hostname": "b"}}))],
            "kloop node add b",
            "label",
        ),
    ] {
        let next = ask(&objects, "pod/p", true).next();
        assert!(next.contains(expected) && !next.contains(never), "{case}: {next}");
    }
}

#[test]
fn no_other_node_is_proposed_for_the_pod_of_a_daemon_set() {
    let mut daemon =
        pod(json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}]}), Value::Null);
    daemon["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "DaemonSet-d", "controller": true}]);
    daemon["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}}});
    let answer = ask(&[named("a", "4", json!({})), named("b", "2", json!({})), daemon], "pod/p", true);
    assert_eq!(answer.next(), "ask for less in resources.requests");
    let told = "node/a: NodeAffinity: node(s) didn't satisfy plugin(s) [NodeAffinity]";
    assert!(answer.links.iter().flat_map(|link| &link.more).any(|line| line == told), "{answer:#?}");
}

#[test]
fn what_is_told_not_to_be_ready_is_corrected_where_that_is_told() {
    let mut told = pod(json!({}), json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}}));
    told["metadata"]["annotations"] = json!({"kloop.dev/simulate-ready": "false"});
    told["status"]["phase"] = "Running".into();
    told["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "Deployment-d", "controller": true}]);
    let objects = [node("True"), deployment(json!({}), json!({"observedGeneration": 1})), told];
    let key = Key::new(crate::object::Resource("pods"), "default", "p");
    for (pretends, correct) in [(false, "kloop edit deployment/d"), (true, "change the manifest of deployment/d")] {
        let plane = ControlPlaneState { runs: true, pretends, ..ControlPlaneState::default() };
        let next = explain(&mut world(&objects), &key, &plane).unwrap().next();
        assert_eq!(next, format!("its annotation kloop.dev/simulate-ready: \"false\" keeps it: {correct}"));
    }
}
