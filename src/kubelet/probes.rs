//! Schedule and results of probes.
//!
//! A startup probe holds the others back; a liveness (or startup) probe that fails too often ends the container; a readiness
//! probe decides whether the container is ready. A startup or readiness probe that has never succeeded is also run before
//! its period's end, with growing pauses; those early runs count only when they succeed.

use super::actions::ContainerAction;
use super::pod::{AttemptState, LocalPod, PodContainer};
use crate::kinds::shared::probe_handler::ProbeHandler;
use crate::object::Time;
use crate::object::time::Shift;
use crate::world::{Effect, EventType, Memory, Plan, PlannedEvent, ProbeFacts, ProbeKind, ProbeResult, ProbeRun};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Probe;

const KINDS: [ProbeKind; 3] = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness];

/// A probe that is not answered this many seconds after its timeout is ordered again.
const UNANSWERED_SECONDS: i64 = 5;

/// Time that a container without a readiness probe runs before it is ready. A program that ends at once would otherwise count as ready
/// for a moment, in which a rollout removes old pods. Kubernetes' kubelet looks at a container about a second after its start.
pub const READY_AFTER: SignedDuration = SignedDuration::from_millis(200);

/// Shortest pause before an early run of a probe. Later it is [`PAUSE_PART`] of the time since the first run.
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_millis(50);

/// A pod is found ready after at most a quarter more than the time that its program takes to start.
const PAUSE_PART: i32 = 4;

/// Whether the container has started: it runs, and its startup probe has succeeded once.
pub fn is_started(member: &PodContainer) -> bool {
    if !matches!(member.state, AttemptState::Running { .. }) || member.is_starting() {
        return false;
    }
    let known = member.old_while_running().is_some_and(|old| old.started == Some(true));
    spec_of(member, ProbeKind::Startup).is_none()
        || known
        || member.probe(ProbeKind::Startup).is_some_and(|probe| probe.successes >= 1)
}

/// Whether the container is ready: it has started, and its readiness probe, if it has one, succeeds, or else it has run for a short time.
/// Between its thresholds a probe changes nothing.
pub fn is_ready(pod: &LocalPod, member: &PodContainer) -> bool {
    let Some(spec) = spec_of(member, ProbeKind::Readiness) else {
        return is_started(member) && settles_at(pod, member).is_none();
    };
    let known = member.old_while_running().is_some_and(|old| old.ready);
    let results = member.probe(ProbeKind::Readiness);
    let ready = match results {
        Some(probe) if probe.successes >= spec.success_threshold.unwrap_or(1) => true,
        Some(probe) if probe.failures >= failure_threshold(spec) => false,
        _ => known,
    };
    is_started(member) && ready
}

/// The time at which a running container without a readiness probe has run long enough to be ready; `None` when it has.
fn settles_at(pod: &LocalPod, member: &PodContainer) -> Option<Time> {
    let AttemptState::Running { since } = member.state else { return None };
    let is_new = !pod.is_simulated && member.old_while_running().is_none_or(|old| !old.ready);
    // The machine's clock may have been set back since the start.
    let ran = pod.world.now.duration_since(since).abs();
    (is_new && ran < pod.world.settings.ready_after).then(|| since.later(pod.world.settings.ready_after))
}

/// The stop of a container that a startup or liveness probe has given up.
pub fn failed(pod: &LocalPod, member: &PodContainer) -> Option<ContainerAction> {
    let stopping = member.facts.as_ref().is_some_and(|facts| facts.stopping.is_some());
    if stopping || !matches!(member.state, AttemptState::Running { .. }) {
        return None;
    }
    let kind = if is_started(member) { ProbeKind::Liveness } else { ProbeKind::Startup };
    let spec = spec_of(member, kind).filter(|_| is_given_up(member, kind))?;
    let grace = spec.termination_grace_period_seconds.unwrap_or(pod.grace_seconds());
    let event = format!("Container {} failed {} probe, will be restarted", member.spec.name, name(kind).to_lowercase());
    Some(ContainerAction::Stop { grace, event: Some(event) })
}

/// Orders the probes that are due, and wakes the plan for the next ones. A second plan in the same tick orders none, because the orders of
/// the first become facts only after the commit.
pub fn order_probes(pod: &LocalPod, plan: &mut Plan) {
    let soonest = pod.world.now.later(SignedDuration::from_secs(i64::from(pod.is_staged())));
    for member in &pod.members {
        let AttemptState::Running { since } = member.state else { continue };
        let Some(facts) = &member.facts else { continue };
        if spec_of(member, ProbeKind::Readiness).is_none() {
            settles_at(pod, member).into_iter().for_each(|at| plan.wake_at(at));
        }
        for kind in KINDS.into_iter().filter(|kind| runs(pod, member, *kind)) {
            let Some(spec) = spec_of(member, kind) else { continue };
            let results = facts.probes.get(&kind).cloned().unwrap_or_default();
            let (due, counts_from) = next_run(spec, kind, since, &results);
            if due.max(soonest) > pod.world.now {
                plan.wake_at(due.max(soonest));
                continue;
            }
            let timeout = i64::from(spec.timeout_seconds.unwrap_or(1));
            let mut run = probe_run(pod, member, kind, ProbeHandler::from_probe(spec), timeout);
            run.counts_from = counts_from;
            plan.effects.push(Effect::Probe(Box::new(run)));
        }
    }
}

/// The order of one probe, or of a hook.
pub fn start_probe(
    pod: &LocalPod,
    member: &PodContainer,
    kind: ProbeKind,
    handler: Option<ProbeHandler>,
    timeout_seconds: i64,
) -> Effect {
    Effect::Probe(Box::new(probe_run(pod, member, kind, handler, timeout_seconds)))
}

fn probe_run(
    pod: &LocalPod,
    member: &PodContainer,
    kind: ProbeKind,
    handler: Option<ProbeHandler>,
    timeout_seconds: i64,
) -> ProbeRun {
    ProbeRun {
        pod_uid: pod.row.uid.clone(),
        container: member.spec.name.as_str().into(),
        attempt: member.attempt,
        kind,
        handler: handler.map(|handler| handler.with_port(|name| port_number(member, name))),
        ip: pod.facts.as_deref().map(|facts| facts.ip.clone()).unwrap_or_else(|| "".into()),
        timeout_seconds,
        counts_from: None,
    }
}

/// Adds an event for every failure of the container's probes that has none yet.
pub fn report_failures(pod: &LocalPod, member: &PodContainer, plan: &mut Plan) {
    for kind in KINDS.into_iter().chain([ProbeKind::PostStart, ProbeKind::PreStop]) {
        let Some((results, verdict)) = member.probe(kind).and_then(|results| Some((results, results.unreported?)))
        else {
            continue;
        };
        plan.events.push(PlannedEvent {
            about: pod.row.key.clone(),
            uid: pod.row.uid.clone(),
            field_path: member.field_path(),
            kind: EventType::Warning,
            reason: reason(kind, verdict).into(),
            message: match kind {
                ProbeKind::PostStart | ProbeKind::PreStop if results.message.is_empty() => {
                    format!("{} failed", name(kind))
                }
                ProbeKind::PostStart | ProbeKind::PreStop => format!("{} failed: {}", name(kind), results.message),
                _ => format!("{} probe {}: {}", name(kind), outcome(verdict), results.message),
            },
            until: None,
        });
        if verdict == ProbeResult::Failure && member.cpu_limit().is_some() {
            // The CPU limit may make it slow: measures the throttling, which leads to an event if it is high.
            plan.effects.push(Effect::Measure { pods: vec![pod.row.uid.clone()] });
        }
        let (pod_uid, container) = (pod.row.uid.clone(), member.spec.name.as_str().into());
        plan.memory.push(Memory::ProbeReported { pod_uid, container, attempt: member.attempt, kind });
    }
}

/// Whether a probe runs: the liveness probe does not while the container stops, and the startup probe delays the
/// others.
fn runs(pod: &LocalPod, member: &PodContainer, kind: ProbeKind) -> bool {
    let ending = member.facts.as_ref().is_some_and(|facts| facts.stopping.is_some()) || pod.row.is_deleting();
    match kind {
        ProbeKind::Startup => !ending && !is_started(member) && !is_given_up(member, kind),
        ProbeKind::Liveness => !ending && is_started(member) && !is_given_up(member, kind),
        ProbeKind::Readiness => is_started(member),
        ProbeKind::PostStart | ProbeKind::PreStop => false,
    }
}

/// Whether a probe has failed so often that its container is ended.
fn is_given_up(member: &PodContainer, kind: ProbeKind) -> bool {
    let failures = member.probe(kind).map_or(0, |probe| probe.failures);
    spec_of(member, kind).is_some_and(|spec| failures >= failure_threshold(spec))
}

/// Returns the time of the next run, and for an early one the end of its period.
fn next_run(spec: &Probe, kind: ProbeKind, since: Time, results: &ProbeFacts) -> (Time, Option<Time>) {
    let seconds = |count: i64| SignedDuration::from_secs(count);
    match (results.in_flight, results.last) {
        (Some(asked), _) => {
            (asked.later(seconds(i64::from(spec.timeout_seconds.unwrap_or(1)) + UNANSWERED_SECONDS)), None)
        }
        (None, Some(last)) => {
            let regular = last.later(seconds(i64::from(spec.period_seconds.unwrap_or(10))));
            match early_run(kind, last, results).filter(|early| *early < regular) {
                Some(early) => (early, Some(regular)),
                None => (regular, None),
            }
        }
        (None, None) => (since.later(seconds(i64::from(spec.initial_delay_seconds.unwrap_or(0)))), None),
    }
}

/// Returns the time of the next early run, if the probe has never succeeded and is not a liveness probe.
fn early_run(kind: ProbeKind, last: Time, results: &ProbeFacts) -> Option<Time> {
    let first = results.since.filter(|_| kind != ProbeKind::Liveness && !results.has_succeeded)?;
    let last = results.last_early.map_or(last, |early| early.max(last));
    let pause = last.duration_since(first) / PAUSE_PART;
    Some(last.later(pause.max(SHORTEST_PAUSE)))
}

/// The probe of one kind, if the container has it.
pub fn spec_of(member: &PodContainer, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => member.spec.startup_probe.as_ref(),
        ProbeKind::Liveness => member.spec.liveness_probe.as_ref(),
        ProbeKind::Readiness => member.spec.readiness_probe.as_ref(),
        ProbeKind::PostStart | ProbeKind::PreStop => None,
    }
}

fn failure_threshold(spec: &Probe) -> i32 {
    spec.failure_threshold.unwrap_or(3)
}

fn name(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Startup => "Startup",
        ProbeKind::Liveness => "Liveness",
        ProbeKind::Readiness => "Readiness",
        ProbeKind::PostStart => "PostStartHook",
        ProbeKind::PreStop => "PreStopHook",
    }
}

fn reason(kind: ProbeKind, verdict: ProbeResult) -> &'static str {
    match (kind, verdict) {
        (ProbeKind::PostStart, _) => "FailedPostStartHook",
        (ProbeKind::PreStop, _) => "FailedPreStopHook",
        (_, ProbeResult::Warning) => "ProbeWarning",
        _ => "Unhealthy",
    }
}

/// The kubelet's words (prober.go).
fn outcome(verdict: ProbeResult) -> &'static str {
    match verdict {
        ProbeResult::Unknown => "errored and resulted in unknown state",
        ProbeResult::Warning => "warning",
        ProbeResult::Success | ProbeResult::Failure => "failed",
    }
}

fn port_number(member: &PodContainer, name: &str) -> Option<i32> {
    let ports = member.spec.ports.iter().flatten();
    let named = ports.into_iter().find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port);
    named.or_else(|| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ContainerBehaviour, TestMachine, pod};
    use crate::world::{Effect, ProbeKind, ProbeResult};
    use serde_json::{Value, json};

    fn probed(probes: Value) -> TestMachine {
        let mut container = json!({"name": "c", "image": "a", "ports": [{"name": "web", "containerPort": 8080}]});
        for (field, probe) in probes.as_object().unwrap() {
            container[field] = probe.clone();
        }
        TestMachine::new(pod(json!({"terminationGracePeriodSeconds": 7, "containers": [container]})))
    }

    fn http(more: Value) -> Value {
        let mut probe = json!({"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 10, "failureThreshold": 3,
            "timeoutSeconds": 1, "successThreshold": 1});
        for (field, value) in more.as_object().unwrap() {
            probe[field] = value.clone();
        }
        probe
    }

    #[test]
    fn container_without_a_probe_is_ready_after_a_short_run() {
        for (behaviour, ready) in [
            (ContainerBehaviour::Stay, ["ContainersNotReady", "ContainersNotReady", "True"]),
            (ContainerBehaviour::Exit(1, 1), ["ContainersNotReady"; 3]),
        ] {
            let mut machine = probed(json!({}));
            machine.world.settings.ready_after = jiff::SignedDuration::from_secs(2);
            machine.set_behaviour("c", behaviour);
            for (second, expected) in ready.into_iter().enumerate() {
                machine.run_to(second as i64);
                assert_eq!(machine.condition("Ready"), expected, "{second}");
            }
            let count = machine.writes;
            if ready[2] == "True" {
                machine.run_to(100);
                assert_eq!(machine.writes, count, "quiet when right");
            }
        }
    }

    #[test]
    fn readiness_follows_its_thresholds() {
        let mut machine =
            probed(json!({"readinessProbe": http(json!({"initialDelaySeconds": 5, "successThreshold": 2}))}));
        machine.run_to(14);
        assert_eq!(machine.condition("Ready"), "ContainersNotReady");
        machine.run_to(15);
        assert_eq!(machine.take_messages(), ["0 start c#0", "5 readiness ok", "15 readiness ok"]);
        assert_eq!(machine.condition("Ready"), "True");
        machine.probe("readiness", false).run_to(36);
        assert_eq!(machine.condition("Ready"), "True", "two failures are not three");
        machine.run_to(45);
        assert_eq!(machine.condition("Ready"), "ContainersNotReady");
        assert_eq!(machine.summary(), "Running c=running/0");
        let unhealthy = machine.events.iter().filter(|event| event.reason == "Unhealthy");
        assert_eq!(unhealthy.map(|event| &*event.message).collect::<Vec<_>>(), ["Readiness probe failed: no"; 3]);
    }

    #[test]
    fn liveness_probe_failure_restarts_the_container() {
        let mut machine = probed(json!({"livenessProbe": http(json!({"failureThreshold": 2, "periodSeconds": 3}))}));
        machine.probe("liveness", false).run_to(4);
        let expected = [
            "0 start c#0",
            "0 liveness fails",
            "3 liveness fails",
            "3 stop c in 7",
            "3 c ends 143",
            "3 start c#1",
            "3 liveness fails",
        ];
        assert_eq!(machine.take_messages(), expected);
        assert_eq!(machine.summary(), "Running c+=running/1");
        let told: Vec<_> = machine.events.iter().map(|event| &*event.message).skip(3).take(3).collect();
        let killing = "Container c failed liveness probe, will be restarted";
        assert_eq!(told, ["Liveness probe failed: no", "Liveness probe failed: no", killing]);
    }

    #[test]
    fn probe_that_could_not_be_made_is_not_counted_and_a_warning_is_a_success() {
        let mut machine = probed(json!({"livenessProbe": http(json!({"failureThreshold": 1}))}));
        machine.verdict("liveness", ProbeResult::Unknown).run_to(25);
        assert_eq!(machine.summary(), "Running c+=running/0");
        let told = |machine: &TestMachine| {
            machine.events.iter().skip(3).map(|event| format!("{} {}", event.reason, event.message)).collect::<Vec<_>>()
        };
        assert_eq!(told(&machine), ["Unhealthy Liveness probe errored and resulted in unknown state: no"; 3]);
        let mut machine = probed(json!({"readinessProbe": http(json!({}))}));
        machine.verdict("readiness", ProbeResult::Warning).run_to(5);
        assert_eq!(machine.condition("Ready"), "True");
        assert_eq!(told(&machine), ["ProbeWarning Readiness probe warning: no"]);
    }

    #[test]
    fn probe_failure_is_reported_when_it_happens() {
        let mut machine = probed(json!({"livenessProbe": http(json!({}))}));
        machine.probe("liveness", false).run_to(0);
        assert_eq!(machine.reasons(), ["Pulled", "Created", "Started", "Unhealthy"]);
        machine.run_to(9);
        assert_eq!(machine.reasons().len(), 4, "once");
    }

    #[test]
    fn tick_orders_a_probe_once_though_it_plans_twice() {
        let mut machine = probed(json!({"livenessProbe": http(json!({"initialDelaySeconds": 1}))}));
        machine.run_to(0);
        machine.world.now += jiff::SignedDuration::from_secs(1);
        let plan = |machine: &TestMachine| (super::super::LOOP.plan)(&machine.world, &super::super::testing::key("p"));
        assert_eq!(plan(&machine).effects.len(), 1);
        let (key, pod) = (super::super::testing::key("p"), machine.pod());
        machine.world.stage(key, Some(pod));
        let again = plan(&machine);
        assert_eq!(
            (again.effects.len(), again.wake),
            (0, Some(machine.world.now + jiff::SignedDuration::from_secs(1)))
        );
    }

    #[test]
    fn probe_may_set_its_own_grace_period() {
        let probe = http(json!({"failureThreshold": 1, "terminationGracePeriodSeconds": 2}));
        let mut machine = probed(json!({"livenessProbe": probe}));
        machine.set_behaviour("c", ContainerBehaviour::Stubborn).probe("liveness", false).run_to(1);
        assert!(machine.take_messages().contains(&"0 stop c in 2".to_owned()));
    }

    #[test]
    fn startup_holds_the_others_back() {
        let mut machine = probed(json!({
            "startupProbe": http(json!({"failureThreshold": 3, "periodSeconds": 2})),
            "livenessProbe": http(json!({})), "readinessProbe": http(json!({})),
        }));
        machine.probe("startup", false).run_to(3);
        assert_eq!(machine.take_messages(), ["0 start c#0", "0 startup fails", "2 startup fails"]);
        assert_eq!(machine.container("c")["started"], false);
        machine.probe("startup", true).run_to(5);
        assert_eq!(machine.take_messages(), ["3 startup ok", "3 liveness ok", "3 readiness ok"]);
        assert_eq!(machine.container("c")["started"], true);
        assert_eq!(machine.condition("Ready"), "True");
    }

    #[test]
    fn startup_that_never_succeeds_restarts() {
        let mut machine = probed(json!({"startupProbe": http(json!({"failureThreshold": 2, "periodSeconds": 2}))}));
        machine.probe("startup", false).run_to(2);
        let story = machine.take_messages();
        assert_eq!(story[..4], ["0 start c#0", "0 startup fails", "2 startup fails", "2 stop c in 7"]);
        assert!(machine.reasons().contains(&"Killing"));
    }

    #[test]
    fn readiness_probe_runs_early_until_it_first_succeeds() {
        let mut machine = probed(json!({"readinessProbe": http(json!({"periodSeconds": 2}))}));
        machine.probe("readiness", false).run_to(3);
        let unhealthy = || "Readiness probe failed: no".to_owned();
        assert_eq!(machine.take_messages(), ["0 start c#0", "0 readiness fails", "2 readiness fails"]);
        assert_eq!(
            machine.early_failures,
            [50, 100, 150, 200, 250, 312, 390, 488, 610, 762, 953, 1192, 1490, 1862, 2500]
        );
        let told =
            |machine: &TestMachine| machine.events.iter().skip(3).map(|e| e.message.to_string()).collect::<Vec<_>>();
        assert_eq!(told(&machine), [unhealthy(), unhealthy()], "early failures are not reported");
        machine.probe("readiness", true).run_to(5);
        assert_eq!(machine.take_messages(), ["3 readiness ok"], "the next early run");
        assert_eq!(machine.condition("Ready"), "True");
        machine.probe("readiness", false).run_to(30);
        assert_eq!(machine.early_failures.len(), 15, "none after a success");
        assert_eq!(machine.take_messages().len(), 13);
    }

    #[test]
    fn early_failures_do_not_count() {
        let mut machine = probed(json!({"startupProbe": http(json!({"failureThreshold": 2, "periodSeconds": 10}))}));
        machine.probe("startup", false).run_to(9);
        assert_eq!(machine.early_failures.len(), 21);
        assert_eq!(machine.summary(), "Running c=running/0");
        machine.run_to(10);
        assert!(machine.take_messages().contains(&"10 stop c in 7".to_owned()));
    }

    #[test]
    fn liveness_probe_never_runs_early() {
        let mut machine = probed(json!({"livenessProbe": http(json!({"failureThreshold": 9}))}));
        machine.probe("liveness", false).run_to(35);
        assert_eq!(machine.early_failures.len(), 0);
    }

    #[test]
    fn named_ports_are_numbers_for_the_machine() {
        let machine = probed(json!({"livenessProbe": http(json!({}))}));
        let world = &machine.world;
        let row = world.get(&super::super::testing::key("p")).unwrap();
        let pod = super::LocalPod::read(world, row, &world.facts.nodes["n"]).unwrap();
        let probe = pod.members[0].spec.liveness_probe.as_ref().unwrap();
        let handler = super::ProbeHandler::from_probe(probe);
        let Effect::Probe(order) = super::start_probe(&pod, &pod.members[0], ProbeKind::Liveness, handler, 1) else {
            panic!("no probe");
        };
        assert_eq!(order.handler, super::ProbeHandler::read(&json!({"httpGet": {"path": "/", "port": 8080}})));
    }

    #[test]
    fn probe_without_an_answer_is_ordered_again() {
        let mut machine = probed(json!({"livenessProbe": http(json!({}))}));
        machine.set_behaviour("c", ContainerBehaviour::Unresponsive).run_to(13);
        assert_eq!(machine.take_messages(), ["0 start c#0", "0 liveness ok", "6 liveness ok", "12 liveness ok"]);
    }
}
