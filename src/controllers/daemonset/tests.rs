//! DaemonSets end to end.

use crate::controllers::testing::{Cluster, cluster};
use serde_json::{Value, json};

const AGENT: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, annotations: {deprecated.daemonset.template.generation: '1'}}
spec:
  revisionHistoryLimit: 10
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: 'a:1'}]}}
";

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// `node=image` of every pod, by node.
fn pods(cluster: &Cluster) -> String {
    let mut lines: Vec<String> = Vec::new();
    for row in cluster.world.list("pods") {
        let pod = row.object();
        let image = pod.0["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
        lines.push(format!("{}={image}", super::placement::node_of(row).unwrap_or_default()));
    }
    lines.sort();
    lines.join(" ")
}

#[test]
fn daemon_set_runs_one_pod_on_every_node_that_fits() {
    for seed in 0..6 {
        let mut cluster = cluster(AGENT).seeded(seed);
        cluster.settle();
        assert_eq!(pods(&cluster), "a=a:1 b=a:1");
        let wanted = json!({"currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberAvailable": 2,
            "numberMisscheduled": 0, "numberReady": 2, "observedGeneration": 1, "updatedNumberScheduled": 2});
        assert_eq!(cluster.value("daemonsets.apps", "agent", "/status"), wanted);
        cluster.add("{apiVersion: v1, kind: Node, metadata: {name: c, labels: {disk: ssd}}}");
        cluster.settle();
        assert_eq!(pods(&cluster), "a=a:1 b=a:1 c=a:1");
        cluster.patch(
            "daemonsets.apps",
            "agent",
            json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}),
        );
        cluster.settle();
        assert_eq!(pods(&cluster), "c=a:1");
    }
}

#[test]
fn taints_prevent_or_evict_daemon_pods() {
    let mut cluster = cluster(AGENT);
    cluster.settle();
    cluster.patch("nodes", "a", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
    cluster.settle();
    assert_eq!(pods(&cluster), "a=a:1 b=a:1");
    let pod = cluster.world.pods_on("a").next().unwrap().key.name.to_string();
    cluster.delete("pods", &pod, Default::default());
    cluster.settle();
    assert_eq!(pods(&cluster), "b=a:1");
    cluster.patch("nodes", "b", json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}));
    cluster.settle();
    assert_eq!(pods(&cluster), "");
    cluster.patch("nodes", "a", json!({"spec": {"taints": [], "unschedulable": true}}));
    cluster.settle();
    assert_eq!(pods(&cluster), "a=a:1");
}

#[test]
fn rolling_update_stays_within_its_bounds() {
    for (strategy, least, most) in
        [(json!({"maxUnavailable": 1, "maxSurge": 0}), 1, 2), (json!({"maxUnavailable": 0, "maxSurge": 1}), 2, 3)]
    {
        for seed in 0..8 {
            let mut cluster = cluster(AGENT).seeded(seed);
            cluster.patch("daemonsets.apps", "agent", json!({"spec": {"updateStrategy": {"rollingUpdate": strategy}}}));
            cluster.settle();
            cluster.check = Box::new(move |world| {
                let active = world.list("pods").filter(|pod| pod.is_active_pod());
                let (all, ready) =
                    active.fold((0, 0), |(all, ready), pod| (all + 1, ready + usize::from(pod.pod().unwrap().ready)));
                assert!(ready >= least && all <= most, "{ready} of {all}");
            });
            cluster.patch("daemonsets.apps", "agent", image("a:2"));
            cluster.settle();
            assert_eq!(pods(&cluster), "a=a:2 b=a:2", "seed {seed}");
            assert_eq!(cluster.count("controllerrevisions.apps"), 2);
        }
    }
}

#[test]
fn on_delete_strategy_waits_for_deletion() {
    let mut cluster = cluster(AGENT);
    cluster.settle();
    let on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});
    cluster.patch("daemonsets.apps", "agent", on_delete);
    cluster.patch("daemonsets.apps", "agent", image("a:2"));
    cluster.settle();
    assert_eq!(pods(&cluster), "a=a:1 b=a:1");
    assert_eq!(cluster.value("daemonsets.apps", "agent", "/status/updatedNumberScheduled"), Value::Null);
    let pod = cluster.world.pods_on("a").next().unwrap().key.name.to_string();
    cluster.delete("pods", &pod, Default::default());
    cluster.settle();
    assert_eq!(pods(&cluster), "a=a:2 b=a:1");
}

#[test]
fn repeatedly_failing_pod_is_recreated_with_growing_backoff() {
    let mut cluster = cluster(AGENT);
    cluster.settle();
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let pod = cluster.world.pods_on("a").next().unwrap().clone();
        let mut failed = pod.object();
        failed.set(&["status", "phase"], "Failed");
        cluster.write_status(failed);
        cluster.settle();
        let start = cluster.world.now;
        while cluster.world.get(&pod.key).is_some() {
            cluster.pass(1);
        }
        pauses.push(cluster.world.now.as_second() - start.as_second());
        cluster.settle();
    }
    assert_eq!(pauses, [0, 1, 2, 4, 8]);
    assert!(cluster.logged("event: FailedDaemonPod Found failed daemon pod"));
}

#[test]
fn rolling_update_does_not_wait_for_a_node_that_takes_no_pods() {
    let mut cluster = cluster(AGENT);
    cluster.add("{apiVersion: v1, kind: Node, metadata: {name: c}, spec: {taints: [{key: k, effect: NoSchedule}]}}");
    cluster.settle();
    cluster.patch("daemonsets.apps", "agent", image("a:2"));
    cluster.settle();
    assert_eq!(pods(&cluster), "a=a:2 b=a:2");
}

#[test]
fn recreated_daemon_set_adopts_its_orphaned_pods_and_revisions() {
    let mut cluster = cluster(AGENT);
    cluster.settle();
    let uids = |cluster: &Cluster| -> Vec<String> {
        let rows = cluster.world.list("pods").chain(cluster.world.list("controllerrevisions.apps"));
        rows.map(|row| row.uid.to_string()).collect()
    };
    let before = uids(&cluster);
    cluster.delete("daemonsets.apps", "agent", crate::world::Propagation::Orphan);
    cluster.settle();
    cluster.add(AGENT);
    cluster.settle();
    assert_eq!(uids(&cluster), before);
    let owner = cluster.object("daemonsets.apps", "agent").uid().to_owned();
    for row in cluster.world.list("pods").chain(cluster.world.list("controllerrevisions.apps")) {
        assert_eq!(row.controller().map(|owner| owner.uid.to_string()), Some(owner.clone()), "{}", row.key);
    }
    assert!(cluster.value("daemonsets.apps", "agent", "/status/collisionCount").is_null());
}

#[test]
fn surge_removes_the_pods_of_nodes_that_take_no_new_pods() {
    let surge = json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}});
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    for (unready, left) in [(None, "b=a:2"), (Some("a"), "b=a:2"), (Some("b"), "a=a:1 b=a:1 b=a:2")] {
        let mut cluster = cluster(AGENT);
        cluster.patch("daemonsets.apps", "agent", surge.clone());
        cluster.settle();
        cluster.patch("nodes", "a", taint.clone());
        if let Some(node) = unready {
            let mut pod = cluster.world.pods_on(node).next().unwrap().object();
            pod.set(&["status", "conditions"], vec![json!({"type": "Ready", "status": "False"})]);
            cluster.write_status(pod);
            // New pods become ready only when the pod on this node is not the last available one.
            cluster.kubelet = node == "a";
        }
        cluster.patch("daemonsets.apps", "agent", image("a:2"));
        cluster.settle();
        assert_eq!(pods(&cluster), left, "{unready:?} is not ready");
        cluster.kubelet = true;
        cluster.settle();
        assert_eq!(pods(&cluster), "b=a:2", "{unready:?} was not ready");
    }
}

#[test]
fn pods_without_a_node_and_bound_pods_of_a_missing_node_are_left_alone() {
    let mut cluster = cluster(AGENT);
    cluster.settle();
    let labels = cluster.value("daemonsets.apps", "agent", "/spec/selector/matchLabels");
    cluster.kubelet = false;
    for (name, spec) in [("adopted", json!({"nodeSelector": {"no": "where"}})), ("lost", json!({"nodeName": "gone"}))] {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c"}]);
        cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec,
        }));
    }
    cluster.settle();
    for pod in ["adopted", "lost"] {
        assert_eq!(cluster.value("pods", pod, "/metadata/ownerReferences/0/kind"), "DaemonSet");
        assert!(cluster.value("pods", pod, "/metadata/deletionTimestamp").is_null(), "{pod}");
    }
}

#[test]
fn pod_that_is_being_deleted_counts_as_available_while_it_is_ready() {
    let mut cluster = cluster(AGENT);
    cluster.settle();
    cluster.kubelet = false;
    let pod = cluster.world.pods_on("a").next().unwrap().key.name.to_string();
    cluster.delete("pods", &pod, Default::default());
    cluster.settle();
    assert_eq!(cluster.value("daemonsets.apps", "agent", "/status/numberAvailable"), 2);
    assert!(cluster.value("daemonsets.apps", "agent", "/status/numberUnavailable").is_null());
}
