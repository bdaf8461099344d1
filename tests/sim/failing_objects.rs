//! C17: an object that can never converge slows down no other and is retried with growing back-off; a constant writer blocks no other
//! object.

use super::scene::Scene;
use super::workloads::SOUND;
use kloop::controllers::replicaset;
use kloop::object::{Key, Time};
use kloop::reconcile::loops;
use kloop::reconcile::simulate::SimulatedTick;
use kloop::world::{Loop, Plan, World};
use serde_json::{Value, json};

/// Number of valid Deployments, and of Deployments whose pods are all refused.
const MANY: usize = 10;

fn deployment(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": SOUND[0]}]}}},
    })
}

/// Returns a namespace that admits no pod.
fn closed() -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "closed"}}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": "closed"},
            "spec": {"hard": {"pods": "0"}}}),
    ]
}

/// Makes an idle cluster with the closed namespace.
fn scene() -> Scene {
    let mut scene = Scene::new(3, loops::all_loops());
    closed().into_iter().for_each(|body| scene.apply(body));
    assert!(scene.calm(60), "the cluster does not settle");
    scene
}

/// Ticks and delivers reports until every Deployment of the default namespace has its pods; returns the time. Calls `meddle` before each
/// tick.
fn time_until_available(scene: &mut Scene, mut meddle: impl FnMut(&mut Scene)) -> i64 {
    let start = scene.sim.now();
    for _ in 0..5000 {
        meddle(scene);
        let ticked = scene.tick(None);
        scene.look();
        let rows = scene.invariants.world.list_in("deployments.apps", "default");
        let lacks = |object: &kloop::object::Object| object.int(&["status", "availableReplicas"]) != Some(3);
        if !rows.map(|row| row.object()).any(|object| lacks(&object)) {
            return scene.sim.now().duration_since(start).as_millis() as i64;
        }
        while !scene.sim.mail.is_empty() {
            scene.deliver(0);
        }
        if ticked == SimulatedTick::Quiet {
            let pause = scene.sim.pause().expect("pending work");
            scene.sim.pass(pause.max(jiff::SignedDuration::from_millis(1)));
        }
    }
    panic!("the Deployments do not become available");
}

#[test]
fn refused_plan_slows_no_other() {
    let run = |poisoned: bool| {
        let mut scene = scene();
        for number in 0..MANY {
            if poisoned {
                scene.apply(deployment("closed", &format!("a{number}")));
            }
            scene.apply(deployment("default", &format!("b{number}")));
        }
        time_until_available(&mut scene, |_| {})
    };
    let (alone, beside) = (run(false), run(true));
    assert!(beside * 10 <= alone * 11, "{beside} ms with refused pods, {alone} ms alone");
}

#[test]
fn refused_plan_is_retried_with_growing_back_off() {
    let mut scene = scene();
    scene.apply(deployment("closed", "a"));
    assert!(scene.calm(3600), "the cluster is endlessly busy");
    let is_try = |line: &&String| line.contains(" closed/a-") && line.contains(": refused: ");
    let moment = |line: &String| line.split_whitespace().next().unwrap().parse::<Time>().expect("a time");
    let tries: Vec<i64> = scene.story.iter().filter(is_try).map(|line| moment(line).as_second()).collect();
    let pauses: Vec<i64> = tries.windows(2).map(|pair| pair[1] - pair[0]).filter(|pause| *pause > 1).collect();
    assert!(pauses.len() >= 5, "the plan is retried: {tries:?}");
    let grows = |pair: &[i64]| pair[1] >= 2 * pair[0] - 1 || pair[1] >= 600;
    assert!(pauses.windows(2).all(grows), "each back-off is twice the previous one: {pauses:?}");
}

#[test]
fn refused_plan_is_retried_at_once_after_a_relevant_change() {
    let mut scene = scene();
    scene.apply(deployment("closed", "a"));
    assert!(scene.calm(3600), "the cluster is endlessly busy");
    let mut quota = closed()[1].clone();
    quota["spec"]["hard"]["pods"] = json!("3");
    scene.apply(quota);
    assert!(scene.calm(5), "the cluster is endlessly busy");
    let set =
        scene.invariants.world.list_in("deployments.apps", "closed").next().expect("the ReplicaSet exists").object();
    assert_eq!(set.int(&["status", "replicas"]), Some(3), "{:?}", set.0["status"]);
}

#[test]
fn constant_writer_blocks_no_other_object() {
    let run = |storm: bool| {
        let mut scene = scene();
        scene.apply(deployment("default", "b"));
        let mut count = 0;
        time_until_available(&mut scene, |scene| {
            count += 1;
            if storm {
                let mut body = deployment("default", "b");
                body["metadata"]["labels"] = json!({"written": count.to_string()});
                scene.apply(body);
            }
        })
    };
    let (alone, beside) = (run(false), run(true));
    assert!(beside * 10 <= alone * 11, "{beside} ms with a constant writer, {alone} ms alone");
}

/// Plans for ReplicaSets; panics for Deployments called `poison`.
fn panicking(world: &World, key: &Key) -> Plan {
    assert!(!key.name.starts_with("poison"), "poisoned by {}", key.name);
    (replicaset::LOOP.plan)(world, key)
}

static PANICKING: Loop = Loop { plan: panicking, ..replicaset::LOOP };

#[test]
fn plan_that_panics_is_contained_and_backed_off() {
    let swapped = |each: &'static Loop| if each.name == PANICKING.name { &PANICKING } else { each };
    let mut scene = Scene::new(3, loops::all_loops().into_iter().map(swapped).collect());
    for name in ["poison", "b", "c"] {
        scene.apply(deployment("default", name));
    }
    assert!(scene.calm(600), "the cluster is endlessly busy");
    let available = |name: &str| {
        let key = scene.invariants.world.list_in("deployments.apps", "default").find(|row| *row.key.name == *name);
        key.and_then(|row| row.object().int(&["status", "availableReplicas"]))
    };
    assert_eq!(["poison", "b", "c"].map(available), [None, Some(3), Some(3)]);
    let is_panic = |line: &&String| line.contains("internal error: poisoned by poison-");
    let moment = |line: &String| line.split_whitespace().next().unwrap().parse::<Time>().expect("a time");
    let tries: Vec<i64> = scene.story.iter().filter(is_panic).map(|line| moment(line).as_millisecond()).collect();
    assert!((5..30).contains(&tries.len()), "the back-off grows: {tries:?}");
    let pauses: Vec<i64> = tries.windows(2).map(|pair| pair[1] - pair[0]).filter(|pause| *pause > 1000).collect();
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "each back-off is longer: {pauses:?}");
    let events: Vec<_> = scene.invariants.world.list("events").map(|row| row.object()).collect();
    let told = events.iter().filter(|event| event.text(&["reason"]) == Some("InternalError")).collect::<Vec<_>>();
    assert!(
        told.iter().all(|event| event.text(&["message"]).is_some_and(|text| text.contains("poisoned by poison-"))),
        "{told:?}"
    );
    assert_eq!(told.len(), 1, "one event reports it");
}
