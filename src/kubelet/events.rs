//! Events of a pod, each recorded once: when the status that is about to be written differs from the stored one.

use super::actions::{ContainerAction, PodActions};
use super::pod::{AttemptState, ContainerRole, LocalPod, PodContainer, waits_for_next};
use super::{deadlines, eviction, message, ports, probes, resources, security, volumes};
use crate::kinds::pod::unsupported;
use crate::object::Time;
use crate::world::facts::ThrottlingState;
use crate::world::{AttemptEnd, EventType, Memory, Plan, PlannedEvent};
use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, PodStatus};

/// Adds the events about the changes between the stored and the new status.
pub fn add_transition_events(pod: &LocalPod, order: &PodActions, new: &PodStatus, plan: &mut Plan) {
    if pod.is_simulated {
        return add_start_failure_events(pod, order, new, plan);
    }
    if pod.status.start_time.is_none() {
        let fields = unsupported::fields(&pod.row.field("spec"), "spec").into_iter();
        let fields_with_advice: Vec<String> = fields.map(|(field, instead)| format!("{field} ({instead})")).collect();
        if !fields_with_advice.is_empty() {
            plan.event(
                pod.row,
                EventType::Warning,
                "Unsupported",
                format!("Not supported by kloop yet: {}", fields_with_advice.join(", ")),
            );
        }
    }
    add_blocked_event(pod, order, plan);
    if new.reason != pod.status.reason && new.reason.as_deref() == Some(deadlines::REASON) {
        plan.event(pod.row, EventType::Normal, deadlines::REASON, deadlines::MESSAGE);
    }
    if let Some(reason) = eviction::reason_of(new).filter(|_| new.reason != pod.status.reason) {
        let message = new.message.as_deref().unwrap_or_default();
        plan.event(pod.row, EventType::Warning, reason.to_owned(), eviction::event(message));
    }
    if pod.facts.is_none() && order.steps.iter().any(|step| matches!(step, ContainerAction::Start(_))) {
        resources::report_unenforced_limits(pod, plan);
        resources::report_volumes_on_disk(pod, plan);
        volumes::report_shared_files(pod, plan);
        volumes::report_unusable_names(pod, plan);
        security::report_missing_rights(pod, plan);
        message::report_shared_message_path(pod, plan);
        ports::report_low_ports(pod, plan);
    }
    ports::report_denied_connections(pod, plan);
    for (member, step) in pod.members.iter().zip(&order.steps) {
        let mut events = EventSource { pod, member, plan };
        events.started();
        events.lost();
        if member.role == ContainerRole::Ephemeral && matches!(step, ContainerAction::Start(_)) {
            security::report_missing_capabilities(pod, member, events.plan);
        }
        if let Some(status) = status_of(new, member) {
            events.waiting(status, step);
        }
        if !pod.is_staged() {
            events.throttled();
            probes::report_failures(pod, member, events.plan);
        }
        events.stopped(step);
    }
}

/// Events of a simulated pod: only those that explain why it cannot start.
fn add_start_failure_events(pod: &LocalPod, order: &PodActions, new: &PodStatus, plan: &mut Plan) {
    add_blocked_event(pod, order, plan);
    for (member, step) in pod.members.iter().zip(&order.steps) {
        if let (ContainerAction::Misconfigured(_), Some(status)) = (step, status_of(new, member)) {
            EventSource { pod, member, plan }.waiting(status, step);
        }
    }
}

/// Why no container of the pod can be made, once.
fn add_blocked_event(pod: &LocalPod, order: &PodActions, plan: &mut Plan) {
    let was_blocked = pod.condition("PodReadyToStartContainers").is_some_and(|condition| condition.status == "False");
    if let Some(blocked) = order.blocked.as_ref().filter(|_| !was_blocked) {
        plan.event(pod.row, EventType::Warning, blocked.reason, &*blocked.message);
    }
}

fn status_of<'a>(new: &'a PodStatus, member: &PodContainer) -> Option<&'a ContainerStatus> {
    let lists = [&new.init_container_statuses, &new.container_statuses, &new.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == member.spec.name)
}

struct EventSource<'a, 'p> {
    pod: &'a LocalPod<'a>,
    member: &'a PodContainer,
    plan: &'p mut Plan,
}

impl EventSource<'_, '_> {
    fn event(&mut self, kind: EventType, reason: &'static str, message: String) {
        self.event_until(kind, reason, message, None);
    }

    fn event_until(&mut self, kind: EventType, reason: &'static str, message: String, until: Option<Time>) {
        self.plan.events.push(PlannedEvent {
            about: self.pod.row.key.clone(),
            uid: self.pod.row.uid.clone(),
            field_path: self.member.field_path(),
            kind,
            reason: reason.into(),
            message,
            until,
        });
    }

    /// Adds the events of an attempt that has started (and may have ended by now), unless the status already shows it.
    fn started(&mut self) {
        let has_run = match &self.member.state {
            AttemptState::Running { .. } => !self.member.is_starting(),
            AttemptState::Ended(ended) => {
                (ended.started.is_some() || ended.is_start_error()) && self.member.facts.is_some()
            }
            _ => false,
        };
        if !has_run || self.is_in_status() {
            return;
        }
        let image = self.member.spec.image.clone().unwrap_or_default();
        let pulled = match self.member.spec.image_pull_policy.as_deref() {
            // The image is resolved again at each start, without the network.
            Some("Always") => {
                self.pulling();
                format!("Successfully pulled image {image:?} in 0s (0s including waiting)")
            }
            _ => format!("Container image {image:?} already present on machine"),
        };
        self.event(EventType::Normal, "Pulled", pulled);
        // Since Kubernetes 1.35 without the container's name, which the field path has.
        self.event(EventType::Normal, "Created", "Container created".into());
        match self.member.ended().filter(|ended| ended.is_start_error()) {
            Some(ended) => self.event(EventType::Warning, "Failed", format!("Error: {}", ended.message)),
            None => self.event(EventType::Normal, "Started", "Container started".into()),
        }
    }

    fn pulling(&mut self) {
        let image = self.member.spec.image.as_deref().unwrap_or_default();
        let message = format!("Pulling image {image:?}");
        self.event(EventType::Normal, "Pulling", message);
    }

    /// Adds an event about an exit that no shim saw. Kubernetes has none, but users look in events for the cause of a restart.
    fn lost(&mut self) {
        let ended = self.member.ended().filter(|ended| ended.reason.as_deref() == Some(AttemptEnd::UNKNOWN));
        if let Some(ended) = ended.filter(|_| self.member.old_while_running().is_some()) {
            self.event(EventType::Warning, AttemptEnd::UNKNOWN, ended.message.clone());
        }
    }

    /// Adds an event about CPU throttling, for which Kubernetes has only an alert (CPUThrottlingHigh). It has no numbers, so that equal
    /// events become one.
    fn throttled(&mut self) {
        if self.member.facts.as_ref().is_none_or(|facts| facts.throttled != ThrottlingState::Unreported) {
            return;
        }
        let name = &self.member.spec.name;
        let limit = self.member.cpu_limit().map(|limit| format!(" ({limit})")).unwrap_or_default();
        let message =
            format!("CPU limit{limit} holds container {name} back: it is throttled in a quarter of the time or more");
        self.event(EventType::Warning, "CPUThrottling", message);
        let (pod_uid, container) = (self.pod.row.uid.clone(), name.as_str().into());
        self.plan.memory.push(Memory::ThrottlingReported { pod_uid, container, attempt: self.member.attempt });
    }

    /// Whether the stored status shows that this attempt has run.
    fn is_in_status(&self) -> bool {
        let Some(old) = &self.member.old else { return false };
        let same = u32::try_from(old.restart_count) == Ok(self.member.attempt);
        let state = old.state.clone().unwrap_or_default();
        let waits_after_end =
            waiting_reason(old).is_some_and(|reason| waits_for_next(&reason)) && self.member.ended().is_some();
        same && (state.running.is_some() || state.terminated.is_some() || waits_after_end)
    }

    fn waiting(&mut self, status: &ContainerStatus, step: &ContainerAction) {
        self.unmounted(status);
        let new = waiting_reason(status);
        let Some(reason) = new.filter(|_| self.member.old.as_ref().and_then(waiting_reason) != waiting_reason(status))
        else {
            return;
        };
        let message = waiting(status).and_then(|waiting| waiting.message.clone()).unwrap_or_default();
        let image = self.member.spec.image.clone().unwrap_or_default();
        let name = self.member.spec.name.clone();
        match reason.as_str() {
            "ErrImagePull" => {
                self.pulling();
                let message = message.strip_prefix(&format!("failed to pull image {image:?}: ")).unwrap_or(&message);
                self.event(EventType::Warning, "Failed", format!("Failed to pull image {image:?}: {message}"));
                self.event(EventType::Warning, "Failed", format!("Error: {reason}"));
            }
            "ImagePullBackOff" => {
                self.event(EventType::Normal, "BackOff", format!("Back-off pulling image {image:?}"));
                self.event(EventType::Warning, "Failed", format!("Error: {reason}"));
            }
            "ErrImageNeverPull" => {
                let message = format!("Container image {image:?} is not present with pull policy of Never");
                self.event(EventType::Warning, "ErrImageNeverPull", message);
                self.event(EventType::Warning, "Failed", format!("Error: {reason}"));
            }
            "InvalidImageName" => {
                self.event(EventType::Warning, "InspectFailed", message);
                self.event(EventType::Warning, "Failed", format!("Error: {reason}"));
            }
            "ErrImageBuild" => {
                self.event(EventType::Warning, "Failed", format!("Failed to build image {image:?}: {message}"));
                self.event(EventType::Warning, "Failed", format!("Error: {reason}"));
            }
            "CreateContainerConfigError" | "CreateContainerError" => {
                self.event(EventType::Warning, "Failed", format!("Error: {message}"));
            }
            "CrashLoopBackOff" => {
                let pod = self.pod.full_name();
                let message = format!("Back-off restarting failed container {name} in pod {pod}");
                let until = if let ContainerAction::BackOff { due, .. } = step { Some(*due) } else { None };
                self.event_until(EventType::Warning, "BackOff", message, until);
            }
            _ => {}
        }
    }

    /// Adds an event about a volume that the machine could not set up, each time that the message changes.
    fn unmounted(&mut self, status: &ContainerStatus) {
        let mount_error = |status: &ContainerStatus| {
            let waiting = waiting(status).filter(|waiting| waiting.reason.as_deref() == Some("ContainerCreating"));
            waiting.and_then(|waiting| waiting.message.clone())
        };
        if let Some(message) =
            mount_error(status).filter(|new| self.member.old.as_ref().and_then(mount_error).as_ref() != Some(new))
        {
            self.plan.event(self.pod.row, EventType::Warning, "FailedMount", message);
        }
    }

    fn stopped(&mut self, step: &ContainerAction) {
        let (ContainerAction::Stop { event: Some(event), .. } | ContainerAction::PreStop { event: Some(event), .. }) =
            step
        else {
            return;
        };
        self.event(EventType::Normal, "Killing", event.clone());
    }
}

fn waiting(status: &ContainerStatus) -> Option<&ContainerStateWaiting> {
    status.state.as_ref()?.waiting.as_ref()
}

fn waiting_reason(status: &ContainerStatus) -> Option<String> {
    waiting(status)?.reason.clone()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use crate::world::Report;
    use crate::world::usage::{Throttling, UsageSample};
    use serde_json::json;

    #[test]
    fn fields_that_nothing_acts_on_are_told_once() {
        let spec = json!({"hostUsers": false, "runtimeClassName": "x", "containers": [{"name": "c", "image": "a"}]});
        let mut machine = TestMachine::new(pod(spec));
        machine.run_to(100);
        assert_eq!(machine.reasons(), ["Unsupported", "Pulled", "Created", "Started"]);
        let told = "Not supported by kloop yet: spec.hostUsers (users in the pod are the machine's users), \
                    spec.runtimeClassName (kloop has only one container runtime)";
        assert_eq!(machine.events[0].message, told);
    }
    #[test]
    fn cpu_limit_that_throttles_a_container_is_reported_once() {
        let limited = json!({"name": "c", "image": "a", "resources": {"limits": {"cpu": "100m"}}});
        let mut machine = TestMachine::new(pod(json!({"containers": [limited]})));
        machine.run_to(10);
        for (second, throttled) in [(20, 10), (30, 60), (40, 160)] {
            machine.run_to(second);
            let throttling = Throttling { periods: second as u64 * 10, throttled, nanos: 1 };
            let sample =
                UsageSample { cpu_nanos: second as u64 * 1000, memory: 1, throttling, ..UsageSample::default() };
            let at = machine.world.now;
            machine.report(Report::Usage { pod_uid: "uid-p".into(), at, samples: vec![("c".into(), sample)] });
            machine.settle();
        }
        assert_eq!(machine.reasons(), ["Pulled", "Created", "Started", "CPUThrottling"]);
        assert!(machine.events[3].message.starts_with("CPU limit (100m) holds container c back"));
    }
}
