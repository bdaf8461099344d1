//! Preemption: when victims are deleted at once, no other event reports the free room; when they take longer, each preemptor waits for the
//! victims on its own node.

use super::scene::{self, Scene};
use kloop::reconcile::loops;
use serde_json::{Value, json};

fn pod(name: &str, class: Option<&str>, grace: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
        "priorityClassName": class, "terminationGracePeriodSeconds": grace,
        "containers": [{"name": "c", "image": "web", "resources": {"requests": {"cpu": "2"}}}],
    }})
}

#[test]
fn preemptor_is_scheduled_after_its_victims_end() {
    for (rows, grace) in [(1, 0), (500, 0), (1, 30), (500, 30)] {
        let mut scene = Scene::new(0, loops::all_loops());
        scene.sim.budget.rows = rows;
        scene.apply(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}));
        let runs = |scene: &Scene, name: &str| {
            let pod = scene.sim.world().get(&scene::key_of(&pod(name, None, grace))).and_then(|row| row.pod());
            pod.is_some_and(|pod| pod.node.is_some() && pod.ready)
        };
        for name in ["low-1", "low-2"] {
            scene.apply(pod(name, None, grace));
        }
        assert!(scene.calm(60), "the cluster is endlessly busy");
        assert!(["low-1", "low-2"].iter().all(|name| runs(&scene, name)), "{:#?}", scene.picture());
        for name in ["high-1", "high-2"] {
            scene.apply(pod(name, Some("urgent"), grace));
        }
        // Long before the periodic flush of unschedulable pods.
        assert!(scene.calm(60), "the cluster is endlessly busy");
        assert!(["high-1", "high-2"].iter().all(|name| runs(&scene, name)), "{:#?}", scene.picture());
    }
}
