//! A driver of the simulated machine for the tests of the kubelet: it commits plans, carries out their effects, and delivers, loses or
//! repeats reports. It has its own clock.

use super::LOOP;
use crate::kinds::shared::probe_handler::ProbeHandler;
use crate::kinds::shared::process_ids;
use crate::object::{Key, Object, Resource, Str, Time};
use crate::runtime::Host;
use crate::runtime::simulated::SimulatedMachine;
use crate::world::limits::Limits;
use crate::world::volume::Volume;
use crate::world::{
    ContainerFacts, ContainerState, Effect, NodeFacts, Plan, PlannedEvent, ProbeKind, ProbeResult, Report, Start,
    World, WriteVerb,
};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Behaviour of a container.
#[derive(Clone, Copy, Debug)]
pub enum ContainerBehaviour {
    /// Runs until it is stopped, and ends at once then.
    Stay,
    /// Runs, and ends only by SIGKILL.
    Stubborn,
    /// Runs for this number of seconds and ends with a code.
    Exit(i64, i32),
    /// Runs, and reacts neither to stops nor to probes.
    Unresponsive,
    /// Is refused for a reason.
    Refuse(&'static str),
}

/// The machine, the store, and the shell between them.
pub struct TestMachine {
    /// The World.
    pub world: World,
    /// Log of the run, as `second event`.
    pub log: Vec<String>,
    /// Events in order.
    pub events: Vec<PlannedEvent>,
    /// Starts as they were ordered.
    pub starts: Vec<Start>,
    /// Number of status writes.
    pub writes: usize,
    /// Renewed volumes as they were ordered, with the second.
    pub refreshes: Vec<(i64, Arc<[Volume]>)>,
    /// Resizes as they were ordered.
    pub resizes: Vec<Limits>,
    /// Early probes that failed, by the millisecond at which they were ordered.
    pub early_failures: Vec<i128>,
    behaviours: BTreeMap<String, ContainerBehaviour>,
    probes: BTreeMap<String, ProbeResult>,
    /// The machine behind it.
    machine: SimulatedMachine,
    /// Reports that are delivered again.
    repeated: Vec<Report>,
    /// Exits that the recorded history already contains: pod, container, attempt.
    ended: BTreeSet<(Str, Str, u32)>,
    /// Number of the next orders to lose.
    pub lost_orders: usize,
}

/// Second 0 of every test.
pub fn zero() -> Time {
    Time::from_second(1_700_000_000).unwrap()
}

/// The key of a pod.
pub fn key(name: &str) -> Key {
    Key::new(Resource("pods"), "default", name)
}

/// A pod `p` with this spec, bound to the node `n`.
pub fn pod(spec: Value) -> Value {
    named("p", spec)
}

/// A pod with this spec, bound to the node `n`.
pub fn named(name: &str, mut spec: Value) -> Value {
    spec["nodeName"] = "n".into();
    json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
        "name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1,
        "creationTimestamp": "2023-11-14T22:13:20Z", "labels": {"app": "web"}, "annotations": {"note": "x y"},
    }})
}

impl TestMachine {
    /// A machine with one pod.
    pub fn new(pod: Value) -> TestMachine {
        let mut world = World::new(zero());
        world.facts.inventory_complete = true;
        world.facts.nodes.insert("n".into(), NodeFacts { ours: true, ..NodeFacts::default() });
        let mut machine = TestMachine {
            world,
            log: Vec::new(),
            events: Vec::new(),
            starts: Vec::new(),
            writes: 0,
            refreshes: Vec::new(),
            resizes: Vec::new(),
            early_failures: Vec::new(),
            behaviours: BTreeMap::new(),
            probes: BTreeMap::new(),
            machine: SimulatedMachine::new(),
            repeated: Vec::new(),
            ended: BTreeSet::new(),
            lost_orders: 0,
        };
        machine.put("pods", pod);
        machine
    }

    /// Makes a machine whose node is simulated.
    pub fn simulated(pod: Value) -> TestMachine {
        let mut machine = TestMachine::new(pod);
        machine.world.facts.nodes.get_mut("n").unwrap().is_simulated = true;
        machine
    }

    /// Puts an object into the store.
    pub fn put(&mut self, resource: &'static str, object: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(Resource(resource), &text("namespace"), &text("name"));
        self.world.put(key, object.to_string().into());
    }

    /// Sets the behaviour of a container.
    pub fn set_behaviour(&mut self, container: &str, behaviour: ContainerBehaviour) -> &mut TestMachine {
        self.behaviours.insert(container.into(), behaviour);
        self
    }

    /// Sets the result of the probes of a kind, such as `liveness`.
    pub fn probe(&mut self, kind: &str, ok: bool) -> &mut TestMachine {
        self.verdict(kind, if ok { ProbeResult::Success } else { ProbeResult::Failure })
    }

    /// Sets the result of probes of a kind from now on.
    pub fn verdict(&mut self, kind: &str, verdict: ProbeResult) -> &mut TestMachine {
        self.probes.insert(kind.into(), verdict);
        self
    }

    /// Seconds since the beginning.
    pub fn second(&self) -> i64 {
        self.world.now.duration_since(zero()).as_secs()
    }

    /// The pod `p` as it is stored.
    pub fn pod(&self) -> Object {
        self.world.get(&key("p")).expect("the pod lives").object()
    }

    /// Its status.
    pub fn status(&self) -> Value {
        self.pod().0["status"].clone()
    }

    /// A container's status, init containers included.
    pub fn container(&self, name: &str) -> Value {
        let status = self.status();
        let all = ["containerStatuses", "initContainerStatuses"];
        let mut all = all.iter().flat_map(|list| status[*list].as_array().cloned().unwrap_or_default());
        all.find(|one| one["name"] == name).unwrap_or_default()
    }

    /// The pod with the status that is to be written.
    pub fn with_status(&self, status: &Object) -> Object {
        let mut pod = self.pod();
        pod.set(&["status"], status.0["status"].clone());
        pod
    }

    /// A condition: `True`, or its reason.
    pub fn condition(&self, kind: &str) -> String {
        let status = self.status();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|one| one["type"] == kind).cloned().unwrap_or_default();
        match found["status"].as_str() {
            Some("True") => "True".into(),
            _ => found["reason"].as_str().unwrap_or("False").into(),
        }
    }

    /// `phase state-of-each-container`, with restarts.
    pub fn summary(&self) -> String {
        let status = self.status();
        let containers = ["initContainerStatuses", "containerStatuses"].iter().flat_map(|list| {
            status[*list].as_array().cloned().unwrap_or_default().into_iter().map(|one| {
                let (state, detail) = one["state"].as_object().unwrap().iter().next().unwrap();
                let word = detail["reason"].as_str().unwrap_or(state).to_owned();
                let restarts = one["restartCount"].as_i64().unwrap();
                let ready = if one["ready"] == true { "+" } else { "" };
                format!("{}{ready}={word}/{restarts}", one["name"].as_str().unwrap())
            })
        });
        let containers: Vec<String> = containers.collect();
        format!("{} {}", status["phase"].as_str().unwrap_or("-"), containers.join(" "))
    }

    /// Reasons of the events so far.
    pub fn reasons(&self) -> Vec<&str> {
        self.events.iter().map(|event| &*event.reason).collect()
    }

    /// Returns the log since the last call.
    pub fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// Deletes the pod as the API server does.
    pub fn delete(&mut self, grace: i64) {
        let mut pod = self.pod();
        let end = self.world.now + SignedDuration::from_secs(grace);
        pod.set(&["metadata", "deletionTimestamp"], crate::object::time::rfc3339(end));
        pod.set(&["metadata", "deletionGracePeriodSeconds"], grace);
        self.put("pods", pod.0);
    }

    /// The control plane loses sight of everything on the machine, and all of it has ended.
    pub fn reboot(&mut self) {
        let uids: Vec<Str> = self.world.facts.pods.iter().map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.world.facts.pods.remove(&uid);
        }
        self.machine = SimulatedMachine::new();
        self.repeated.clear();
    }

    /// Restarts the control plane, which then knows only what the shims report.
    pub fn restart(&mut self) {
        let uids: Vec<Str> = self.world.facts.pods.iter().map(|(uid, _)| uid.clone()).collect();
        let mut inventory = self.machine.inventory();
        for uid in uids {
            let mut pod = self.world.facts.pods.remove(&uid).unwrap();
            let kept = inventory.remove(&uid).map(|pod| pod.containers).unwrap_or_default().into_iter();
            let kept = kept.map(|(name, known)| (name, ContainerFacts::new(known.attempt, known.state)));
            pod.containers = kept.collect();
            if !pod.containers.is_empty() {
                self.world.facts.pods.insert(uid, pod);
            }
        }
    }

    /// Delivers every report that is on its way now, and twice.
    pub fn deliver_reports_twice(&mut self) {
        let soon = self.machine.due(self.world.now);
        self.repeated.extend(soon.iter().cloned().chain(soon.iter().cloned()));
    }

    /// A container's process ends by itself now.
    pub fn end_now(&mut self, container: &str, code: i32) {
        self.machine.end(self.world.now, "uid-p", container, code);
    }

    /// Delivers the report of an attempt's end again, or one of an attempt that never ran.
    pub fn repeat(&mut self, container: &str, attempt: u32) {
        let (pod_uid, container) = (Str::from("uid-p"), Str::from(container));
        let inventory = self.machine.inventory();
        let known = inventory.get(&pod_uid).and_then(|pod| pod.containers.get(&container));
        let ended =
            |known: &&ContainerFacts| known.attempt == attempt && matches!(known.state, ContainerState::Ended(_));
        if let Some(state) = known.filter(ended).map(|known| known.state.clone()) {
            self.repeated.push(Report::Container { pod_uid, container, attempt, state });
        }
    }

    /// Reports that are due are lost.
    pub fn lose_reports(&mut self) {
        for report in self.due() {
            self.note(&report);
        }
    }

    /// Plans and acts until nothing is left to do now. Gives the last plan.
    pub fn settle(&mut self) -> Plan {
        let mut settled: Option<Plan> = None;
        for _ in 0..100 {
            let due = self.due();
            settled = settled.filter(|_| due.is_empty());
            due.into_iter().for_each(|report| self.report(report));
            let plan = (LOOP.plan)(&self.world, &key("p"));
            if let Some(before) = settled {
                assert!(plan.is_empty() && plan.wake == before.wake, "it was not settled by {before:#?}: {plan:#?}");
            }
            settled = plan.is_settled.then(|| plan.clone());
            assert_eq!(plan, (LOOP.plan)(&self.world, &key("p")), "equal worlds give equal plans");
            if plan.is_empty() {
                assert!(plan.events.is_empty(), "an event without a change: {:?}", plan.events);
                return plan;
            }
            self.carry_out(plan);
        }
        panic!("it does not settle: {:#?}", (LOOP.plan)(&self.world, &key("p")));
    }

    /// Lets time pass up to a second, stopping wherever something is due.
    pub fn run_to(&mut self, second: i64) {
        let end = zero() + SignedDuration::from_secs(second);
        loop {
            let plan = self.settle();
            let next =
                [plan.wake, self.machine.next_event_time()].into_iter().flatten().min().filter(|next| *next <= end);
            match next {
                Some(next) => self.world.now = next.max(self.world.now),
                None => break,
            }
        }
        self.world.now = end;
        self.settle();
    }

    /// Takes in the reports that are due.
    pub fn deliver(&mut self) {
        for report in self.due() {
            self.report(report);
        }
    }

    /// The reports that are due, with the results of probes that a test has set.
    fn due(&mut self) -> Vec<Report> {
        let mut due = std::mem::take(&mut self.repeated);
        due.extend(self.machine.due(self.world.now));
        for report in &mut due {
            if let Report::Probe { kind, verdict, message, .. } = report {
                *verdict = self.probe_result(*kind);
                *message = if *verdict == ProbeResult::Success { String::new() } else { "no".to_owned() };
            }
        }
        due
    }

    fn probe_result(&self, kind: ProbeKind) -> ProbeResult {
        let name = format!("{kind:?}").to_lowercase();
        self.probes.get(&name).copied().unwrap_or(ProbeResult::Success)
    }

    /// A report reaches the control plane.
    pub fn report(&mut self, report: Report) {
        self.note(&report);
        self.world.facts.apply_report(report);
    }

    /// Records an exit once, whether or not its report is delivered.
    fn note(&mut self, report: &Report) {
        if let Report::Container { pod_uid, container, attempt, state: ContainerState::Ended(end) } = report
            && end.started.is_some()
            && self.ended.insert((pod_uid.clone(), container.clone(), *attempt))
        {
            self.log.push(format!("{} {container} ends {}", self.second(), end.code));
        }
    }

    fn carry_out(&mut self, plan: Plan) {
        for write in plan.writes {
            self.commit(write.verb);
        }
        self.events.extend(plan.events);
        plan.memory.iter().for_each(|memory| self.world.remember(memory));
        for effect in plan.effects {
            self.world.note_order(&effect);
            match self.lost_orders.checked_sub(1) {
                Some(left) => self.lost_orders = left,
                None => self.effect(effect),
            }
        }
    }

    fn commit(&mut self, verb: WriteVerb) {
        match verb {
            WriteVerb::Status(object) => {
                let mut stored = self.world.get(&key("p")).expect("a status is written of a living pod").object();
                let before = stored.clone();
                stored.set(&["status"], object.0["status"].clone());
                let ids = ["metadata", "annotations", process_ids::ANNOTATION];
                match object.value_at(&ids) {
                    Some(Value::Null) => drop(stored.unset(&ids)),
                    Some(value) => stored.set(&ids, value.clone()),
                    None => {}
                }
                assert_ne!(before, stored, "a write changes something");
                self.writes += 1;
                self.put("pods", stored.0);
            }
            WriteVerb::Delete { key, uid, grace, .. } => {
                let row = self.world.get(&key).unwrap();
                assert_eq!((&*row.uid, grace), (&*uid, Some(0)));
                if row.finalizers.is_empty() {
                    self.world.remove(&key);
                } else {
                    let mut object = row.object();
                    object.set(&["metadata", "deletionGracePeriodSeconds"], 0);
                    self.put("pods", object.0);
                }
                self.log.push(format!("{} deleted", self.second()));
            }
            WriteVerb::Attempt { .. } => {}
            other => panic!("a kubelet does not {other:?}"),
        }
    }

    fn effect(&mut self, mut effect: Effect) {
        let second = self.second();
        match &mut effect {
            Effect::Start(start) => {
                // The test controls the behaviour of a container, as the program does on a real machine.
                start.script = None;
                self.prepare_start(start);
            }
            Effect::Stop { container, grace_seconds, .. } => {
                self.log.push(format!("{second} stop {container} in {grace_seconds}"));
                match self.behaviours.get(&**container) {
                    Some(ContainerBehaviour::Unresponsive) => return,
                    Some(ContainerBehaviour::Stubborn) => {
                        self.machine.settings.ignores_stop_signal.insert(container.clone())
                    }
                    _ => self.machine.settings.ignores_stop_signal.remove(container),
                };
            }
            Effect::Remove { pod_uid } => self.log.push(format!("{second} remove {pod_uid}")),
            Effect::Resize { container, attempt, limits, .. } => {
                let cpu = limits.container.cpu_milli;
                self.log.push(format!("{second} resize {container}#{attempt} {cpu:?}"));
                self.resizes.push(Limits::clone(limits));
            }
            Effect::WatchStorage { pod_uid, bounds } => self.log.push(format!("{second} watch {pod_uid} {bounds:?}")),
            Effect::Refresh { pod_uid, volumes, .. } => {
                self.log.push(format!("{second} refresh {pod_uid} {volumes:?}"));
                self.refreshes.push((second, volumes.clone()));
            }
            Effect::Probe(probe) => {
                let is_ok = self.probe_result(probe.kind) == ProbeResult::Success;
                let (kind, result) = (format!("{:?}", probe.kind).to_lowercase(), if is_ok { "ok" } else { "fails" });
                match probe.counts_from {
                    Some(_) if !is_ok => self.early_failures.push(self.world.now.duration_since(zero()).as_millis()),
                    _ => self.log.push(format!("{second} {kind} {result}")),
                }
                let sleeps = matches!(probe.handler, Some(ProbeHandler::Sleep(_)));
                if sleeps || matches!(self.behaviours.get(&*probe.container), Some(ContainerBehaviour::Unresponsive)) {
                    return;
                }
            }
            _ => {}
        }
        self.machine.carry_out(self.world.now, &effect);
        assert!(self.machine.clashes.is_empty(), "a start while another attempt lives: {:?}", self.machine.clashes);
    }

    /// Records a start that is new to the machine, and sets how its container behaves.
    fn prepare_start(&mut self, start: &Start) {
        let inventory = self.machine.inventory();
        let known = inventory.get(&start.pod_uid).and_then(|pod| pod.containers.get(&start.container));
        let is_refused = |known: &ContainerFacts| matches!(known.state, ContainerState::Refused { .. });
        if known
            .is_none_or(|known| known.attempt < start.attempt || known.attempt == start.attempt && is_refused(known))
        {
            self.log.push(format!("{} start {}#{}", self.second(), start.container, start.attempt));
            self.starts.push(start.clone());
        }
        let (refused, exits) = (&mut self.machine.settings.refused_images, &mut self.machine.settings.exits);
        refused.clear();
        exits.clear();
        match self.behaviours.get(&*start.container) {
            Some(ContainerBehaviour::Refuse(reason)) => {
                refused.insert(start.image.clone(), (reason.to_string(), "write it otherwise".to_owned()));
            }
            Some(ContainerBehaviour::Exit(seconds, code)) => {
                exits.insert(start.image.clone(), (*seconds, *code));
            }
            _ => {}
        }
    }
}
