//! C3: a crash after every single commit of small workloads changes no result. (Sieve: intermediate states.)
//! C4: intermediate manifests do not affect the final state. (Acto: differential and recovery.)

use super::masked::masked;
use super::scene::Scene;
use super::workloads::{CRASHING, DONE, MISSING, SOUND};
use kloop::object::Key;
use kloop::reconcile::loops;
use kloop::world::Propagation;
use serde_json::{Value, json};

/// A user's action.
type Act = fn(&mut Scene);

/// The actions of a run, each after the previous one has settled.
type Script = &'static [Act];

fn web(image: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": image}]}}},
    })
}

fn work() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work", "namespace": "default"},
        "spec": {"completions": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": DONE}]}}},
    })
}

fn forget(scene: &mut Scene, body: &Value, propagation: Propagation) {
    let key: Key = super::scene::key_of(body);
    scene.delete(&key, None, propagation);
}

const SCRIPTS: &[(&str, Script)] = &[
    ("a rollout", &[|scene| scene.apply(web(SOUND[0], 2)), |scene| scene.apply(web(SOUND[1], 2))]),
    (
        "scaling",
        &[
            |scene| scene.apply(web(SOUND[0], 1)),
            |scene| scene.apply(web(SOUND[0], 3)),
            |scene| scene.apply(web(SOUND[0], 0)),
        ],
    ),
    ("a job", &[|scene| scene.apply(work())]),
    (
        "a foreground deletion",
        &[|scene| scene.apply(web(SOUND[0], 2)), |scene| forget(scene, &web(SOUND[0], 2), Propagation::Foreground)],
    ),
    (
        "an orphaning deletion",
        &[|scene| scene.apply(web(SOUND[0], 1)), |scene| forget(scene, &web(SOUND[0], 1), Propagation::Orphan)],
    ),
];

/// Runs a script with a crash after one of its commits. Returns the final state, the number of created pods, and the number of commits.
fn end(script: Script, crash_at: Option<usize>) -> (Vec<String>, usize, usize) {
    let mut scene = Scene::new(1, loops::all_loops());
    scene.sim.budget.rows = 1;
    scene.crash_at = crash_at;
    for act in script {
        act(&mut scene);
        assert!(scene.calm(90), "the cluster does not settle");
    }
    scene.invariants.fold(&scene.sim);
    (masked(scene.sim.world()), scene.invariants.pods_made, scene.busy_ticks)
}

#[test]
fn crash_after_any_commit_changes_no_result() {
    // Testing every commit takes a while; each run of the tests tries some of them, a long run all.
    let every = if super::number("KLOOP_SIM_SEEDS").is_some() { 1 } else { 17 };
    for (name, script) in SCRIPTS {
        let (whole, made, commits) = end(script, None);
        for crash_at in (0..commits).step_by(every) {
            let (torn, torn_made, _) = end(script, Some(crash_at));
            assert_eq!(torn, whole, "{name}, crashed after commit {crash_at}");
            assert_eq!(torn_made, made, "{name}: pods made, crashed after commit {crash_at}");
        }
    }
}

/// The last manifest, and the actions before it.
const PATHS: &[(&str, Act, Script)] = &[
    (
        "other images and sizes",
        |scene| scene.apply(web(SOUND[2], 2)),
        &[|scene| scene.apply(web(SOUND[0], 3)), |scene| scene.apply(web(SOUND[1], 1))],
    ),
    (
        "an image that cannot be had, and back",
        |scene| scene.apply(web(SOUND[0], 2)),
        &[|scene| scene.apply(web(SOUND[0], 2)), |scene| scene.apply(web(MISSING, 2))],
    ),
    (
        "one that crashes, and nothing at all",
        |scene| scene.apply(web(SOUND[1], 1)),
        &[|scene| scene.apply(web(CRASHING, 2)), |scene| forget(scene, &web(CRASHING, 2), Propagation::Background)],
    ),
];

#[test]
fn intermediate_manifests_do_not_affect_the_final_state() {
    for (name, last, way) in PATHS {
        let end = |way: Script| {
            let mut scene = Scene::new(1, loops::all_loops());
            for act in way {
                act(&mut scene);
                assert!(scene.calm(90), "{name}: the cluster does not settle");
            }
            last(&mut scene);
            assert!(scene.calm(900), "{name}: the cluster does not settle");
            masked(scene.sim.world())
        };
        assert_eq!(end(way), end(&[]), "{name}");
    }
}
