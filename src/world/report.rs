//! What the machine reports, and how a report changes the facts.

use super::facts::{ContainerFacts, ContainerState, Facts, PodFacts, ProbeFacts, ProbeKind};
use super::plan::{Effect, Start};
use crate::object::{Key, Resource, Str, Time};

/// One piece of news from the machine, real or simulated. Late and repeated reports do no harm.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Where an attempt of a container stands now.
    Container {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt.
        attempt: u32,
        /// Running, Ended or Refused.
        state: ContainerState,
    },
    /// A probe was answered.
    Probe {
        /// The pod.
        pod_uid: Str,
        /// The container.
        container: Str,
        /// The attempt that was probed.
        attempt: u32,
        /// Which probe.
        kind: ProbeKind,
        /// Whether it succeeded.
        ok: bool,
        /// What it said when it failed.
        message: String,
        /// When.
        at: Time,
    },
    /// Nothing is left of a pod.
    Removed {
        /// The pod.
        pod_uid: Str,
    },
}

impl Facts {
    /// Takes a report in. Gives the key of the pod concerned when anything changed.
    pub fn take(&mut self, report: Report) -> Option<Key> {
        match report {
            Report::Removed { pod_uid } => {
                let gone = self.pods.remove(&pod_uid)?;
                Some(gone.key())
            }
            Report::Container { pod_uid, container, attempt, state } => {
                let pod = self.pods.get_mut(&pod_uid)?;
                let known = pod.containers.get_mut(&container)?;
                let is_news = known.attempt == attempt && known.state != state && !known.has_ended();
                if !is_news {
                    return None;
                }
                known.state = state;
                Some(pod.key())
            }
            Report::Probe { pod_uid, container, attempt, kind, ok, message, at } => {
                let pod = self.pods.get_mut(&pod_uid)?;
                let known = pod.containers.get_mut(&container).filter(|known| known.attempt == attempt)?;
                let probe = known.probes.entry(kind).or_default();
                *probe = ProbeFacts {
                    in_flight: None,
                    last: Some(at),
                    successes: if ok { probe.successes + 1 } else { 0 },
                    failures: if ok { 0 } else { probe.failures + 1 },
                    message,
                };
                Some(pod.key())
            }
        }
    }

    /// Notes that an effect was handed to the machine: what is in flight is a fact too.
    pub fn ordered(&mut self, effect: &Effect, now: Time) {
        match effect {
            Effect::Start(start) => self.start_ordered(start, now),
            Effect::Stop { pod_uid, container, attempt, .. } => {
                if let Some(known) = self.container(pod_uid, container, *attempt) {
                    known.stopping.get_or_insert(now);
                }
            }
            Effect::Remove { pod_uid } => {
                if let Some(pod) = self.pods.get_mut(pod_uid) {
                    pod.removing.get_or_insert(now);
                }
            }
            Effect::Probe(probe) => {
                if let Some(known) = self.container(&probe.pod_uid, &probe.container, probe.attempt) {
                    known.probes.entry(probe.kind).or_default().in_flight = Some(now);
                }
            }
        }
    }

    fn container(&mut self, pod_uid: &Str, container: &Str, attempt: u32) -> Option<&mut ContainerFacts> {
        let known = self.pods.get_mut(pod_uid)?.containers.get_mut(container)?;
        (known.attempt == attempt).then_some(known)
    }

    fn start_ordered(&mut self, start: &Start, now: Time) {
        let pod = self.pods.entry(start.pod_uid.clone()).or_insert_with(|| PodFacts {
            namespace: start.namespace.clone(),
            name: start.pod.clone(),
            node: start.node.clone(),
            ip: start.ip.clone(),
            ..PodFacts::default()
        });
        let before = pod.containers.get(&start.container);
        if before.is_some_and(|known| known.attempt >= start.attempt) {
            return;
        }
        let last = before.and_then(|known| known.ended().cloned().or_else(|| known.last.clone()));
        let state = ContainerState::Starting { since: now };
        let fresh = ContainerFacts { attempt: start.attempt, state, stopping: None, last, probes: Default::default() };
        pod.containers.insert(start.container.clone(), fresh);
    }
}

impl PodFacts {
    /// The pod's key.
    pub fn key(&self) -> Key {
        Key::new(Resource("pods"), &self.namespace, &self.name)
    }
}

impl ContainerFacts {
    /// How the attempt ended, if it has.
    pub fn ended(&self) -> Option<&super::Ended> {
        match &self.state {
            ContainerState::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Whether the attempt is over, by its end or by its refusal.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, ContainerState::Ended(_) | ContainerState::Refused { .. })
    }
}
