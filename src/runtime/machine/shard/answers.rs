//! Answers of shims, and their effects.
//!
//! Knows: the meaning of each answer, and the pending orders that it fulfils. Never: sends the first message; the shard
//! does. Start reading at [`Shard::read_answers`].

use super::super::super::wire::{self, RecordedState, ShimAnswer, ShimRecord};
use super::super::super::{image, probe};
use super::super::facts;
use super::super::shim_link::{LinkState, ParkState};
use super::{Shard, pod_mut};
use crate::object::Str;
use crate::world::Report;

impl Shard {
    /// Reads and applies a shim's answers.
    pub(super) fn read_answers(&mut self, uid: &Str) {
        let Some(link) = self.pods.get_mut(uid).and_then(|pod| pod.link.as_mut()) else { return };
        link.flush();
        let was_greeted = link.greeted;
        let (answers, link_state) = link.read();
        let is_new = link.greeted && !was_greeted;
        for answer in answers {
            self.apply_answer(uid, answer);
        }
        if let Some(pod) = self.pods.get_mut(uid).filter(|_| is_new) {
            pod.failing = None;
            self.ensure_connection(uid);
        }
        match link_state {
            LinkState::Stays => {}
            LinkState::Gone => self.lost(uid),
            LinkState::Foreign => {
                self.hang_up(uid);
                self.replace_shim(uid);
            }
        }
    }

    fn apply_answer(&mut self, uid: &Str, answer: ShimAnswer) {
        match answer {
            ShimAnswer::State(record) => self.take_state(uid, &record),
            ShimAnswer::Container { name, container } => {
                let pod = pod_mut(&mut self.pods, uid);
                pod.starts.retain(|launch| launch.container != name || launch.attempt > container.attempt);
                self.take_container(uid, &name, &container);
            }
            ShimAnswer::ExecDone { id, outcome, output } => {
                let probe = self.pods.get_mut(uid).and_then(|pod| pod.execs.remove(&id));
                if let Some(probe) = probe {
                    let result = probe::finding_of_exec(&probe, outcome, output);
                    (self.context.report)(probe::answer(&probe, result));
                }
            }
            ShimAnswer::Refused { why, start: Some((container, attempt)) } => {
                let pod = pod_mut(&mut self.pods, uid);
                pod.starts.retain(|launch| launch.container != container || launch.attempt != attempt);
                let refusal = image::ImageRefusal { reason: "CreateContainerError", message: why };
                self.refuse(uid, &container, attempt, refusal);
            }
            ShimAnswer::Limited { container, attempt, limits, error } => {
                let (pod_uid, container) = (uid.clone(), container.as_str().into());
                (self.context.report)(Report::Resized { pod_uid, container, attempt, limits, error });
            }
            ShimAnswer::NotRefreshed { error } => {
                let at = wire::moment(wire::now_nanos());
                (self.context.report)(Report::NotRefreshed { pod_uid: uid.clone(), at, why: error });
            }
            ShimAnswer::Denied(denial) => (self.context.report)(Report::Denied { pod_uid: uid.clone(), denial }),
            ShimAnswer::Bind(bind) => (self.context.report)(Report::Bind { pod_uid: uid.clone(), bind }),
            // A shim of an earlier version does not understand the request to park. Otherwise another leader has taken over, and that one
            // acts.
            ShimAnswer::Refused { .. } => {
                let link = self.pods.get_mut(uid).and_then(|pod| pod.link.as_mut());
                if let Some(link) =
                    link.filter(|link| matches!(link.park_state, ParkState::Asked | ParkState::Withdrawn))
                {
                    link.park_state = ParkState::Impossible;
                }
            }
            ShimAnswer::Parked => self.parked(uid),
            // Only attach clients receive these.
            ShimAnswer::Pong | ShimAnswer::Attached | ShimAnswer::Detached => {}
            ShimAnswer::Leaving => pod_mut(&mut self.pods, uid).leaving = true,
            ShimAnswer::Removed => self.report_removed(uid),
        }
    }

    pub(super) fn take_state(&mut self, uid: &Str, record: &ShimRecord) {
        for (name, container) in &record.containers {
            self.take_container(uid, name, container);
        }
        let pod = self.pods.get_mut(uid);
        let adopter = pod.and_then(|pod| {
            pod.shim = record.shim;
            pod.adopter.take()
        });
        if let Some(adopter) = adopter {
            let _ = adopter.send((uid.clone(), record.clone()));
        }
    }

    pub(super) fn take_container(&mut self, uid: &Str, name: &str, container: &wire::ContainerRecord) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.tries = 0;
        // An attempt that was refused may be tried again under its number: that start is still to be answered.
        let again = u32::from(matches!(container.state, RecordedState::Refused { .. }));
        pod.starts.retain(|launch| launch.container != name || launch.attempt + again > container.attempt);
        match container.process() {
            Some(_) => pod.running.insert(name.to_owned(), container.attempt),
            None => pod.running.remove(name),
        };
        self.report_state(uid, name, container.attempt, facts::state(&container.state));
    }
}
