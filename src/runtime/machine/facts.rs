//! From a shim's record to the facts that loops think about.

use super::super::wire::{ContainerRecord, RecordedEnd, RecordedState, ShimRecord, moment};
use crate::world::facts::OrderedStop;
use crate::world::{AttemptEnd, ContainerFacts, ContainerState, PodFacts};

/// Converts a record to facts about a pod.
pub fn pod(record: &ShimRecord) -> PodFacts {
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

fn container(known: &ContainerRecord) -> ContainerFacts {
    let stopping = known.stopping.map(|stop| {
        let since = moment(stop.since);
        OrderedStop { since, asked: since, kill_at: moment(stop.kill_at) }
    });
    let last = known.last.as_ref().map(ended);
    ContainerFacts { stopping, last, ..ContainerFacts::new(known.attempt, state(&known.state)) }
}

/// Converts the state of an attempt.
pub fn state(state: &RecordedState) -> ContainerState {
    match state {
        RecordedState::Running { process, since } => {
            ContainerState::Running { pid: process.pid.unsigned_abs(), since: moment(*since) }
        }
        RecordedState::Refused { reason, message, at } => {
            ContainerState::Refused { reason: reason.clone(), message: message.clone(), at: moment(*at) }
        }
        RecordedState::Ended(end) => ContainerState::Ended(ended(end)),
    }
}

fn ended(end: &RecordedEnd) -> AttemptEnd {
    AttemptEnd {
        code: end.code,
        signal: end.signal,
        reason: end.reason.clone(),
        message: end.message.clone(),
        started: end.started.map(moment),
        finished: moment(end.finished),
    }
}
