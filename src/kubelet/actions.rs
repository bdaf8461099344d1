//! The actions of a pod's plan: one step for each container.
//!
//! Never: decides or carries out any of them; [`containers`](super::containers) does.

use super::pod::LocalPod;
use crate::object::time::Shift;
use crate::object::{Str, Time};
use crate::world::Start;
use jiff::SignedDuration;

/// Time after the SIGKILL was due until an unanswered stop is ordered again.
pub const STOP_UNANSWERED: SignedDuration = SignedDuration::from_secs(10);

/// Actions for a pod.
pub struct PodActions {
    /// One step for each member, in their order.
    pub steps: Vec<ContainerAction>,
    /// The pod's address; `None` while it cannot have one.
    pub ip: Option<Str>,
    /// The reason why no container of the pod can be started.
    pub blocked: Option<StartFailure>,
    /// Times of the next plans.
    pub wakes: Vec<Time>,
}

/// Action for one container.
#[derive(Debug, Clone, PartialEq)]
pub enum ContainerAction {
    /// Nothing has to be done.
    Keep,
    /// Starts this attempt.
    Start(Box<Start>),
    /// The container cannot be configured, because an object that it refers to is missing.
    Misconfigured(String),
    /// The container has ended and is restarted after a pause.
    BackOff {
        /// The pause in seconds.
        seconds: i64,
        /// End of the pause.
        due: Time,
    },
    /// Counts this attempt as used, because all containers of the pod restart.
    Renew,
    /// Runs the preStop hook.
    PreStop {
        /// Maximum seconds for the hook.
        grace: i64,
        /// Message of the event with the reason for the stop.
        event: Option<String>,
    },
    /// Stops the running attempt.
    Stop {
        /// Seconds until SIGKILL.
        grace: i64,
        /// Message of the event; `None` when the stop is only repeated.
        event: Option<String>,
    },
}

/// The reason why no container of the pod can be started, as an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// Reason of the event.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

impl PodActions {
    /// Makes actions that change no container.
    pub fn keep_all(pod: &LocalPod) -> PodActions {
        PodActions { steps: vec![ContainerAction::Keep; pod.members.len()], ip: None, blocked: None, wakes: Vec::new() }
    }

    /// Whether no container has anything to do.
    pub fn keeps_all(&self) -> bool {
        self.steps.iter().all(|step| *step == ContainerAction::Keep)
    }

    /// Stops a running member, and repeats the order when the machine does not answer.
    pub fn stop(&mut self, pod: &LocalPod, place: usize, grace: i64) {
        let member = &pod.members[place];
        let now = pod.world.now;
        let Some(known) = member.facts.as_ref().and_then(|facts| facts.stopping) else {
            let event = Some(format!("Stopping container {}", member.spec.name));
            self.steps[place] = ContainerAction::Stop { grace, event };
            return;
        };
        let is_shorter =
            pod.row.is_deleting() && now.later(SignedDuration::from_secs(grace.saturating_add(1))) < known.kill_at;
        let ask_again = known.kill_at.max(known.asked).later(STOP_UNANSWERED);
        if is_shorter {
            self.steps[place] = ContainerAction::Stop { grace, event: None };
        } else if now >= ask_again {
            self.steps[place] = ContainerAction::Stop { grace: 0, event: None };
        } else {
            self.wakes.push(ask_again);
        }
    }
}
