//! The seeded simulator: whole clusters with every kind of fault, and the invariants that hold nevertheless.
//!
//! `cargo test sim::` runs some seeds. `KLOOP_SIM_SEEDS=N` runs N from `KLOOP_SIM_FROM` on (default 0) and prints the rate;
//! `KLOOP_SIM_SEED=n` replays one and prints its steps. Seeds that ever failed are in `seeds.txt` with their cause.
//! Start reading at [`scene`] (the events), then [`invariants`] (the invariants).

mod changes;
mod crash;
pub mod dice;
mod event_limits;
mod failing_objects;
mod invariants;
mod joined;
mod known_bugs;
mod masked;
mod preempting;
mod scene;
mod workloads;

use kloop::diagnosis::convergence;
use kloop::object::Key;
use kloop::reconcile::loops;
use kloop::store::StoreRead;
use kloop::world::Loop;
use scene::Scene;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Instant;

/// Steps with faults in one run.
const STEPS: usize = 250;

/// Number of seeds that are run twice.
const REPEATED: usize = 5;

/// Seconds in which a cluster has to settle without faults: more than the longest back-off of a loop.
const SETTLE: i64 = 3600;

/// Runs a seed: faults, then none. Returns the hash of its history and the simulated seconds.
fn run(seed: u64, loops: Vec<&'static Loop>, story: &mut Vec<String>) -> (u64, i64) {
    let mut scene = Scene::of_seed(seed, loops);
    let done = catch_unwind(AssertUnwindSafe(|| play(&mut scene)));
    story.append(&mut scene.story);
    if let Err(panic) = done {
        story.push("at the end:".into());
        story.extend(scene.picture());
        std::panic::resume_unwind(panic);
    }
    (scene.invariants.hash.finish(), scene.passed)
}

fn play(scene: &mut Scene) {
    for step in 0..STEPS {
        scene.step();
        if step % 50 == 0 {
            scene.invariants.fold(&scene.sim);
        }
    }
    scene.withdraw_impossible_requests();
    assert!(scene.calm(120), "the cluster is endlessly busy");
    // Deletes objects that lost their owner only now.
    scene.withdraw_impossible_requests();
    settles(scene);
}

/// C1 and C2: without faults the cluster settles, every plan is empty, and ten resyncs write nothing.
fn settles(scene: &mut Scene) {
    assert!(scene.calm(SETTLE), "the cluster does not settle: it is endlessly busy");
    scene.invariants.fold(&scene.sim);
    for each in &scene.sim.plane.loops {
        let world = scene.sim.world();
        for key in world.all_rows().flat_map(|row| (each.concerns)(world, row)) {
            let plan = (each.plan)(world, &key);
            assert!(plan.is_empty(), "{} is not quiet about {key}: {plan:?}", each.name);
        }
    }
    let unmet = convergence::check(scene.sim.world()).unmet;
    let asked = |key: &Key| scene.wanted.contains_key(key);
    let unmet: Vec<_> = unmet
        .into_iter()
        .filter(|one| one.key.resource != "pods" && asked(&one.key) && !may_stay_unmet(&one.why))
        .collect();
    assert!(unmet.is_empty(), "C1: not converged: {unmet:?}");
    scene.invariants.endpoints();
    scene.invariants.tidy();
    event_limits::check_events(scene);
    let known = scene.sim.world();
    let strangers: Vec<_> = scene.sim.machine.pods().filter(|uid| known.by_uid(uid).is_none()).collect();
    assert!(strangers.is_empty(), "processes of deleted pods: {strangers:?}");
    let rows = scene.invariants.rows;
    assert!(scene.calm(6000), "the cluster is endlessly busy");
    assert_eq!(scene.invariants.rows, rows, "C2: the cluster does not stay settled");
}

/// A failed Job correctly stays unmet, and so does a Service whose workload was deleted, or a pod with an ended container.
fn may_stay_unmet(why: &str) -> bool {
    why.starts_with("failed: ") || why.starts_with("no pod has the labels")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Returns the seeds that ever failed.
fn kept() -> Vec<u64> {
    let lines = include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| line.split_whitespace().next().unwrap().parse().expect("a seed")).collect()
}

/// A failed run with its steps.
struct FailedRun {
    seed: u64,
    what: String,
    story: Vec<String>,
}

/// A run that kept the invariants.
struct PassedRun {
    seed: u64,
    /// The hash of its history.
    hash: u64,
    simulated_seconds: i64,
}

/// Runs a seed; the panic of one that fails is caught.
fn attempt(seed: u64, loops: Vec<&'static Loop>) -> Result<PassedRun, FailedRun> {
    let mut story = Vec::new();
    let done = catch_unwind(AssertUnwindSafe(|| run(seed, loops, &mut story)));
    done.map(|(hash, simulated_seconds)| PassedRun { seed, hash, simulated_seconds }).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let what = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default();
        FailedRun { seed, what, story }
    })
}

/// Runs seeds, and reports those that fail, the first with its last steps. A seed that is given twice has to lead to the same history.
fn run_all(seeds: impl Iterator<Item = u64> + Send) {
    let start = Instant::now();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let waiting = Mutex::new(seeds);
    let next = || waiting.lock().expect("no worker panics while it holds the lock").next();
    let work = || std::iter::from_fn(next).map(|seed| attempt(seed, loops::all_loops())).collect::<Vec<_>>();
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|worker| worker.join().expect("panics are caught")).collect()
    });
    let runs = results.len();
    let (mut seconds, mut failed_runs, mut hashes) = (0, Vec::new(), BTreeMap::new());
    for result in results {
        match result {
            Ok(PassedRun { seed, hash, simulated_seconds }) => {
                seconds += simulated_seconds;
                assert_eq!(*hashes.entry(seed).or_insert(hash), hash, "seed {seed} does not determine its run");
            }
            Err(failed_run) => failed_runs.push(failed_run),
        }
    }
    failed_runs.sort_by_key(|failed_run| failed_run.seed);
    let took = start.elapsed().as_secs_f64();
    println!("{runs} seeds in {took:.1} s, {:.1} a second, {} simulated hours", runs as f64 / took, seconds / 3600);
    let Some(first) = failed_runs.first() else { return };
    let tail = &first.story[first.story.len().saturating_sub(25)..];
    println!("the end of seed {}:\n{}", first.seed, tail.join("\n"));
    for FailedRun { seed, what, .. } in &failed_runs {
        println!("seed {seed} (KLOOP_SIM_SEED={seed} replays it): {what}");
    }
    panic!("{} of {runs} seeds failed", failed_runs.len());
}

#[test]
fn seeds_keep_the_invariants_and_determine_their_runs() {
    if let Some(seed) = number("KLOOP_SIM_SEED") {
        let failed_run = attempt(seed, loops::all_loops());
        if let Err(FailedRun { what, story, .. }) = failed_run {
            println!("{}", story.join("\n"));
            panic!("{what}");
        }
        return;
    }
    let from = number("KLOOP_SIM_FROM").unwrap_or(0);
    let seeds = from..from + number("KLOOP_SIM_SEEDS").unwrap_or(16);
    run_all(seeds.clone().chain(seeds.take(REPEATED)));
}

#[test]
fn seeds_that_ever_failed_keep_the_invariants() {
    run_all(kept().into_iter());
}

#[test]
fn new_cluster_settles_and_stays_settled() {
    let mut scene = Scene::new(0, loops::all_loops());
    settles(&mut scene);
    assert!(scene.sim.store().read().unwrap().revision().unwrap() > 0);
}
