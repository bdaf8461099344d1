//! Preview of an apply: runs the real loops over a copy of the state in memory, with a simulated machine and a simulated clock. The
//! original state is never touched.
//!
//! On the simulated machine programs start at once, answer their probes, and end at their stop signal; init containers and the pods of
//! Jobs succeed. Images are resolved on the real machine, so a container that could not start there does not start in the preview.
//! Start reading at [`Preview::new`], then [`Preview::run`].

mod cron_filter;

use super::convergence::unmet;
use super::why::{CauseChain, ControlPlaneState, ConvergenceState, explain};
use crate::apiserver::{Api, Transaction};
use crate::kubelet;
use crate::object::{Key, Object, Str, Time, bug_text, time};
use crate::reconcile::node::{LOCAL, RUNTIME};
use crate::reconcile::simulate::{SimulatedTick, Simulation, SimulationConfig};
use crate::reconcile::{LogLevel, LogLine, loops, store_tail};
use crate::runtime::capacity::MachineCapacity;
use crate::runtime::image::{self, Environment};
use crate::runtime::simulated::SimulatedMachine;
use crate::store::Store;
use crate::world::start::Start;
use crate::world::{AttemptEnd, ContainerFacts, ContainerState, PodFacts, World};
use cron_filter::CronFilter;
use jiff::SignedDuration;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Simulated time in which the copy may finish its pending work before anything is applied.
const HEAD_START: SignedDuration = SignedDuration::from_secs(5);

/// Simulated time that a program takes to start, and to end after its stop signal.
const START_DURATION: SignedDuration = SignedDuration::from_millis(500);
const STOP_DURATION: SignedDuration = SignedDuration::from_millis(200);

/// Maximum number of unconverged objects to examine per step.
const MAX_EXAMINED: usize = 50;

/// Maximum number of ticks; more mean that a loop never settles.
const MAX_TICKS: usize = 200_000;

/// Fixed random seed, so that two previews of one state are equal.
const RANDOM_SEED: u64 = 5;

/// A copy of a cluster that is run forward.
pub struct Preview {
    simulation: Simulation,
    /// The objects before anything was applied.
    before: BTreeMap<Key, Value>,
    /// Objects that were not converged before.
    missing: HashSet<Key>,
    /// Start of the preview in simulated time.
    begin: Time,
}

/// Result of a preview.
#[derive(Debug, Default)]
pub struct PreviewResult {
    /// Simulated time until nothing was left to do, or until the time limit.
    pub took: SignedDuration,
    /// After how long it was stuck, where it is stuck at the end.
    pub stuck: Option<SignedDuration>,
    /// Explanations of the final state of applied objects.
    pub answers: Vec<CauseChain>,
    /// New objects.
    pub created: Vec<Key>,
    /// Objects with changes outside their status.
    pub changed: Vec<Key>,
    /// Deleted objects.
    pub deleted: Vec<Key>,
    /// Number of omitted actions: those of CronJobs that were not applied.
    pub besides: usize,
}

impl PreviewResult {
    /// Convergence of the applied objects.
    pub fn state(&self) -> ConvergenceState {
        self.answers.iter().map(CauseChain::state).max().unwrap_or_default()
    }
}

impl Preview {
    /// A copy of a store, or a new cluster, with this machine as its node unless the copy has nodes of its own and none on it.
    pub fn new(store: Option<&Store>, machine: MachineCapacity, now: Time) -> anyhow::Result<Preview> {
        let mut config = SimulationConfig {
            seed: RANDOM_SEED,
            begin: now,
            node: None,
            backoff_seconds: 10,
            loops: loops::all_loops(),
        };
        let refused = |status: crate::object::Status| anyhow::anyhow!(status.message);
        let api = match store {
            Some(store) => Api::copy_of(&store.read()?, "plan", config.env(1)).map_err(refused)?,
            None => Api::in_memory_with("plan", config.env(1))?,
        };
        let mut world = World::new(now);
        store_tail::load(&api.store().read()?, &mut world)?;
        config.node = local_capacity(&world, machine);
        let mut simulated = SimulatedMachine::new();
        simulated.settings.start_check = Some(failure_of_start);
        (simulated.settings.start_delay, simulated.settings.stop_delay) = (START_DURATION, STOP_DURATION);
        let local = config.node.as_ref().map(|node| node.name.clone());
        for row in world.list("pods") {
            let node = row.pod().and_then(|pod| pod.node.as_deref()).unwrap_or_default();
            let is_local = local.as_deref() == Some(node) || runtime_of(&world, node).as_deref() == Some(LOCAL);
            if is_local {
                simulated.adopt(row.uid.clone(), running(&row.object()));
            }
        }
        let simulation = Simulation::with_cluster(api, simulated, config)?;
        let mut preview = Preview { simulation, before: BTreeMap::new(), missing: HashSet::new(), begin: now };
        preview.advance(HEAD_START, &mut |_, _| {}, &mut |_| false)?;
        preview.before = objects(preview.simulation.world());
        preview.missing = unmet(preview.simulation.world()).into_iter().map(|unmet| unmet.key).collect();
        preview.begin = preview.simulation.now();
        Ok(preview)
    }

    /// Writes to the copy as a user does.
    pub fn write<T>(
        &mut self,
        write: impl FnMut(&mut dyn Transaction) -> crate::apiserver::ApiResult<T>,
    ) -> crate::apiserver::ApiResult<T> {
        self.simulation.write(write)
    }

    /// Runs until these objects and their descendants have converged, or for this simulated time. Logs each action once.
    pub fn run(
        &mut self,
        applied: &[Key],
        until: SignedDuration,
        log: &mut dyn FnMut(SignedDuration, &LogLine),
    ) -> anyhow::Result<PreviewResult> {
        let (begin, mut logged, mut besides) = (self.begin, BTreeSet::new(), 0);
        let cron_filter = RefCell::new(CronFilter::from_world(self.simulation.world(), applied));
        let is_apart = |world: &World, key: &Key| cron_filter.borrow_mut().drives(world, key);
        let mut log = |world: &World, line: &LogLine| {
            let action = (line.by, line.about.clone(), line.text.clone());
            if line.level == LogLevel::Detail || !logged.insert(action) {
                return;
            }
            if line.about.as_ref().is_some_and(|about| is_apart(world, about)) {
                besides += 1;
            } else {
                log(line.at.duration_since(begin), line);
            }
        };
        let (missing, plane) = (self.missing.clone(), simulated_plane());
        let is_new =
            |world: &World, key: &Key| applied.contains(key) || !missing.contains(key) && !is_apart(world, key);
        let mut stuck: Option<Time> = None;
        let mut has_converged = |world: &mut World| {
            let unmet = unmet(world).into_iter().map(|unmet| unmet.key);
            let unmet = unmet.filter(|key| is_new(world, key)).collect::<Vec<_>>();
            let is_stuck =
                |key: &Key| explain(world, key, &plane).is_some_and(|chain| chain.state() == ConvergenceState::Stuck);
            let is_stuck = unmet.iter().take(MAX_EXAMINED).any(is_stuck);
            stuck = is_stuck.then(|| stuck.unwrap_or(world.now));
            unmet.is_empty()
        };
        self.advance(until, &mut log, &mut has_converged)?;
        let took = self.simulation.now().duration_since(begin);
        let answers = explain_affected(&mut self.simulation.plane.world, applied, &is_new);
        let is_stuck = answers.iter().any(|answer| answer.state() == ConvergenceState::Stuck);
        let stuck = is_stuck.then(|| stuck.map_or(took, |since| since.duration_since(begin)));
        let world = self.simulation.world();
        let (before, after) = (&self.before, objects(world));
        let shown = |keys: &mut dyn Iterator<Item = &Key>| keys.filter(|key| !is_apart(world, key)).cloned().collect();
        let created = shown(&mut after.keys().filter(|key| !before.contains_key(key)));
        let changed = after.iter().filter(|(key, body)| before.get(key).is_some_and(|old| old != *body));
        let changed = shown(&mut changed.map(|(key, _)| key));
        let deleted = shown(&mut before.keys().filter(|key| !after.contains_key(key)));
        Ok(PreviewResult { took, stuck, answers, created, changed, deleted, besides })
    }

    /// Moves the clock from one due moment to the next, until everything has converged and no work is pending, or until the time limit.
    fn advance(
        &mut self,
        at_most: SignedDuration,
        log: &mut dyn FnMut(&World, &LogLine),
        has_converged: &mut dyn FnMut(&mut World) -> bool,
    ) -> anyhow::Result<()> {
        let end = self.simulation.now() + at_most;
        for _ in 0..MAX_TICKS {
            while !self.simulation.mail.is_empty() {
                self.simulation.deliver(0);
            }
            let mut lines = Vec::new();
            let ticked = self.simulation.tick(None, |line| lines.push(line.clone()))?;
            lines.iter().for_each(|line| log(self.simulation.world(), line));
            if ticked == SimulatedTick::Busy || !self.simulation.mail.is_empty() {
                continue;
            }
            if has_converged(&mut self.simulation.plane.world) && !self.is_under_way() {
                return Ok(());
            }
            let Some(pause) = self.simulation.pause() else { return Ok(()) };
            let pause = pause.max(SignedDuration::from_millis(1));
            if self.simulation.now() + pause > end {
                self.simulation.pass(end.duration_since(self.simulation.now()).max(SignedDuration::ZERO));
                return Ok(());
            }
            self.simulation.pass(pause);
        }
        anyhow::bail!(bug_text("the loops do not come to rest"))
    }

    /// Whether the machine or a simulated node has work that ends by itself.
    fn is_under_way(&self) -> bool {
        let world = self.simulation.world();
        self.simulation.machine.next_event_time().is_some()
            || world.facts.pods.iter().any(|(_, pod)| pod.removing.is_some())
            || world.list("pods").any(|row| kubelet::has_simulated_work(world, row))
    }
}

fn simulated_plane() -> ControlPlaneState {
    ControlPlaneState { runs: true, is_preview: true, ..ControlPlaneState::default() }
}

/// Explains the applied objects, and each other new object that is stuck for another cause, such as a preempted pod.
fn explain_affected(world: &mut World, applied: &[Key], is_new: &dyn Fn(&World, &Key) -> bool) -> Vec<CauseChain> {
    let plane = simulated_plane();
    let mut answers: Vec<CauseChain> = applied.iter().filter_map(|key| explain(world, key, &plane)).collect();
    let others = unmet(world).into_iter().map(|unmet| unmet.key);
    let others = others.filter(|key| !applied.contains(key) && is_new(world, key)).collect::<Vec<_>>();
    let root = |chain: &CauseChain| chain.root_cause().map(|cause| cause.what.clone());
    for other in others.iter().filter_map(|key| explain(world, key, &plane)) {
        let is_explained = answers.iter().any(|answer| root(answer) == root(&other));
        if other.state() == ConvergenceState::Stuck && !is_explained {
            answers.push(other);
        }
    }
    answers
}

/// This machine as a node: under the name that it has in the copy; as it is when there are no nodes, or when nodes were added that are to
/// run here; not at all when all are others.
fn local_capacity(world: &World, machine: MachineCapacity) -> Option<MachineCapacity> {
    let mut real = world.list("nodes").map(|row| row.object()).filter(|node| node.annotation(RUNTIME).is_none());
    let id = |node: &Object| node.text(&["status", "nodeInfo", "machineID"]).map(str::to_owned);
    let own = real.find(|node| node.name() == machine.name || id(node).as_deref() == Some(&machine.machine_id));
    match own {
        Some(own) => Some(MachineCapacity { name: own.name().to_owned(), ..machine }),
        None => {
            let runs_here = |node: &Str| runtime_of(world, node).as_deref() == Some(LOCAL);
            let is_awaited = world.list("nodes").any(|row| runs_here(&row.key.name));
            (is_awaited || world.count_of("nodes") == 0).then_some(machine)
        }
    }
}

fn runtime_of(world: &World, node: &str) -> Option<String> {
    world.find("nodes", "", node)?.object().annotation(RUNTIME).map(str::to_owned)
}

/// Returns why the real machine could not start this, after the build of its image.
fn failure_of_start(start: &Start) -> Option<(String, String)> {
    let refusal = image::preview_refusal(start, &Environment::inherited())?;
    Some((refusal.reason.to_owned(), refusal.message))
}

/// Facts about a pod's running containers, derived from its status.
fn running(pod: &Object) -> PodFacts {
    let text = |path: &[&str]| Str::from(pod.text(path).unwrap_or_default());
    let known = pod.container_statuses().filter_map(container);
    PodFacts {
        namespace: pod.namespace().into(),
        name: pod.name().into(),
        node: text(&["spec", "nodeName"]),
        ip: text(&["status", "podIP"]),
        containers: known.collect(),
        ..PodFacts::default()
    }
}

fn container(status: &Value) -> Option<(Str, ContainerFacts)> {
    let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
    let ended = [&state["terminated"], last].into_iter().find(|ended| ended.is_object());
    let state = match time::from_json(&state["running"]["startedAt"]) {
        Some(since) => ContainerState::Running { pid: 1, since },
        None => {
            let ended = ended?;
            ContainerState::Ended(AttemptEnd {
                code: ended["exitCode"].as_i64().unwrap_or(0) as i32,
                signal: None,
                reason: ended["reason"].as_str().map(str::to_owned),
                message: ended["message"].as_str().unwrap_or_default().to_owned(),
                started: time::from_json(&ended["startedAt"]),
                finished: time::from_json(&ended["finishedAt"])?,
            })
        }
    };
    let attempt = u32::try_from(status["restartCount"].as_i64()?).ok()?;
    Some((status["name"].as_str()?.into(), ContainerFacts::new(attempt, state)))
}

/// Kinds whose objects change without a change of any manifest.
const CHATTER: [&str; 3] = ["events", "leases.coordination.k8s.io", "nodes"];

/// Every object with the fields that users set: without its status and the API server's own fields.
fn objects(world: &World) -> BTreeMap<Key, Value> {
    let objects = world.all_rows().filter(|row| !CHATTER.contains(&row.key.resource.0)).map(|row| {
        let mut object = row.object();
        for path in [&["status"][..], &["metadata", "resourceVersion"], &["metadata", "generation"]] {
            object.unset(path);
        }
        object.unset(&["metadata", "managedFields"]);
        (row.key.clone(), object.0)
    });
    objects.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::{WriteOptions, create::create};
    use crate::kinds;
    use crate::object::Resource;
    use crate::reconcile::node;
    use crate::store::StoreRead;
    use serde_json::json;

    fn machine() -> MachineCapacity {
        MachineCapacity {
            name: "here".into(),
            cpu_milli: 2000,
            memory: 4 << 30,
            machine_id: "m".into(),
            ..crate::runtime::capacity::measure_capacity(None, std::path::Path::new("/"))
        }
    }

    fn run_preview(store: Option<&Store>, cpu: &str, image: &str) -> PreviewResult {
        let key = Key::new(Resource("deployments.apps"), "default", "web");
        written(store, cpu, image).run(&[key], SignedDuration::from_mins(15), &mut |_, _| {}).unwrap()
    }

    fn written(store: Option<&Store>, cpu: &str, image: &str) -> Preview {
        let mut preview = Preview::new(store, machine(), "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
        let deployment = Object(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}]},
            }},
        }));
        let kind = kinds::by_name("deployments").unwrap();
        preview.write(|txn| create(txn, kind, &deployment, &WriteOptions::default())).unwrap();
        preview
    }

    #[test]
    fn preview_names_objects_that_would_be_made() {
        let result = run_preview(None, "100m", "busybox");
        assert_eq!(result.state(), ConvergenceState::Converged, "{result:#?}");
        let count = |resource: &str| result.created.iter().filter(|key| key.resource == resource).count();
        assert_eq!([count("deployments.apps"), count("replicasets.apps"), count("pods")], [1, 1, 2]);
        assert!(result.deleted.is_empty() && result.took < SignedDuration::from_secs(60), "{result:#?}");
    }

    #[test]
    fn preview_names_objects_that_would_be_stuck() {
        for (cpu, image, cause) in [("100m", "no-such-program-at-all", "container c"), ("50", "busybox", "pod/web")] {
            let result = run_preview(None, cpu, image);
            assert_eq!(result.state(), ConvergenceState::Stuck, "{result:#?}");
            let found = result.answers[0].root_cause().unwrap();
            assert!(found.what.starts_with(cause), "{found:?}");
        }
    }

    #[test]
    fn since_when_it_is_stuck_is_told_and_what_to_change_in_the_manifest() {
        let stuck = run_preview(None, "100m", "no-such-program-at-all");
        let since = stuck.stuck.unwrap();
        assert!(since < SignedDuration::from_secs(60) && stuck.took > since, "{stuck:#?}");
        assert_eq!(run_preview(None, "100m", "busybox").stuck, None);
        let invalid = run_preview(None, "100m", "No/Such:image@x").answers.remove(0);
        let next = invalid.next();
        assert!(next.contains("change the manifest of deployment/web") && !next.contains("pod/"), "{next}");
    }

    #[test]
    fn preview_goes_on_until_pods_of_simulated_nodes_have_ended() {
        let mut api = Api::in_memory("user").unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let node = node::additional(&machine(), node::SIMULATED, now);
        let kind = kinds::by_name("nodes").unwrap();
        api.write(false, |txn| create(txn, kind, &node, &WriteOptions::default()).map(|_| ())).unwrap();
        for (code, state, word) in
            [("0", ConvergenceState::Converged, "Complete"), ("3", ConvergenceState::Stuck, "Failed")]
        {
            let job = Object(json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default"},
                "spec": {"backoffLimit": 0, "template": {
                    "metadata": {"annotations": {"kloop.dev/simulate-exit": code}},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]},
                }},
            }));
            let mut preview = Preview::new(Some(api.store()), machine(), now).unwrap();
            let kind = kinds::by_name("jobs").unwrap();
            preview.write(|txn| create(txn, kind, &job, &WriteOptions::default())).unwrap();
            let key = Key::new(Resource("jobs.batch"), "default", "j");
            let result = preview.run(std::slice::from_ref(&key), SignedDuration::from_mins(15), &mut |_, _| {});
            let result = result.unwrap();
            assert_eq!(result.state(), state, "{result:#?}");
            let ended = preview.simulation.world().get(&key).unwrap().object();
            assert!(ended.has_condition(word), "{ended:?}");
        }
    }

    #[test]
    fn preview_lists_causes_before_their_effects() {
        let mut api = Api::in_memory("user").unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let node = node::additional(&machine(), node::SIMULATED, now);
        let kind = kinds::by_name("nodes").unwrap();
        api.write(false, |txn| create(txn, kind, &node, &WriteOptions::default()).map(|_| ())).unwrap();
        let mut preview = Preview::new(Some(api.store()), machine(), now).unwrap();
        let key = Key::new(Resource("deployments.apps"), "default", "web");
        for command in ["one", "two"] {
            let deployment = Object(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
                "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "busybox", "command": [command]}]},
                }},
            }));
            let kind = kinds::by_name("deployments").unwrap();
            let apply = crate::apiserver::apply::apply;
            preview.write(|txn| apply(txn, kind, &deployment, true, &WriteOptions::default()).map(|_| ())).unwrap();
            let mut steps = Vec::new();
            let mut tell = |_, line: &LogLine| steps.push(line.text.clone());
            preview.run(std::slice::from_ref(&key), SignedDuration::from_mins(15), &mut tell).unwrap();
            let over = steps.iter().position(|text| text.starts_with("rolled out")).expect("a rollout");
            let bound = steps.iter().rposition(|text| text.starts_with("bound to")).expect("pods");
            assert!(bound < over, "{steps:#?}");
        }
    }

    #[test]
    fn preview_leaves_out_jobs_of_cron_jobs() {
        let cron = Object(json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick", "namespace": "default"},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}],
            }}}}},
        }));
        let keys = [("deployments.apps", "web"), ("cronjobs.batch", "tick")];
        let keys = keys.map(|(resource, name)| Key::new(Resource(resource), "default", name));
        let steps = |applied: &[Key]| {
            let mut preview = written(None, "100m", "no-such-program-at-all");
            let kind = kinds::by_name("cronjobs").unwrap();
            preview.write(|txn| create(txn, kind, &cron, &WriteOptions::default())).unwrap();
            preview.run(applied, SignedDuration::from_mins(15), &mut |_, _| {}).unwrap()
        };
        let result = steps(&keys[..1]);
        assert!(result.besides > 30, "{result:#?}");
        assert_eq!((result.answers.len(), result.created.len()), (1, 4), "{result:#?}");
        let result = steps(&keys);
        assert!(result.besides == 0 && result.created.len() > 5, "{result:#?}");
    }

    #[test]
    fn two_previews_of_one_state_are_equal_and_leave_it_alone() {
        let api = Api::in_memory("user").unwrap();
        let before = api.store().read().unwrap().revision().unwrap();
        let one = run_preview(Some(api.store()), "100m", "busybox");
        let other = run_preview(Some(api.store()), "100m", "busybox");
        assert_eq!((one.created, one.took), (other.created, other.took));
        assert_eq!(api.store().read().unwrap().revision().unwrap(), before);
    }

    #[test]
    fn those_who_have_to_make_room_for_good_are_told() {
        let mut preview = Preview::new(None, machine(), "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
        let deployment = |name: &str, class: &str| {
            Object(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
                "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"priorityClassName": class, "containers": [
                        {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1500m"}}}]},
                }},
            }))
        };
        let class = Object(json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
        }));
        let key = |name: &str| Key::new(Resource("deployments.apps"), "default", name);
        let apply = |preview: &mut Preview, resource: &str, object: &Object| {
            let kind = kinds::by_name(resource).unwrap();
            preview.write(|txn| create(txn, kind, object, &WriteOptions::default())).unwrap();
        };
        apply(&mut preview, "priorityclasses", &class);
        apply(&mut preview, "deployments", &deployment("low", ""));
        let ends = preview.run(&[key("low")], SignedDuration::from_mins(1), &mut |_, _| {}).unwrap();
        assert_eq!(ends.state(), ConvergenceState::Converged, "{ends:#?}");
        apply(&mut preview, "deployments", &deployment("top", "high"));
        let ends = preview.run(&[key("top")], SignedDuration::from_mins(2), &mut |_, _| {}).unwrap();
        assert_eq!(ends.state(), ConvergenceState::Stuck, "{ends:#?}");
        let about: Vec<_> = ends.answers.iter().map(|answer| (&*answer.about, answer.state())).collect();
        assert_eq!(
            about,
            [("deployment/top", ConvergenceState::Converged), ("deployment/low", ConvergenceState::Stuck)]
        );
    }
}
