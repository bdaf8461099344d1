//! Rollouts end to end, in many orders, with the bounds checked at every step.

use crate::controllers::testing::{Cluster, cluster};
use crate::world::{Propagation, World};
use serde_json::{Value, json};

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {kubernetes.io/change-cause: first}}
spec:
  replicas: 4
  progressDeadlineSeconds: 600
  revisionHistoryLimit: 10
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: 'nginx:1'}]}}
";

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// `image replicas revision` of every ReplicaSet, by revision.
fn sets(cluster: &Cluster) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    for row in cluster.world.list("replicasets.apps") {
        let object = row.object();
        let image = object.0.pointer("/spec/template/spec/containers/0/image").unwrap().as_str().unwrap().to_owned();
        let revision = object.annotation("deployment.kubernetes.io/revision").unwrap_or("?").to_owned();
        lines.push((revision.clone(), format!("{image}:{}@{revision}", object.int(&["spec", "replicas"]).unwrap())));
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join(" ")
}

fn available(world: &World) -> usize {
    world.list("pods").filter(|pod| pod.is_active_pod() && pod.is_available_pod(0, world.now)).count()
}

fn active(world: &World) -> usize {
    world.list("pods").filter(|pod| pod.is_active_pod()).count()
}

#[test]
fn new_deployment_becomes_available() {
    let mut cluster = cluster(WEB);
    cluster.settle();
    assert_eq!(sets(&cluster), "nginx:1:4@1");
    let status = cluster.value("deployments.apps", "web", "/status");
    for (name, count) in [("replicas", 4), ("updatedReplicas", 4), ("readyReplicas", 4), ("availableReplicas", 4)] {
        assert_eq!(status[name], count, "{name}");
    }
    assert_eq!(status.get("unavailableReplicas"), None);
    assert_eq!(status["terminatingReplicas"], 0);
    assert_eq!(
        cluster.conditions("deployments.apps", "web"),
        "Available=True MinimumReplicasAvailable, Progressing=True NewReplicaSetAvailable"
    );
    assert_eq!(cluster.object("deployments.apps", "web").annotation("deployment.kubernetes.io/revision"), Some("1"));
    let set = cluster.world.list("replicasets.apps").next().unwrap().object();
    assert_eq!(set.annotation("deployment.kubernetes.io/max-replicas"), Some("5"));
    assert_eq!(set.annotation("kubernetes.io/change-cause"), Some("first"));
    assert!(cluster.logged(&format!("event: ScalingReplicaSet Scaled up replica set {} from 0 to 4", set.name())));
}

#[test]
fn rolling_update_stays_within_its_bounds() {
    for (surge, unavailable, most, least) in
        [("25%", "25%", 5, 3), ("0", "1", 4, 3), ("1", "0", 5, 4), ("100%", "100%", 8, 0), ("0", "0", 4, 3)]
    {
        for seed in 0..12 {
            let mut cluster = cluster(WEB).seeded(seed);
            let value = |text: &str| text.parse::<i64>().map_or(json!(text), |number| json!(number));
            let rolling = json!({"maxSurge": value(surge), "maxUnavailable": value(unavailable)});
            cluster.patch("deployments.apps", "web", json!({"spec": {"strategy": {"rollingUpdate": rolling}}}));
            cluster.settle();
            cluster.check = Box::new(move |world| {
                assert!(active(world) <= most, "{} pods, at most {most}", active(world));
                assert!(available(world) >= least, "{} available, at least {least}", available(world));
            });
            cluster.patch("deployments.apps", "web", image("nginx:2"));
            cluster.settle();
            assert_eq!(sets(&cluster), "nginx:1:0@1 nginx:2:4@2", "seed {seed}");
            assert_eq!(active(&cluster.world), 4);
        }
    }
}

#[test]
fn rollout_converges_after_crashes() {
    for seed in 0..20 {
        let mut cluster = cluster(WEB).seeded(seed);
        cluster.crashes = 6;
        cluster.settle();
        cluster.crashes = 8;
        cluster.patch("deployments.apps", "web", image("nginx:2"));
        cluster.check = Box::new(|world| assert!(active(world) <= 5 && available(world) >= 3));
        cluster.settle();
        assert_eq!(sets(&cluster), "nginx:1:0@1 nginx:2:4@2", "seed {seed}");
    }
}

#[test]
fn returning_to_a_template_raises_its_revision() {
    let mut cluster = cluster(WEB);
    cluster.settle();
    for next in ["nginx:2", "nginx:1", "nginx:2", "nginx:3"] {
        cluster.patch("deployments.apps", "web", image(next));
        cluster.settle();
    }
    assert_eq!(sets(&cluster), "nginx:1:0@3 nginx:2:0@4 nginx:3:4@5");
    let history = |of: &str| {
        let row = cluster.world.list("replicasets.apps").find(|row| row.object().0.to_string().contains(of)).unwrap();
        row.object().annotation("deployment.kubernetes.io/revision-history").map(str::to_owned)
    };
    assert_eq!(history("nginx:1").as_deref(), Some("1"));
    assert_eq!(history("nginx:3"), None);
}

#[test]
fn history_limit_deletes_the_oldest_replicaset() {
    let mut cluster = cluster(WEB);
    cluster.patch("deployments.apps", "web", json!({"spec": {"revisionHistoryLimit": 1}}));
    for next in ["nginx:1", "nginx:2", "nginx:3"] {
        cluster.patch("deployments.apps", "web", image(next));
        cluster.settle();
    }
    assert_eq!(sets(&cluster), "nginx:2:0@2 nginx:3:4@3");
}

#[test]
fn recreate_never_mixes_templates() {
    for seed in 0..10 {
        let mut cluster = cluster(WEB).seeded(seed);
        let recreate = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
        cluster.patch("deployments.apps", "web", recreate);
        cluster.settle();
        cluster.check = Box::new(|world| {
            let images: std::collections::BTreeSet<String> =
                world.list("pods").map(|pod| pod.object().0["spec"]["containers"][0]["image"].to_string()).collect();
            assert!(images.len() <= 1, "{images:?}");
        });
        cluster.patch("deployments.apps", "web", image("nginx:2"));
        cluster.settle();
        assert_eq!(sets(&cluster), "nginx:1:0@1 nginx:2:4@2");
    }
}

#[test]
fn paused_deployment_scales_but_does_not_roll() {
    let mut cluster = cluster(WEB);
    cluster.settle();
    cluster.patch("deployments.apps", "web", json!({"spec": {"paused": true}}));
    cluster.patch("deployments.apps", "web", image("nginx:2"));
    cluster.patch("deployments.apps", "web", json!({"spec": {"replicas": 6}}));
    cluster.settle();
    assert_eq!(sets(&cluster), "nginx:1:6@1");
    assert!(cluster.conditions("deployments.apps", "web").contains("Progressing=Unknown DeploymentPaused"));
    cluster.patch("deployments.apps", "web", json!({"spec": {"paused": false}}));
    cluster.settle();
    assert_eq!(sets(&cluster), "nginx:1:0@1 nginx:2:6@2");
    assert!(cluster.conditions("deployments.apps", "web").contains("Progressing=True NewReplicaSetAvailable"));
}

/// Follows `golden/rollout-stuck`: 4 replicas, a template that never gets ready, then 10 replicas.
#[test]
fn stuck_rollout_times_out_and_scales_in_proportion() {
    let mut cluster = cluster(WEB);
    cluster.settle();
    cluster.patch(
        "deployments.apps",
        "web",
        json!({"spec": {"template": {"metadata": {"annotations": {"fake/ready": "false"}}}}}),
    );
    cluster.settle();
    assert_eq!(sets(&cluster), "nginx:1:3@1 nginx:1:2@2");
    assert!(cluster.conditions("deployments.apps", "web").contains("Progressing=True ReplicaSetUpdated"));
    cluster.pass(601);
    assert_eq!(
        cluster.conditions("deployments.apps", "web"),
        "Available=True MinimumReplicasAvailable, Progressing=False ProgressDeadlineExceeded"
    );
    assert_eq!(cluster.value("deployments.apps", "web", "/status/unavailableReplicas"), 2);
    cluster.patch("deployments.apps", "web", json!({"spec": {"replicas": 10}}));
    cluster.settle();
    assert_eq!(sets(&cluster), "nginx:1:8@1 nginx:1:5@2");
    let max =
        |row: &crate::world::Row| row.object().annotation("deployment.kubernetes.io/max-replicas").map(str::to_owned);
    assert!(cluster.world.list("replicasets.apps").all(|row| max(row).as_deref() == Some("13")));
    cluster.patch("deployments.apps", "web", json!({"spec": {"template": {"metadata": {"annotations": null}}}}));
    cluster.settle();
    assert_eq!(sets(&cluster), "nginx:1:0@2 nginx:1:10@3");
}

#[test]
fn min_ready_seconds_delay_a_rollout() {
    let mut cluster = cluster(WEB);
    cluster.patch("deployments.apps", "web", json!({"spec": {"minReadySeconds": 30}}));
    cluster.settle();
    assert!(cluster.conditions("deployments.apps", "web").contains("Available=False"));
    cluster.pass(29);
    assert_eq!(cluster.value("deployments.apps", "web", "/status/availableReplicas"), Value::Null);
    cluster.pass(2);
    assert_eq!(cluster.value("deployments.apps", "web", "/status/availableReplicas"), 4);
    cluster.patch("deployments.apps", "web", image("nginx:2"));
    cluster.pass(20);
    assert_eq!(sets(&cluster), "nginx:1:3@1 nginx:2:2@2");
    cluster.pass(120);
    assert_eq!(sets(&cluster), "nginx:1:0@1 nginx:2:4@2");
}

#[test]
fn name_collision_leads_to_another_hash() {
    let mut first = cluster(WEB);
    first.settle();
    let name = first.names("replicasets.apps");
    let taken = format!(
        "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {{name: {name}}}\nspec: {{replicas: 0, selector: {{matchLabels: {{x: y}}}}, template: {{metadata: {{labels: {{x: y}}}}}}}}"
    );
    let mut second = cluster(&format!("{taken}\n---\n{WEB}"));
    second.settle();
    assert_eq!(second.count("replicasets.apps"), 2);
    assert_eq!(second.value("deployments.apps", "web", "/status/collisionCount"), 1);
    assert_eq!(active(&second.world), 4);
}

#[test]
fn orphaned_replicaset_is_adopted() {
    let mut cluster = cluster(WEB);
    cluster.settle();
    cluster.delete("deployments.apps", "web", Propagation::Orphan);
    cluster.settle();
    assert_eq!((cluster.count("deployments.apps"), active(&cluster.world)), (0, 4));
    cluster.add(WEB);
    cluster.settle();
    assert_eq!(sets(&cluster), "nginx:1:4@1");
    let owner = cluster.world.list("replicasets.apps").next().unwrap().controller().unwrap().name.clone();
    assert_eq!(owner, "web");
}

#[test]
fn annotation_of_old_clients_rolls_back() {
    let mut cluster = cluster(WEB);
    cluster.settle();
    cluster.patch("deployments.apps", "web", image("nginx:2"));
    cluster.settle();
    let mut roll_back = |revision: &str| {
        let annotations = json!({"deprecated.deployment.rollback.to": revision});
        cluster.patch("deployments.apps", "web", json!({"metadata": {"annotations": annotations}}));
        cluster.settle();
        let deployment = cluster.object("deployments.apps", "web");
        assert_eq!(deployment.annotation("deprecated.deployment.rollback.to"), None, "{revision}");
        let label = deployment.text(&["spec", "template", "metadata", "labels", "pod-template-hash"]);
        assert_eq!(label, None);
        sets(&cluster)
    };
    assert_eq!(roll_back("9"), "nginx:1:0@1 nginx:2:4@2");
    assert_eq!(roll_back("1"), "nginx:2:0@2 nginx:1:4@3");
    assert_eq!(roll_back("3"), "nginx:2:0@2 nginx:1:4@3");
    assert_eq!(roll_back("0"), "nginx:1:0@3 nginx:2:4@4");
    for event in [
        "event: DeploymentRollbackRevisionNotFound Unable to find the revision to rollback to.",
        "event: DeploymentRollback Rolled back deployment \"web\" to revision 1",
        "event: DeploymentRollbackTemplateUnchanged The rollback revision contains the same template as current deployment \"web\"",
        "event: DeploymentRollback Rolled back deployment \"web\" to revision 2",
    ] {
        assert!(cluster.logged(event), "{event}");
    }
}
