//! Changes of the facts by the reports of the machine and by orders to it.
//!
//! Never: decides what follows from a fact; the loops do. Start reading at [`Facts::apply_report`].

use super::facts::{
    BuildStage, ContainerFacts, ContainerState, Facts, FilePatterns, LastBuild, OrderedStop, PodFacts, ProbeFacts,
    ProbeKind, ProbeResult, SourceDigests, ThrottlingState,
};
use super::limits::Limits;
use super::loop_memory::Memory;
use super::plan::Effect;
use super::report::Report;
use super::start::Start;
use super::volume::fingerprint;
use crate::kinds::image::RESOURCE;
use crate::object::time::Shift;
use crate::object::{Key, Resource, Str, Time};
use jiff::SignedDuration;

impl Facts {
    /// Applies a report. Returns the key of the object concerned when anything changed.
    pub fn apply_report(&mut self, report: Report) -> Option<Key> {
        match report {
            Report::Sources { image, files, sources } => self.record_sources(image, (files, sources)),
            Report::Build { image, built } => self.record_build(image, built),
            Report::Blocked { about, listeners } => {
                self.blocked.insert(about.clone(), listeners);
                Some(about)
            }
            Report::IngressListeners(listeners) => {
                self.ingress_listeners = listeners;
                None
            }
            Report::LinkState { node, problem } => self.record_link(node, problem),
            Report::SharedNetwork(_) | Report::NotDiscarded { .. } => None,
            Report::Removed { pod_uid } => Some(self.pods.remove(&pod_uid)?.key()),
            Report::NotRemoved { pod_uid, why } => {
                self.change_pod(&pod_uid, |pod| pod.not_removed.replace(why.clone()) != Some(why))
            }
            Report::NotRefreshed { pod_uid, at, why } => self.change_pod(&pod_uid, |pod| {
                pod.not_refreshed = Some((at, why));
                true
            }),
            Report::Over { pod_uid, of } => self.change_pod(&pod_uid, |pod| {
                pod.over.get_or_insert(of);
                true
            }),
            Report::Denied { pod_uid, denial } => self.change_pod(&pod_uid, |pod| {
                push_new(&mut pod.denied, denial);
                true
            }),
            Report::Bind { pod_uid, bind } => self.change_pod(&pod_uid, |pod| {
                push_new(&mut pod.binds, bind);
                true
            }),
            Report::Usage { pod_uid, at, samples } => self.change_pod(&pod_uid, |pod| {
                pod.take_usage(at, samples);
                true
            }),
            Report::Container { pod_uid, container, attempt, state } => {
                self.change_pod(&pod_uid, |pod| pod.record_state(&container, attempt, state))
            }
            Report::Findable { pod_uid, container, attempt } => {
                self.change_container(&pod_uid, &container, attempt, |container| {
                    container.findable = matches!(container.state, ContainerState::Refused { .. });
                    true
                })
            }
            Report::Resized { pod_uid, container, attempt, limits, error } => {
                self.change_container(&pod_uid, &container, attempt, |container| {
                    container.record_resize(*limits, error);
                    true
                })
            }
            Report::Probe { pod_uid, container, attempt, kind, verdict, message, at } => {
                self.change_container(&pod_uid, &container, attempt, |container| {
                    container.record_probe(kind, verdict, message, at)
                })
            }
        }
    }

    fn record_link(&mut self, node: Str, problem: Option<String>) -> Option<Key> {
        match problem {
            Some(why) => _ = self.broken_links.insert(node, why.into()),
            None => _ = self.broken_links.remove(&node),
        }
        None
    }

    fn record_sources(&mut self, image: Str, sources: (FilePatterns, SourceDigests)) -> Option<Key> {
        let is_new = self.sources.get(&image) != Some(&sources);
        self.sources.insert(image.clone(), sources);
        is_new.then(|| Key::new(Resource(RESOURCE), "", &image))
    }

    fn record_build(&mut self, image: Str, build: LastBuild) -> Option<Key> {
        let is_new = self.builds.get(&image) != Some(&build);
        self.builds.insert(image.clone(), build);
        is_new.then(|| Key::new(Resource(RESOURCE), "", &image))
    }

    /// Changes a pod's facts. Returns its key when `change` says that anything changed.
    fn change_pod(&mut self, uid: &Str, change: impl FnOnce(&mut PodFacts) -> bool) -> Option<Key> {
        let pod = self.pods.get_mut(uid)?;
        change(pod).then(|| pod.key())
    }

    /// Changes the facts of a container, unless they are about a later attempt.
    fn change_container(
        &mut self,
        pod_uid: &Str,
        container: &Str,
        attempt: u32,
        change: impl FnOnce(&mut ContainerFacts) -> bool,
    ) -> Option<Key> {
        self.change_pod(pod_uid, |pod| {
            let container = pod.containers.get_mut(container).filter(|known| known.attempt == attempt);
            container.is_some_and(change)
        })
    }

    /// Notes that an effect was handed to the machine: a pending effect is a fact, too.
    pub(super) fn begin(&mut self, effect: &Effect, now: Time) {
        match effect {
            Effect::Start(start) => self.start_ordered(start, now),
            Effect::Stop { pod_uid, container, attempt, grace_seconds } => {
                let kill_at = now.later(SignedDuration::from_secs(*grace_seconds));
                if let Some(known) = self.container(pod_uid, container, *attempt) {
                    let order = known.stopping.get_or_insert(OrderedStop { since: now, asked: now, kill_at });
                    order.asked = now;
                    order.kill_at = order.kill_at.min(kill_at);
                }
            }
            Effect::Remove { pod_uid } => {
                if let Some(pod) = self.pods.get_mut(pod_uid) {
                    pod.removing = Some(now);
                }
            }
            Effect::Watch { image, files } => self.sources.retain(|name, (seen, _)| name != image || seen == files),
            Effect::Build { image } => {
                let inputs = image.build.as_ref().map(|build| build.inputs.clone()).unwrap_or_default();
                self.builds.insert(image.name.clone(), LastBuild { inputs, stage: BuildStage::Ordered });
            }
            Effect::Resize { pod_uid, container, attempt, .. } => {
                if let Some(known) = self.container(pod_uid, container, *attempt) {
                    known.resizing = Some(now);
                }
            }
            Effect::WatchStorage { pod_uid, .. } => {
                if let Some(pod) = self.pods.get_mut(pod_uid) {
                    pod.watched = true;
                }
            }
            Effect::Route { .. }
            | Effect::SetIngress { .. }
            | Effect::Expose { .. }
            | Effect::AcceptLinks(_)
            | Effect::SetNodeLink { .. }
            | Effect::SetNetworkPolicy { .. }
            | Effect::DeleteVolume { .. }
            | Effect::Measure { .. } => {}
            Effect::Refresh { pod_uid, volumes, missing } => {
                if let Some(pod) = self.pods.get_mut(pod_uid) {
                    pod.volumes = Some(fingerprint(volumes, missing));
                    pod.not_refreshed = None;
                }
            }
            Effect::Probe(probe) => {
                if let Some(known) = self.container(&probe.pod_uid, &probe.container, probe.attempt) {
                    let results = known.probes.entry(probe.kind).or_default();
                    results.in_flight = Some(now);
                    results.counts_from = probe.counts_from;
                    results.since.get_or_insert(now);
                }
            }
        }
    }

    /// Clears the news that a committed plan has reported.
    pub(super) fn clear_news(&mut self, memory: &Memory) {
        match memory {
            Memory::ConnectionsReported { pod_uid } => {
                if let Some(pod) = self.pods.get_mut(pod_uid) {
                    pod.denied.clear();
                    pod.binds.clear();
                }
            }
            Memory::ProbeReported { pod_uid, container, attempt, kind } => {
                let known = self.container(pod_uid, container, *attempt);
                if let Some(probe) = known.and_then(|known| known.probes.get_mut(kind)) {
                    probe.unreported = None;
                }
            }
            Memory::ThrottlingReported { pod_uid, container, attempt } => {
                if let Some(known) = self.container(pod_uid, container, *attempt) {
                    known.throttled = ThrottlingState::Reported;
                }
            }
            Memory::ListenersReported { .. }
            | Memory::NodeRemovalReported { .. }
            | Memory::TaintedSince { .. }
            | Memory::Autoscaler { .. }
            | Memory::JobBackoff { .. } => {}
        }
    }

    fn container(&mut self, pod_uid: &Str, container: &Str, attempt: u32) -> Option<&mut ContainerFacts> {
        let known = self.pods.get_mut(pod_uid)?.containers.get_mut(container)?;
        (known.attempt == attempt).then_some(known)
    }

    fn start_ordered(&mut self, start: &Start, now: Time) {
        // When the leader that started a shim died before it sent a request, the shim has a folder but does not know its pod's name.
        if self.pods.get(&start.pod_uid).is_none_or(|known| known.name != start.pod) {
            let known = self.pods.get(&start.pod_uid).cloned().unwrap_or_default();
            let pod = PodFacts {
                namespace: start.namespace.clone(),
                name: start.pod.clone(),
                node: start.node.clone(),
                ip: start.ip.clone(),
                ..known
            };
            self.pods.insert(start.pod_uid.clone(), pod);
        }
        let Some(pod) = self.pods.get_mut(&start.pod_uid) else { return };
        if !start.files.volumes.is_empty() {
            pod.volumes = Some(fingerprint(&start.files.volumes, &[]));
        }
        let state = ContainerState::Starting { since: now };
        let image = Some(start.requested_image.as_ref().map(|image| image.tried()).unwrap_or_default());
        let limits = Some(start.limits.clone());
        let fresh = ContainerFacts { image, limits, ..ContainerFacts::new(start.attempt, state) };
        let fresh = match pod.containers.get(&start.container) {
            Some(known) if known.attempt > start.attempt => return,
            // Nothing of this attempt has run: it is tried once more under the same number.
            Some(known) if known.attempt == start.attempt => match known.state {
                ContainerState::Refused { .. } | ContainerState::Starting { .. } => {
                    ContainerFacts { last: known.last.clone(), refusals: known.refusals, ..fresh }
                }
                _ => return,
            },
            Some(known) => ContainerFacts { last: known.ended().cloned().or_else(|| known.last.clone()), ..fresh },
            None => fresh,
        };
        pod.containers.insert(start.container.clone(), fresh);
    }
}

/// Whether a report is newer than the known state: ordered, refused (and ordered again), running, ended.
fn is_news(known: &ContainerState, report: &ContainerState) -> bool {
    let rank = |state: &ContainerState| match state {
        ContainerState::Starting { .. } => 0,
        ContainerState::Refused { .. } => 1,
        ContainerState::Running { .. } => 2,
        ContainerState::Ended(_) => 3,
    };
    match (known, report) {
        // A refusal that is older than the newest order is outdated.
        (ContainerState::Starting { since }, ContainerState::Refused { at, .. }) => at >= since,
        _ => rank(report) > rank(known),
    }
}

impl ContainerFacts {
    /// Moves the attempt forward. Returns whether the state is news.
    pub(super) fn record_state(&mut self, state: ContainerState) -> bool {
        let is_news = is_news(&self.state, &state);
        if is_news {
            self.refusals += u32::from(matches!(state, ContainerState::Refused { .. }));
            self.state = state;
        }
        is_news
    }

    fn record_resize(&mut self, limits: Limits, error: Option<String>) {
        if error.is_none() {
            (self.limits, self.resizing) = (Some(limits), None);
        }
        self.resize_error = error;
    }

    /// Counts a probe's result. Returns false for an answer that no probe waits for: it is late or repeated.
    fn record_probe(&mut self, kind: ProbeKind, result: ProbeResult, message: String, at: Time) -> bool {
        let Some(probe) = self.probes.get_mut(&kind).filter(|probe| probe.in_flight.is_some()) else { return false };
        let is_success = matches!(result, ProbeResult::Success | ProbeResult::Warning);
        if !is_success && probe.is_early_at(at) {
            probe.in_flight = None;
            probe.last_early = Some(at);
            return true;
        }
        let (successes, failures) = match result {
            ProbeResult::Success | ProbeResult::Warning => (probe.successes + 1, 0),
            ProbeResult::Failure => (0, probe.failures + 1),
            ProbeResult::Unknown => (probe.successes, probe.failures),
        };
        *probe = ProbeFacts {
            since: probe.since,
            in_flight: None,
            counts_from: None,
            last: Some(at),
            last_early: probe.last_early,
            has_succeeded: probe.has_succeeded || is_success,
            successes,
            failures,
            message,
            unreported: Some(result).filter(|result| *result != ProbeResult::Success),
        };
        true
    }
}

/// Appends an item that the list does not have yet.
fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::time_at;
    use crate::world::usage::UsageSample;

    #[test]
    fn usage_of_one_attempt_never_goes_back_and_that_of_the_next_begins_anew() {
        let mut pod = PodFacts::default();
        let mut use_up = |second, cpu_nanos, since| {
            let known = ContainerFacts::new(0, ContainerState::Running { pid: 1, since: time_at(since) });
            pod.containers.insert("c".into(), known);
            pod.take_usage(time_at(second), vec![("c".into(), UsageSample { cpu_nanos, ..UsageSample::default() })]);
            pod.usage.get("c").map(|measured| (measured.usage.cpu_milli, measured.sample.cpu_nanos))
        };
        let second = 1_000_000_000;
        assert_eq!(use_up(10, 5 * second, 0), Some((500, 5 * second)));
        assert_eq!(use_up(20, 4 * second, 0), Some((0, 5 * second)), "what has ended is not known any more");
        assert_eq!(use_up(30, 10 * second, 0), Some((500, 10 * second)));
        assert_eq!(use_up(40, second, 39), Some((1000, second)), "it was started anew");
    }

    #[test]
    fn reports_only_move_an_attempt_forward() {
        let running = |second| ContainerState::Running { pid: 1, since: time_at(second) };
        let refused =
            |second| ContainerState::Refused { reason: String::new(), message: String::new(), at: time_at(second) };
        let starting = |second| ContainerState::Starting { since: time_at(second) };
        let cases = [
            (starting(5), running(6), true),
            (starting(5), refused(6), true),
            (starting(5), refused(4), false),
            (refused(5), running(6), true),
            (running(5), refused(6), false),
            (running(5), running(6), false),
            (running(5), starting(6), false),
        ];
        for (known, report, expected) in cases {
            assert_eq!(is_news(&known, &report), expected, "{known:?} then {report:?}");
        }
    }

    #[test]
    fn probe_is_answered_once() {
        let (uid, container) = (Str::from("uid"), Str::from("c"));
        let mut known = ContainerFacts::new(0, ContainerState::Running { pid: 1, since: time_at(0) });
        known.probes.insert(ProbeKind::Liveness, ProbeFacts { in_flight: Some(time_at(1)), ..ProbeFacts::default() });
        let containers = [(container.clone(), known)].into();
        let mut facts = Facts::default();
        facts.pods.insert(uid.clone(), PodFacts { containers, ..PodFacts::default() });
        let (kind, message) = (ProbeKind::Liveness, String::new());
        let answer = |verdict| Report::Probe {
            pod_uid: uid.clone(),
            container: container.clone(),
            attempt: 0,
            kind,
            verdict,
            message: message.clone(),
            at: time_at(2),
        };
        assert!(facts.apply_report(answer(ProbeResult::Failure)).is_some());
        assert!(facts.apply_report(answer(ProbeResult::Failure)).is_none(), "nothing waits for a second answer");
        let known = |facts: &Facts| facts.pods.get("uid").unwrap().containers["c"].probes[&kind].clone();
        assert_eq!((known(&facts).failures, known(&facts).unreported), (1, Some(ProbeResult::Failure)));
        let containers = &mut facts.pods.get_mut("uid").unwrap().containers;
        containers.get_mut("c").unwrap().probes.get_mut(&kind).unwrap().in_flight = Some(time_at(3));
        assert!(facts.apply_report(answer(ProbeResult::Unknown)).is_some());
        assert_eq!(
            (known(&facts).failures, known(&facts).unreported),
            (1, Some(ProbeResult::Unknown)),
            "it counts for nothing"
        );
    }

    #[test]
    fn pod_that_was_found_without_a_name_gets_it_with_its_first_start() {
        let mut facts = Facts::default();
        facts.pods.insert("uid".into(), PodFacts::default());
        let start = Start { pod_uid: "uid".into(), namespace: "default".into(), pod: "web".into(), ..Start::default() };
        facts.begin(&Effect::Start(Box::new(start)), time_at(1));
        let key = facts.pods.get("uid").unwrap().key();
        assert_eq!((&*key.namespace, &*key.name), ("default", "web"));
        assert_eq!(facts.pods.named(&key).count(), 1);
    }

    #[test]
    fn uids_of_a_name_are_known() {
        let mut pods = super::super::facts::Pods::default();
        let pod = PodFacts { namespace: "default".into(), name: "db-0".into(), ..PodFacts::default() };
        pods.insert("a".into(), pod.clone());
        pods.insert("b".into(), pod.clone());
        pods.insert("b".into(), pod.clone());
        let uids = |pods: &super::super::facts::Pods| {
            pods.named(&pod.key()).map(|(uid, _)| uid.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(uids(&pods), ["a", "b"]);
        pods.remove("a");
        assert_eq!(uids(&pods), ["b"]);
    }

    #[test]
    fn address_is_known_while_a_pod_has_it() {
        let mut pods = super::super::facts::Pods::default();
        let pod = |ip: &str| PodFacts { ip: ip.into(), ..PodFacts::default() };
        pods.insert("a".into(), pod("127.77.1.1"));
        pods.insert("b".into(), pod("127.77.1.1"));
        pods.insert("b".into(), pod("127.77.1.2"));
        let have = |pods: &super::super::facts::Pods| ["127.77.1.1", "127.77.1.2"].map(|ip| pods.have_address(ip));
        assert_eq!(have(&pods), [true, true]);
        pods.remove("a");
        pods.remove("a");
        assert_eq!(have(&pods), [false, true]);
    }
}
