//! A pretended machine for the tests: it commits what the kubelet plans, carries out its effects, and reports under a fake clock.

use super::LOOP;
use crate::kinds::probe_handler::ProbeHandler;
use crate::kinds::process_ids;
use crate::object::{Key, Object, Resource, Str, Time};
use crate::world::limits::Limits;
use crate::world::volume::Volume;
use crate::world::{
    AttemptEnd, ContainerFacts, ContainerState, Effect, NodeFacts, Plan, PlannedEvent, ProbeResult, Report, Start,
    World, WriteVerb,
};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Behaviour of a container.
#[derive(Clone, Copy, Debug)]
pub enum ContainerBehaviour {
    /// Runs until it is stopped, and ends at once then.
    Stay,
    /// Runs, and hears no signal but SIGKILL.
    Stubborn,
    /// Runs for so many seconds and ends with a code.
    Exit(i64, i32),
    /// Runs, and answers nothing any more: neither stops nor probes.
    Deaf,
    /// Is refused for a reason.
    Refuse(&'static str),
}

/// The machine, the store, and the shell between them.
pub struct TestMachine {
    /// The picture.
    pub world: World,
    /// Log of the run, as `second event`.
    pub story: Vec<String>,
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
    acts: BTreeMap<String, ContainerBehaviour>,
    probes: BTreeMap<String, ProbeResult>,
    /// Reports to come, and when.
    news: Vec<(Time, Report)>,
    /// Live processes by pod and container.
    live: BTreeMap<(Str, Str), (u32, Time)>,
    /// The last report about each container's newest attempt: what a shim keeps.
    records: BTreeMap<(Str, Str), (u32, ContainerState)>,
    /// Orders that are lost on their way, so many from now.
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
            story: Vec::new(),
            events: Vec::new(),
            starts: Vec::new(),
            writes: 0,
            refreshes: Vec::new(),
            resizes: Vec::new(),
            acts: BTreeMap::new(),
            probes: BTreeMap::new(),
            news: Vec::new(),
            live: BTreeMap::new(),
            records: BTreeMap::new(),
            lost_orders: 0,
        };
        machine.put("pods", pod);
        machine
    }

    /// The same, on a node that only pretends.
    pub fn simulated(pod: Value) -> TestMachine {
        let mut machine = TestMachine::new(pod);
        machine.world.facts.nodes.get_mut("n").unwrap().simulated = true;
        machine
    }

    /// Puts an object into the store.
    pub fn put(&mut self, resource: &'static str, object: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(Resource(resource), &text("namespace"), &text("name"));
        self.world.put(key, object.to_string().into());
    }

    /// Says how a container behaves from now on.
    pub fn act(&mut self, container: &str, act: ContainerBehaviour) -> &mut TestMachine {
        self.acts.insert(container.into(), act);
        self
    }

    /// Says what the probes of a kind answer from now on: `liveness`.
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
    pub fn reasons(&self) -> Vec<&'static str> {
        self.events.iter().map(|event| event.reason).collect()
    }

    /// Returns the log since the last call.
    pub fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.story)
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
        self.live.clear();
        self.records.clear();
        self.news.clear();
    }

    /// The control plane restarts: what it knew is what the shims tell.
    pub fn restart(&mut self) {
        let uids: Vec<Str> = self.world.facts.pods.iter().map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            let mut pod = self.world.facts.pods.remove(&uid).unwrap();
            let kept = self.records.iter().filter(|((of, _), _)| *of == uid);
            let kept =
                kept.map(|((_, name), (attempt, state))| (name.clone(), ContainerFacts::new(*attempt, state.clone())));
            pod.containers = kept.collect();
            if !pod.containers.is_empty() {
                self.world.facts.pods.insert(uid, pod);
            }
        }
    }

    /// Every report that is on its way comes now, and twice.
    pub fn hurry(&mut self) {
        let now = self.world.now;
        let soon: Vec<_> = self.news.iter().filter(|(at, _)| *at <= now).cloned().collect();
        self.news.extend(soon);
    }

    /// A container's process ends by itself now.
    pub fn end_now(&mut self, container: &str, code: i32) {
        let place = (Str::from("uid-p"), Str::from(container));
        if let Some((attempt, since)) = self.live.get(&place).copied() {
            self.ends(place.0, place.1, attempt, since, self.world.now, code);
        }
    }

    /// A report of an attempt's end comes once more, or out of nowhere.
    pub fn repeat(&mut self, container: &str, attempt: u32) {
        let place = (Str::from("uid-p"), Str::from(container));
        if self.live.get(&place).is_some_and(|(living, _)| *living <= attempt) {
            return;
        }
        let now = self.world.now;
        let ended = self.records.get(&place).filter(|(known, _)| *known == attempt).map(|(_, state)| state.clone());
        if let Some(state) = ended {
            let (pod_uid, container) = place;
            self.news.push((now, Report::Container { pod_uid, container, attempt, state }));
        }
    }

    /// Reports that are due are lost.
    pub fn lose_reports(&mut self) {
        let now = self.world.now;
        for (_, report) in self.news.iter().filter(|(at, _)| *at <= now).cloned().collect::<Vec<_>>() {
            self.note(&report);
        }
        self.news.retain(|(at, _)| *at > now);
    }

    /// Plans and acts until nothing is left to do now. Gives the last plan.
    pub fn settle(&mut self) -> Plan {
        for _ in 0..100 {
            self.deliver();
            let plan = (LOOP.plan)(&self.world, &key("p"));
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
            let news = self.news.iter().map(|(at, _)| *at).min();
            let next = [plan.wake, news].into_iter().flatten().min().filter(|next| *next <= end);
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
        let now = self.world.now;
        let (due, later): (Vec<_>, Vec<_>) = self.news.drain(..).partition(|(at, _)| *at <= now);
        self.news = later;
        for (_, report) in due {
            self.report(report);
        }
    }

    /// A report reaches the control plane.
    pub fn report(&mut self, report: Report) {
        self.note(&report);
        self.world.facts.apply_report(report);
    }

    /// Records a report, whether or not it is delivered.
    fn note(&mut self, report: &Report) {
        if let Report::Container { pod_uid, container, attempt, state } = report {
            let place = (pod_uid.clone(), container.clone());
            let known = self.records.get(&place);
            let is_newer = known.is_none_or(|(known, old)| attempt > known || !matches!(old, ContainerState::Ended(_)));
            if is_newer && known.is_none_or(|(known, _)| attempt >= known) {
                self.records.insert(place, (*attempt, state.clone()));
            }
        }
        if let Report::Container { pod_uid, container, attempt, state: ContainerState::Ended(ended) } = report {
            let place = (pod_uid.clone(), container.clone());
            if self.live.get(&place).is_some_and(|(living, _)| living == attempt) {
                self.live.remove(&place);
                self.story.push(format!("{} {container} ends {}", self.second(), ended.code));
            }
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
                self.story.push(format!("{} deleted", self.second()));
            }
            WriteVerb::Attempt { .. } => {}
            other => panic!("a kubelet does not {other:?}"),
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Start(start) => self.start(*start),
            Effect::Stop { pod_uid, container, attempt, grace_seconds } => {
                self.story.push(format!("{} stop {container} in {grace_seconds}", self.second()));
                let (after, code) = match self.acts.get(&*container) {
                    Some(ContainerBehaviour::Deaf) => return,
                    Some(ContainerBehaviour::Stubborn) => (grace_seconds, 137),
                    _ => (0, 143),
                };
                let place = (pod_uid.clone(), container.clone());
                let Some((_, since)) = self.live.get(&place).copied() else {
                    self.unknown(place, attempt);
                    return;
                };
                self.ends(pod_uid, container, attempt, since, self.world.now + SignedDuration::from_secs(after), code);
            }
            Effect::Remove { pod_uid } => {
                self.story.push(format!("{} remove {pod_uid}", self.second()));
                self.live.retain(|(uid, _), _| *uid != pod_uid);
                self.records.retain(|(uid, _), _| *uid != pod_uid);
                self.news.push((self.world.now, Report::Removed { pod_uid }));
            }
            Effect::Resize { container, attempt, limits, .. } => {
                self.story.push(format!(
                    "{} resize {container}#{attempt} {:?}",
                    self.second(),
                    limits.container.cpu_milli
                ));
                self.resizes.push(*limits);
            }
            Effect::WatchStorage { pod_uid, bounds } => {
                self.story.push(format!("{} watch {pod_uid} {bounds:?}", self.second()))
            }
            Effect::Route { .. }
            | Effect::SetIngress { .. }
            | Effect::SetNetworkPolicy { .. }
            | Effect::Expose { .. }
            | Effect::DeleteVolume { .. }
            | Effect::Watch { .. }
            | Effect::Build { .. }
            | Effect::Measure { .. } => {}
            Effect::Refresh { pod_uid, volumes } => {
                self.story.push(format!("{} refresh {pod_uid} {volumes:?}", self.second()));
                self.refreshes.push((self.second(), volumes));
            }
            Effect::Probe(probe) => {
                let kind = format!("{:?}", probe.kind).to_lowercase();
                let verdict = self.probes.get(&kind).copied().unwrap_or(ProbeResult::Success);
                let ok = verdict == ProbeResult::Success;
                self.story.push(format!("{} {kind} {}", self.second(), if ok { "ok" } else { "fails" }));
                let message = if ok { String::new() } else { "no".to_owned() };
                let sleeps = matches!(probe.handler, Some(ProbeHandler::Sleep(_)));
                if sleeps || matches!(self.acts.get(&*probe.container), Some(ContainerBehaviour::Deaf)) {
                    return;
                }
                let at = self.world.now;
                let (pod_uid, container, attempt, kind) = (probe.pod_uid, probe.container, probe.attempt, probe.kind);
                self.news.push((at, Report::Probe { pod_uid, container, attempt, kind, verdict, message, at }));
            }
        }
    }

    /// A stop of what is not there is answered all the same.
    fn unknown(&mut self, place: (Str, Str), attempt: u32) {
        let finished = self.world.now;
        let reason = Some("ContainerStatusUnknown".to_owned());
        let nobody_knows =
            AttemptEnd { code: 137, signal: None, reason, message: String::new(), started: None, finished };
        let recorded = self.records.get(&place).filter(|(known, _)| *known == attempt);
        let state = recorded.map_or(ContainerState::Ended(nobody_knows), |(_, state)| state.clone());
        let (pod_uid, container) = place;
        self.news.push((finished, Report::Container { pod_uid, container, attempt, state }));
    }

    fn start(&mut self, start: Start) {
        let place = (start.pod_uid.clone(), start.container.clone());
        let now = self.world.now;
        let report = |state| Report::Container {
            pod_uid: start.pod_uid.clone(),
            container: start.container.clone(),
            attempt: start.attempt,
            state,
        };
        if let Some((living, since)) = self.live.get(&place) {
            assert_eq!(*living, start.attempt, "a second start of {} while one attempt lives", start.container);
            let running = report(ContainerState::Running { pid: 1, since: *since });
            self.news.push((now, running));
            return;
        }
        // A shim starts no attempt twice: it tells again what became of it.
        match self.records.get(&place) {
            Some((known, _)) if *known > start.attempt => return,
            Some((known, state @ ContainerState::Ended(_))) if *known == start.attempt => {
                self.news.push((now, report(state.clone())));
                return;
            }
            _ => {}
        }
        self.story.push(format!("{} start {}#{}", self.second(), start.container, start.attempt));
        self.starts.push(start.clone());
        match self.acts.get(&*start.container).copied().unwrap_or(ContainerBehaviour::Stay) {
            ContainerBehaviour::Refuse(reason) => {
                let message = "write it otherwise".to_owned();
                self.news.push((now, report(ContainerState::Refused { reason: reason.into(), message, at: now })));
                return;
            }
            ContainerBehaviour::Exit(seconds, code) => {
                let end = now + SignedDuration::from_secs(seconds);
                self.ends(start.pod_uid.clone(), start.container.clone(), start.attempt, now, end, code);
            }
            ContainerBehaviour::Stay | ContainerBehaviour::Stubborn | ContainerBehaviour::Deaf => {}
        }
        self.live.insert(place, (start.attempt, now));
        self.news.push((now, report(ContainerState::Running { pid: 1, since: now })));
    }

    fn ends(&mut self, pod_uid: Str, container: Str, attempt: u32, since: Time, at: Time, code: i32) {
        let message = String::new();
        let ended = AttemptEnd { code, signal: None, reason: None, message, started: Some(since), finished: at };
        self.news.push((at, Report::Container { pod_uid, container, attempt, state: ContainerState::Ended(ended) }));
    }
}
