//! From a shim's record to the facts that loops think about.

use super::super::wire::{Container, End, Record, State, moment};
use crate::world::facts::Stopping;
use crate::world::{ContainerFacts, ContainerState, Ended, PodFacts};

/// Converts a record to facts about a pod.
pub fn pod(record: &Record) -> PodFacts {
    let containers = record.containers.iter().map(|(name, known)| (name.as_str().into(), container(known)));
    PodFacts {
        namespace: record.pod.namespace.as_str().into(),
        name: record.pod.name.as_str().into(),
        node: record.pod.node.as_str().into(),
        ip: record.pod.ip.as_str().into(),
        containers: containers.collect(),
        removing: None,
        ..PodFacts::default()
    }
}

fn container(known: &Container) -> ContainerFacts {
    let stopping = known.stopping.map(|stop| {
        let since = moment(stop.since);
        Stopping { since, asked: since, kill_at: moment(stop.kill_at) }
    });
    let last = known.last.as_ref().map(ended);
    ContainerFacts { stopping, last, ..ContainerFacts::new(known.attempt, state(&known.state)) }
}

/// Converts the state of an attempt.
pub fn state(state: &State) -> ContainerState {
    match state {
        State::Running { process, since } => {
            ContainerState::Running { pid: process.pid.unsigned_abs(), since: moment(*since) }
        }
        State::Refused { reason, message, at } => {
            ContainerState::Refused { reason: reason.clone(), message: message.clone(), at: moment(*at) }
        }
        State::Ended(end) => ContainerState::Ended(ended(end)),
    }
}

fn ended(end: &End) -> Ended {
    Ended {
        code: end.code,
        signal: end.signal,
        reason: end.reason.clone(),
        message: end.message.clone(),
        started: end.started.map(moment),
        finished: moment(end.finished),
    }
}
