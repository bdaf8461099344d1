//! The actions that the plan of a pod decides on: one step for each container.
//!
//! Never: decides or carries out any of them; [`containers`](super::containers) does.

use super::pod::LocalPod;
use crate::object::time::Shift;
use crate::object::{Str, Time};
use crate::world::Start;
use jiff::SignedDuration;

/// So long after SIGKILL was due, a stop that is not answered is ordered again.
pub const STOP_UNANSWERED: SignedDuration = SignedDuration::from_secs(10);

/// Actions for a pod.
pub struct PodActions {
    /// One step for each member, in their order.
    pub steps: Vec<ContainerAction>,
    /// The pod's address; none while it cannot have one.
    pub ip: Option<Str>,
    /// Why no container of the pod can be made at all.
    pub blocked: Option<StartFailure>,
    /// Moments to plan again at.
    pub wakes: Vec<Time>,
}

/// Action for one container.
#[derive(Debug, Clone, PartialEq)]
pub enum ContainerAction {
    /// Nothing.
    Keep,
    /// Start this attempt.
    Start(Box<Start>),
    /// It cannot be configured: something that it refers to is missing.
    Misconfigured(String),
    /// It has ended, and is started again after a pause of so many seconds.
    BackOff {
        /// The pause.
        seconds: i64,
        /// When it is over.
        due: Time,
    },
    /// All containers of the pod start again: this attempt counts as used.
    Renew,
    /// Run the hook that comes before its end.
    PreStop {
        /// Seconds that it has.
        grace: i64,
        /// The event that says why the container has to end.
        event: Option<String>,
    },
    /// End the running attempt.
    Stop {
        /// Seconds until SIGKILL.
        grace: i64,
        /// The event that says why; `None` when the stop is only ordered again.
        event: Option<String>,
    },
}

/// Why no container of the pod can be started, as an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// Reason of the event.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

impl PodActions {
    /// Nothing for any container.
    pub fn nothing(pod: &LocalPod) -> PodActions {
        PodActions { steps: vec![ContainerAction::Keep; pod.members.len()], ip: None, blocked: None, wakes: Vec::new() }
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
