//! One run: a cluster, its users, and faults.

use super::dice::Dice;
use super::invariants::Invariants;
use super::workloads::{self, CRASHING, DONE, MISSING, POORLY, SOUND};
use jiff::SignedDuration;
use kloop::apiserver::delete::{DeleteOptions, delete};
use kloop::apiserver::{WriteOptions, apply, create};
use kloop::kinds;
use kloop::object::{Key, Object, Reason, Resource, Status, Time};
use kloop::reconcile::simulate::{SimulatedTick, Simulation, SimulationConfig};
use kloop::runtime::capacity::MachineCapacity;
use kloop::store::InjectedFault;
use kloop::store::StoreRead;
use kloop::world::{Loop, ProbeKind, Propagation};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chance {
    Beat,
    CrashedBeat,
    Deliver,
    DeliverAny,
    DeliverTwice,
    Lose,
    Reconnect,
    NextMoment,
    Seconds,
    Minutes,
    WallClock,
    EndProcess,
    KillShim,
    Restart,
    FullDisk,
    Edit,
    Trouble(InjectedFault),
}

use Chance::*;

const CHANCES: &[(usize, Chance)] = &[
    (40, Beat),
    (4, CrashedBeat),
    (25, Deliver),
    (4, DeliverAny),
    (3, DeliverTwice),
    (2, Lose),
    (2, Reconnect),
    (12, NextMoment),
    (6, Seconds),
    (1, Minutes),
    (1, WallClock),
    (3, EndProcess),
    (1, KillShim),
    (2, Restart),
    (1, FullDisk),
    (5, Edit),
];

/// Additional faults of every third run.
const TROUBLES: &[(usize, Chance)] = &[
    (3, Chance::Trouble(InjectedFault::Busy)),
    (1, Chance::Trouble(InjectedFault::LostCommit)),
    (1, Chance::Trouble(InjectedFault::UnknownCommit)),
];

/// A run.
pub struct Scene {
    pub sim: Simulation,
    pub dice: Dice,
    pub invariants: Invariants,
    /// The users' last manifests.
    pub wanted: BTreeMap<Key, Value>,
    /// Steps so far, for a replay.
    pub story: Vec<String>,
    /// The simulated seconds that have passed.
    pub passed: i64,
    /// The tick after which the control plane crashes, before any of its effects is carried out.
    pub crash_at: Option<usize>,
    /// Ticks so far that wrote something.
    pub busy_ticks: usize,
    /// The number of times that the wall clock was set.
    pub jumps: i64,
    is_full: bool,
    /// Whether the run has the additional workloads and faults of every third run.
    is_harder: bool,
    nodes: usize,
}

/// Returns the start time of every run.
pub fn begin() -> Time {
    "2026-03-01T00:00:00Z".parse().unwrap()
}

/// Returns the machine of the runs.
pub fn machine() -> MachineCapacity {
    MachineCapacity {
        storage: 100 << 30,
        name: "here".into(),
        cpu_milli: 4000,
        memory: 8 << 30,
        pods: 110,
        kernel: "6.0".into(),
        os_image: "Linux".into(),
        architecture: "amd64",
        machine_id: "m".into(),
        boot_id: "b".into(),
        address: std::net::Ipv4Addr::LOCALHOST.into(),
        kubelet_port: 0,
        link_address: None,
    }
}

pub fn key_of(body: &Value) -> Key {
    let object = Object(body.clone());
    let kind = kinds::by_kind(object.api_version(), object.kind()).expect("a known kind");
    kloop::apiserver::rules::names::key_of(kind, &object)
}

impl Scene {
    /// Makes an idle cluster with these loops.
    pub fn new(seed: u64, loops: Vec<&'static Loop>) -> Scene {
        // As in a control plane: it takes less time than the C library's allocator.
        kloop::runtime::allocator::use_mimalloc();
        let plan = SimulationConfig { seed, begin: begin(), node: Some(machine()), backoff_seconds: 10, loops };
        let mut sim = Simulation::new(plan).expect("a simulation");
        let exits = [(CRASHING, (2, 1)), (DONE, (3, 0))];
        sim.machine.settings.exits = exits.into_iter().map(|(image, exit)| (image.to_owned(), exit)).collect();
        let missing = ("ErrImagePull".to_owned(), "no such program".to_owned());
        sim.machine.settings.refused_images.insert(MISSING.into(), missing);
        for kind in [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness] {
            sim.machine.settings.failing_probes.insert((POORLY.into(), kind), "connection refused".into());
        }
        let (dice, invariants) = (Dice::new(seed), Invariants::default());
        let (wanted, story) = (BTreeMap::new(), Vec::new());
        let (crash_at, is_full, is_harder) = (None, false, false);
        Scene {
            sim,
            dice,
            invariants,
            wanted,
            story,
            passed: 0,
            crash_at,
            busy_ticks: 0,
            jumps: 0,
            is_full,
            is_harder,
            nodes: 0,
        }
    }

    /// Makes a run with the workloads, delays and faults of a seed.
    pub fn of_seed(seed: u64, loops: Vec<&'static Loop>) -> Scene {
        let mut scene = Scene::new(seed, loops);
        let milli = |dice: &mut Dice, most| SignedDuration::from_millis(dice.between(0, most));
        let dice = &mut scene.dice;
        scene.sim.machine.settings.start_delay = milli(dice, 1500);
        scene.sim.machine.settings.stop_delay = milli(dice, 3000);
        scene.sim.machine.settings.remove_delay = milli(dice, 500);
        scene.sim.machine.settings.probe_delay = milli(dice, 500);
        scene.sim.budget.rows = *dice.pick(&[1, 2, 5, 500]).unwrap();
        scene.is_harder = seed % 3 == 2;
        for number in 0..dice.between(1, 3) {
            let all = if scene.is_harder { workloads::HARDER } else { workloads::ALL };
            let make = *scene.dice.pick(all).unwrap();
            for body in make(&mut scene.dice, &format!("w{number}")) {
                scene.apply(body);
            }
        }
        scene
    }

    /// Returns the current objects, for the log of steps.
    pub fn picture(&self) -> Vec<String> {
        let told = |resource: &str| {
            !matches!(resource, "events" | "nodes" | "configmaps" | "serviceaccounts" | "priorityclasses")
        };
        let line = |row: &kloop::world::Row| {
            let object = row.object();
            let owner = object.controller().map(|owner| owner.name).unwrap_or_default();
            let replicas = object.value_at(&["spec", "replicas"]).unwrap_or(&Value::Null);
            format!("{} of {owner:?}, replicas {replicas}, status {}", row.key, object.0["status"])
        };
        self.sim.world().all_rows().filter(|row| told(row.key.resource.plural())).map(|row| line(row)).collect()
    }

    /// Logs a step.
    fn log_step(&mut self, line: String) {
        self.story.push(format!("{} {line}", self.sim.now()));
    }

    /// Applies a manifest as a user; it becomes the wanted state.
    pub fn apply(&mut self, body: Value) {
        let object = Object(body.clone());
        let kind = kinds::by_kind(object.api_version(), object.kind()).unwrap();
        self.log_step(format!("user applies {}", body));
        let done = self.sim.write(|txn| apply::apply(txn, kind, &object, true, &WriteOptions::default()));
        // A rollout of only another image must not lose availability.
        let image = "/spec/template/spec/containers/0/image";
        let same_but_image = |mut known: Value| {
            let (Some(old), Some(new)) = (known.pointer_mut(image), body.pointer(image)) else { return false };
            *old = new.clone();
            *new != *CRASHING && known == body
        };
        if !self.wanted.get(&key_of(&body)).cloned().is_some_and(same_but_image) {
            self.invariants.disturbed();
        }
        match done {
            Ok(_) => drop(self.wanted.insert(key_of(&body), body)),
            Err(status) => self.refused(&status),
        }
    }

    /// Deletes an object as a user.
    pub fn delete(&mut self, key: &Key, grace: Option<i64>, propagation: Propagation) {
        let kind = kinds::by_resource(key.resource).unwrap();
        self.log_step(format!("user deletes {key} {grace:?} {propagation:?}"));
        let options = DeleteOptions { grace, propagation: Some(propagation), ..DeleteOptions::default() };
        self.invariants.user_deletes(key, &self.sim);
        if let Err(status) = self.sim.write(|txn| delete(txn, kind, key, &options).map(|_| ())) {
            self.refused(&status);
        }
    }

    /// Checks that a refusal is one that a user may get: the object or its namespace is being deleted, or the disk is full.
    fn refused(&mut self, status: &Status) {
        self.log_step(format!("refused: {status}"));
        let may = [Reason::NotFound, Reason::AlreadyExists, Reason::Conflict, Reason::Forbidden];
        let full = self.is_full && status.reason == Reason::InternalError;
        let namespace = status.message.contains("because it is being terminated");
        let immutable = status.reason == Reason::Invalid;
        assert!(may.contains(&status.reason) || full || namespace || immutable, "{status:?}");
    }

    /// Runs one step.
    pub fn step(&mut self) {
        let trouble = self.is_harder && self.dice.one_in(25);
        let chance = self.dice.weighted(if trouble { TROUBLES } else { CHANCES });
        self.happens(chance);
        self.look();
    }

    /// Checks every invariant.
    pub fn look(&mut self) {
        self.invariants.look(&self.sim);
    }

    fn happens(&mut self, chance: Chance) {
        match chance {
            Beat => {
                let ticked = self.tick(None);
                let is_told = self.sim.mail.is_empty() && !self.sim.has_lost();
                if ticked == SimulatedTick::Quiet && is_told && self.sim.pause() > Some(SignedDuration::ZERO) {
                    self.look();
                    self.invariants.quiet();
                }
            }
            CrashedBeat => {
                let after = self.dice.below(4);
                self.log_step(format!("crash after {after} effects"));
                self.tick(Some(after));
            }
            Deliver => self.deliver(0),
            DeliverAny => {
                let place = self.dice.below(self.sim.mail.len());
                self.deliver(place);
            }
            DeliverTwice => {
                if let Some(report) = self.sim.mail.front().cloned() {
                    self.sim.mail.push_back(report);
                    self.deliver(0);
                }
            }
            Lose => {
                let place = self.dice.below(self.sim.mail.len());
                self.log_step(format!("lost {:?}", self.sim.mail.get(place)));
                self.sim.lose(place);
            }
            Reconnect => self.sim.reconnect(),
            NextMoment => {
                let pause = self.sim.pause().unwrap_or(SignedDuration::ZERO).min(SignedDuration::from_hours(1));
                self.pass(pause);
            }
            Seconds => {
                let milli = self.dice.between(1, 5000);
                self.pass(SignedDuration::from_millis(milli));
            }
            Minutes => {
                let minutes = self.dice.between(1, 20);
                self.pass(SignedDuration::from_mins(minutes));
            }
            WallClock => {
                let seconds = *self.dice.pick(&[-600, -60, -1, 1, 60, 3600, 86_400]).unwrap();
                self.log_step(format!("the wall clock is set by {seconds} s"));
                self.sim.set_wall_clock(SignedDuration::from_secs(seconds));
                self.jumps += 1;
                self.invariants.disturbed();
            }
            EndProcess => self.end_process(),
            KillShim => {
                let uids: Vec<String> = self.sim.machine.pods().map(|uid| uid.to_string()).collect();
                if let Some(uid) = self.dice.pick(&uids) {
                    self.log_step(format!("the shim of {uid} is killed"));
                    self.sim.kill_shim(uid);
                    self.invariants.disturbed();
                }
            }
            Restart => {
                self.log_step("the control plane restarts".into());
                // With a full disk the control plane could not write its epoch.
                self.full_disk(false);
                self.sim.restart().expect("a restart");
            }
            FullDisk => self.full_disk(!self.is_full),
            Edit => self.edit(),
            Chance::Trouble(trouble) => {
                self.log_step(format!("the store is in trouble: {trouble:?}"));
                self.full_disk(false);
                self.sim.store_mut().inject_fault(Some(trouble));
                self.tick(None);
            }
        }
    }

    fn full_disk(&mut self, full: bool) {
        if full != self.is_full {
            self.is_full = full;
            self.log_step(format!("the disk is {}", if full { "full" } else { "free again" }));
            self.sim.store().pretend_full(full).unwrap();
        }
    }

    pub fn tick(&mut self, crash_after: Option<usize>) -> SimulatedTick {
        if crash_after.is_some() {
            self.full_disk(false);
        }
        let now = self.sim.now();
        let story = &mut self.story;
        let ticked = self.sim.tick(crash_after, |line| {
            let about = line.about.as_ref().map(ToString::to_string).unwrap_or_default();
            story.push(format!("{now}   {} {about}: {}", line.by, line.text));
        });
        let ticked = ticked.unwrap_or_else(|error| panic!("the tick failed: {error:#}"));
        if matches!(ticked, SimulatedTick::Busy | SimulatedTick::Quiet) {
            // C16: a decision is based on the complete current state, including its own last write.
            let head = self.sim.store().read().unwrap().revision().unwrap();
            assert_eq!(self.sim.world().revision, head, "C16: the cached state is older than the store");
        }
        ticked
    }

    pub fn deliver(&mut self, place: usize) {
        if let Some(report) = self.sim.mail.get(place) {
            let line = format!("  machine: {report:?}");
            self.log_step(line);
        }
        self.sim.deliver(place);
    }

    fn pass(&mut self, time: SignedDuration) {
        self.passed += time.as_secs();
        self.sim.pass(time);
    }

    fn end_process(&mut self) {
        let running: Vec<(String, String)> =
            self.sim.machine.running().map(|(uid, name, _)| (uid.to_string(), name.to_string())).collect();
        if let Some((uid, name)) = self.dice.pick(&running).cloned() {
            let code = *self.dice.pick(&[0, 1, 137, 143]).unwrap();
            self.log_step(format!("process {name} of {uid} ends with {code}"));
            self.sim.end(&uid, &name, code);
            self.invariants.disturbed();
        }
    }

    /// Changes a manifest as a user.
    fn edit(&mut self) {
        let wanted: Vec<(Key, Value)> = self.wanted.iter().map(|(key, body)| (key.clone(), body.clone())).collect();
        let Some((key, mut body)) = self.dice.pick(&wanted).cloned() else { return };
        let is_deployment = key.resource == "deployments.apps";
        let has_pods = ["statefulsets.apps", "daemonsets.apps"].contains(&key.resource.0);
        match self.dice.below(12) {
            0..=2 if is_deployment || key.resource == "statefulsets.apps" => {
                body["spec"]["replicas"] = json!(self.dice.between(0, 7));
                self.apply(body);
            }
            3..=5 if is_deployment => {
                let images = [SOUND[0], SOUND[1], SOUND[2], SOUND[0], SOUND[1], CRASHING, MISSING];
                let image = *self.dice.pick(&images).unwrap();
                body["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
                self.apply(body);
            }
            3..=5 if has_pods => {
                let image = *self.dice.pick(&SOUND).unwrap();
                body["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
                self.apply(body);
            }
            6 if is_deployment => {
                let paused = body["spec"]["paused"] == true;
                body["spec"]["paused"] = json!(!paused);
                self.apply(body);
            }
            7 => {
                let propagation = self.propagation();
                self.delete(&key, None, propagation);
                self.wanted.remove(&key);
                self.wanted.retain(|other, _| key.resource != "namespaces" || other.namespace != key.name);
                if self.dice.one_in(2) {
                    self.apply(body);
                }
            }
            8 | 9 => {
                let pods: Vec<Key> = self.invariants.world.list("pods").map(|row| row.key.clone()).collect();
                if let Some(pod) = self.dice.pick(&pods).cloned() {
                    let grace = *self.dice.pick(&[None, None, Some(0), Some(1), Some(60)]).unwrap();
                    self.delete(&pod, grace, Propagation::Background);
                    self.wanted.remove(&pod);
                }
            }
            10 => self.relabel(),
            11 if key.resource == "configmaps" => self.add_child(&key),
            _ if self.nodes < 2 => {
                self.nodes += 1;
                self.apply(workloads::node(&format!("n{}", self.nodes)));
            }
            _ => {}
        }
    }

    fn propagation(&mut self) -> Propagation {
        *self.dice.pick(&[Propagation::Background, Propagation::Foreground, Propagation::Orphan]).unwrap()
    }

    /// Removes the label of a pod that its ReplicaSet selects by.
    fn relabel(&mut self) {
        let pods: Vec<Key> = self
            .invariants
            .world
            .list("pods")
            .filter(|row| row.controller().is_some())
            .map(|row| row.key.clone())
            .collect();
        let Some(key) = self.dice.pick(&pods).cloned() else { return };
        let kind = kinds::by_resource(Resource("pods")).unwrap();
        let change = json!({"metadata": {"labels": {"app": "let-go"}}});
        self.log_step(format!("user relabels {key}"));
        use kloop::apiserver::patch::{PatchType, patch};
        use kloop::apiserver::update::UpdatePart;
        let done = self
            .sim
            .write(|txn| patch(txn, kind, &key, PatchType::Merge, &change, UpdatePart::Main, &WriteOptions::default()));
        if let Err(status) = done {
            self.refused(&status);
        }
        self.invariants.disturbed();
    }

    /// Adds a ConfigMap that another object owns, and may wait for.
    fn add_child(&mut self, owner: &Key) {
        let Some(uid) = self.invariants.world.get(owner).map(|row| row.uid.to_string()) else { return };
        let name = format!("child{}", self.dice.below(1000));
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": &*owner.name, "uid": uid,
            "blockOwnerDeletion": self.dice.one_in(2)});
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": &*owner.namespace,
            "ownerReferences": [reference]}});
        let kind = kinds::by_kind("v1", "ConfigMap").unwrap();
        self.log_step(format!("user creates {name} below {owner}"));
        let done = self.sim.write(|txn| create::create(txn, kind, &Object(body.clone()), &WriteOptions::default()));
        if let Err(status) = done {
            self.refused(&status);
        }
    }

    /// Stops all faults and reduces requests to possible ones. Runs until `seconds` have passed; returns false when the cluster was
    /// endlessly busy.
    pub fn calm(&mut self, seconds: i64) -> bool {
        self.full_disk(false);
        let mut left = SignedDuration::from_secs(seconds);
        let mut ticks = 0;
        loop {
            self.sim.reconnect();
            while !self.sim.mail.is_empty() {
                self.deliver(0);
            }
            let rows = self.invariants.rows;
            let crash = (self.crash_at == Some(self.busy_ticks)).then_some(0);
            let ticked = self.tick(crash);
            self.look();
            self.busy_ticks += usize::from(self.invariants.rows > rows);
            if self.busy_ticks > 0 && crash.is_some() {
                self.crash_at = None;
            }
            ticks += 1;
            if ticks > 20_000 {
                return false;
            }
            if ticked != SimulatedTick::Quiet || !self.sim.mail.is_empty() {
                continue;
            }
            // A machine needs at least some time to answer.
            let pause = self.sim.pause().unwrap_or(left).max(SignedDuration::from_millis(1));
            if left <= SignedDuration::ZERO {
                return true;
            }
            let pause = pause.min(left);
            left -= pause;
            self.pass(pause);
        }
    }

    /// Users withdraw requests that cannot run; pauses of rollouts end.
    pub fn withdraw_impossible_requests(&mut self) {
        self.sim.budget.rows = 500;
        self.full_disk(false);
        for (key, mut body) in self.wanted.clone() {
            if key.resource == "cronjobs.batch" {
                body["spec"]["suspend"] = json!(true);
                self.apply(body);
                continue;
            }
            if key.resource != "deployments.apps" {
                continue;
            }
            self.sim.machine.settings.failing_probes.clear();
            let image = &mut body["spec"]["template"]["spec"]["containers"][0]["image"];
            if !SOUND.iter().any(|sound| *image == *sound) {
                *image = json!(SOUND[0]);
            }
            body["spec"]["paused"] = json!(false);
            self.apply(body);
        }
        let rows: Vec<Key> =
            self.invariants.world.all_rows().filter(|row| row.owners.is_empty()).map(|row| row.key.clone()).collect();
        let left = |key: &Key| ["pods", "replicasets.apps"].contains(&key.resource.0) && !self.wanted.contains_key(key);
        for key in rows.into_iter().filter(left).collect::<Vec<_>>() {
            self.delete(&key, None, Propagation::Background);
        }
        for number in 1..=2 {
            self.nodes = self.nodes.max(number);
            self.apply(workloads::node(&format!("n{number}")));
        }
    }
}
