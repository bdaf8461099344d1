//! The simulated twin: a machine that only pretends, at any scale and without a clock of its own.
//!
//! Takes the same effects as the real machine and gives the same reports when they are [`Simulated::due`]. Everything it does is
//! decided by the effects, the times it is told and its [`Knobs`].

use super::Host;
use crate::object::{Str, Time};
use crate::world::plan::{Probe, Start};
use crate::world::{ContainerState, Effect, Ended, ProbeKind, Report};
use jiff::SignedDuration;
use std::collections::{BTreeMap, HashMap, HashSet};

/// How the pretended machine behaves.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// Between the order to start and Running.
    pub start_delay: SignedDuration,
    /// Between the stop signal and the end of a container that heeds it.
    pub stop_delay: SignedDuration,
    /// Between the order to remove a pod and its removal.
    pub remove_delay: SignedDuration,
    /// Between a probe and its answer.
    pub probe_delay: SignedDuration,
    /// Images that cannot be had: reason and message.
    pub refused_images: HashMap<String, (String, String)>,
    /// Containers, by name, that only SIGKILL ends.
    pub deaf: HashSet<Str>,
    /// Probes that fail, by container.
    pub failing_probes: HashMap<(Str, ProbeKind), String>,
}

/// One container's newest attempt.
struct Sim {
    attempt: u32,
    running: Option<Time>,
    ended: bool,
    refused: bool,
    kill_at: Option<Time>,
}

/// What is to come.
enum Event {
    Run,
    Refuse { reason: String, message: String },
    End { code: i32, signal: Option<i32> },
}

enum Coming {
    Container { pod_uid: Str, container: Str, attempt: u32, event: Event },
    Report(Report),
}

/// The machine.
#[derive(Default)]
pub struct Simulated {
    /// How it behaves; may be turned at any time.
    pub knobs: Knobs,
    pods: BTreeMap<Str, BTreeMap<Str, Sim>>,
    coming: BTreeMap<(Time, u64), Coming>,
    sequence: u64,
    pids: u32,
}

impl Simulated {
    /// An empty machine on which everything works at once.
    pub fn new() -> Simulated {
        Simulated::default()
    }

    /// The earliest moment at which something will be due.
    pub fn next(&self) -> Option<Time> {
        self.coming.keys().next().map(|(at, _)| *at)
    }

    /// The reports of everything that has happened up to now, in order.
    pub fn due(&mut self, now: Time) -> Vec<Report> {
        let mut reports = Vec::new();
        while let Some(first) = self.coming.first_entry().filter(|first| first.key().0 <= now) {
            let at = first.key().0;
            match first.remove() {
                Coming::Report(report) => reports.push(report),
                Coming::Container { pod_uid, container, attempt, event } => {
                    let state = self.happen(at, &pod_uid, &container, attempt, event);
                    reports.extend(state.map(|state| Report::Container { pod_uid, container, attempt, state }));
                }
            }
        }
        reports
    }

    /// Lets a running container end, as if by itself.
    pub fn end(&mut self, now: Time, pod_uid: &str, container: &str, code: i32) {
        let known = self.pods.get(pod_uid).and_then(|pod| pod.get(container));
        if let Some(attempt) = known.map(|known| known.attempt) {
            self.plan(now, pod_uid, container, attempt, Event::End { code, signal: None });
        }
    }

    /// Pods that something is known of, for checks that nothing is left.
    pub fn pods(&self) -> impl Iterator<Item = &Str> {
        self.pods.keys()
    }

    /// Attempts that run now: pod, container, attempt.
    pub fn running(&self) -> impl Iterator<Item = (&Str, &Str, u32)> {
        self.pods.iter().flat_map(|(uid, pod)| {
            let running = pod.iter().filter(|(_, sim)| sim.running.is_some() && !sim.ended);
            running.map(move |(name, sim)| (uid, name, sim.attempt))
        })
    }

    fn happen(&mut self, at: Time, uid: &Str, container: &Str, attempt: u32, event: Event) -> Option<ContainerState> {
        let sim = self.pods.get_mut(uid)?.get_mut(container)?;
        if sim.attempt != attempt || sim.ended || sim.refused {
            return None;
        }
        match event {
            Event::Run => {
                self.pids += 1;
                sim.running = Some(at);
                Some(ContainerState::Running { pid: self.pids, since: at })
            }
            Event::Refuse { reason, message } => {
                sim.refused = true;
                Some(ContainerState::Refused { reason, message, at })
            }
            Event::End { code, signal } => {
                sim.ended = true;
                let (reason, message) = (None, String::new());
                Some(ContainerState::Ended(Ended { code, signal, reason, message, started: sim.running, finished: at }))
            }
        }
    }

    fn plan(&mut self, at: Time, pod_uid: &str, container: &str, attempt: u32, event: Event) {
        let coming = Coming::Container { pod_uid: pod_uid.into(), container: container.into(), attempt, event };
        self.put(at, coming);
    }

    fn put(&mut self, at: Time, coming: Coming) {
        self.sequence += 1;
        self.coming.insert((at, self.sequence), coming);
    }

    fn start(&mut self, now: Time, start: &Start) {
        let pod = self.pods.entry(start.pod_uid.clone()).or_default();
        let known = pod.get(&start.container);
        if known.is_some_and(|known| known.attempt > start.attempt || known.attempt == start.attempt && !known.refused)
        {
            return;
        }
        let sim = Sim { attempt: start.attempt, running: None, ended: false, refused: false, kill_at: None };
        pod.insert(start.container.clone(), sim);
        let (uid, container, attempt) = (&start.pod_uid, &start.container, start.attempt);
        if let Some((reason, message)) = self.knobs.refused_images.get(&start.image).cloned() {
            return self.plan(now, uid, container, attempt, Event::Refuse { reason, message });
        }
        let runs = now + self.knobs.start_delay;
        self.plan(runs, uid, container, attempt, Event::Run);
        if let Some((seconds, code)) = start.script.as_ref().and_then(|script| script.exit) {
            let at = runs + SignedDuration::from_secs(seconds.max(0));
            self.plan(at, uid, container, attempt, Event::End { code, signal: None });
        }
    }

    fn stop(&mut self, now: Time, uid: &Str, container: &Str, attempt: u32, grace_seconds: i64) {
        let kill_at = now + SignedDuration::from_secs(grace_seconds.max(0));
        let is_deaf = self.knobs.deaf.contains(container);
        let sim = self.pods.get_mut(uid).and_then(|pod| pod.get_mut(container));
        let Some(sim) = sim.filter(|sim| sim.attempt == attempt && !sim.ended) else { return };
        let is_first = sim.kill_at.is_none();
        if sim.kill_at.is_some_and(|known| known <= kill_at) {
            return;
        }
        sim.kill_at = Some(kill_at);
        let asked = now + self.knobs.stop_delay;
        if is_first && !is_deaf && asked < kill_at {
            self.plan(asked, uid, container, attempt, Event::End { code: 143, signal: Some(15) });
        } else {
            self.plan(kill_at, uid, container, attempt, Event::End { code: 137, signal: Some(9) });
        }
    }

    fn remove(&mut self, now: Time, uid: &Str) {
        self.pods.remove(uid);
        self.put(now + self.knobs.remove_delay, Coming::Report(Report::Removed { pod_uid: uid.clone() }));
    }

    fn probe(&mut self, now: Time, probe: &Probe) {
        let at = now + self.knobs.probe_delay;
        let runs = self.pods.get(&probe.pod_uid).and_then(|pod| pod.get(&probe.container));
        let runs = runs.is_some_and(|sim| sim.attempt == probe.attempt && sim.running.is_some() && !sim.ended);
        let failing = self.knobs.failing_probes.get(&(probe.container.clone(), probe.kind)).cloned();
        let failing = if runs { failing } else { Some("the container does not run".into()) };
        let report = Report::Probe {
            pod_uid: probe.pod_uid.clone(),
            container: probe.container.clone(),
            attempt: probe.attempt,
            kind: probe.kind,
            ok: failing.is_none(),
            message: failing.unwrap_or_default(),
            at,
        };
        self.put(at, Coming::Report(report));
    }
}

impl Host for Simulated {
    fn carry_out(&mut self, now: Time, effect: &Effect) {
        match effect {
            Effect::Start(start) => self.start(now, start),
            Effect::Stop { pod_uid, container, attempt, grace_seconds } => {
                self.stop(now, pod_uid, container, *attempt, *grace_seconds);
            }
            Effect::Remove { pod_uid } => self.remove(now, pod_uid),
            Effect::Probe(probe) => self.probe(now, probe),
        }
    }
}

/// A start with nothing special about it, to build tests on.
#[doc(hidden)]
pub fn a_start(uid: &str, container: &str, attempt: u32) -> Start {
    Start {
        pod_uid: uid.into(),
        namespace: "default".into(),
        pod: "p".into(),
        node: "n".into(),
        ip: "127.77.1.1".into(),
        hostname: "p".into(),
        container: container.into(),
        attempt,
        image: "busybox".into(),
        manifest_dir: None,
        command: Vec::new(),
        args: Vec::new(),
        env: Vec::new(),
        working_dir: None,
        pull_policy: "IfNotPresent".into(),
        termination_message_path: "/dev/termination-log".into(),
        termination_from_logs: false,
        stdin: false,
        tty: false,
        stop_signal: "SIGTERM".into(),
        spec: serde_json::Value::Null,
        script: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::plan::Script;

    fn at(second: i64) -> Time {
        Time::from_second(second).expect("a time")
    }

    /// What was reported, as short words with the second.
    fn story(machine: &mut Simulated, until: i64) -> Vec<String> {
        let word = |report: Report| match report {
            Report::Container { attempt, state, .. } => match state {
                ContainerState::Running { since, .. } => format!("{attempt} runs {}", since.as_second()),
                ContainerState::Ended(end) => format!("{attempt} ends {} with {}", end.finished.as_second(), end.code),
                ContainerState::Refused { reason, .. } => format!("{attempt} {reason}"),
                ContainerState::Starting { .. } => "starting".into(),
            },
            Report::Probe { ok, .. } => format!("probe {ok}"),
            Report::Removed { .. } => "removed".into(),
        };
        machine.due(at(until)).into_iter().map(word).collect()
    }

    fn start(machine: &mut Simulated, second: i64, attempt: u32, exit: Option<(i64, i32)>) {
        let start = Start { script: Some(Script { exit }), ..a_start("u", "c", attempt) };
        machine.carry_out(at(second), &Effect::Start(Box::new(start)));
    }

    fn stop(machine: &mut Simulated, second: i64, grace_seconds: i64) {
        let effect = Effect::Stop { pod_uid: "u".into(), container: "c".into(), attempt: 0, grace_seconds };
        machine.carry_out(at(second), &effect);
    }

    #[test]
    fn a_script_is_followed_and_repeats_do_nothing() {
        let mut machine = Simulated::new();
        start(&mut machine, 0, 0, Some((5, 3)));
        start(&mut machine, 1, 0, Some((5, 3)));
        assert_eq!(machine.next(), Some(at(0)));
        assert_eq!(story(&mut machine, 4), ["0 runs 0"]);
        assert_eq!(story(&mut machine, 9), ["0 ends 5 with 3"]);
        start(&mut machine, 9, 0, None);
        assert_eq!(machine.next(), None);
        start(&mut machine, 9, 1, None);
        assert_eq!(story(&mut machine, 9), ["1 runs 9"]);
    }

    #[test]
    fn stops_ask_and_then_kill_and_only_shorten() {
        let mut machine = Simulated::new();
        start(&mut machine, 0, 0, Some((100, 0)));
        stop(&mut machine, 1, 30);
        assert_eq!(story(&mut machine, 200), ["0 runs 0", "0 ends 1 with 143"]);

        let mut machine = Simulated::new();
        machine.knobs.deaf.insert("c".into());
        start(&mut machine, 0, 0, None);
        stop(&mut machine, 1, 30);
        stop(&mut machine, 2, 60);
        stop(&mut machine, 3, 4);
        assert_eq!(story(&mut machine, 200), ["0 runs 0", "0 ends 7 with 137"]);
    }

    #[test]
    fn what_is_refused_may_be_tried_again() {
        let mut machine = Simulated::new();
        machine.knobs.refused_images.insert("busybox".into(), ("ErrImagePull".into(), "no".into()));
        start(&mut machine, 0, 0, None);
        assert_eq!(story(&mut machine, 0), ["0 ErrImagePull"]);
        machine.knobs.refused_images.clear();
        start(&mut machine, 1, 0, None);
        assert_eq!(story(&mut machine, 1), ["0 runs 1"]);
        machine.carry_out(at(2), &Effect::Remove { pod_uid: "u".into() });
        assert_eq!(story(&mut machine, 2), ["removed"]);
        assert_eq!(machine.pods().count(), 0);
    }
}
