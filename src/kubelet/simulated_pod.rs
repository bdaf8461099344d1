//! Pods of simulated nodes: the facts that a machine would report if every operation took no time and never failed.
//!
//! They need no effects: their facts are computed from spec, status and time. So any number of them costs no process and no memory, and
//! survives a restart of the control plane.
//! Annotations (under `kloop.dev/simulate-` or `fake/`) make them behave otherwise: `exit: "N"` ends a pod that never restarts with
//! code N after a second, `ready: "false"` is never ready, `crash: "true"` ends with code 1 as soon as it is started, and is
//! restarted with Kubernetes' backoff (`fake/crash` stays in CrashLoopBackOff, as in the recordings).
//! A pod waits for its ConfigMaps and Secrets as on a machine ([`hold_back`]).

use super::pod::{AttemptState, ContainerRole, LocalPod, PodContainer, api_time};
use super::{backoff, devices, environment, volumes};
use crate::kinds::pod::volumes::VolumeSource;
use crate::object::time::Shift;
use crate::object::{Object, Time};
use crate::world::{
    AttemptEnd, ContainerFacts, ContainerState, PodFacts, ProbeFacts, ProbeKind, Row, SimulatedScript, World,
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateWaiting, ContainerStatus, PodSpec, PodStatus,
};

/// Number of restarts of a simulated crash loop.
const CRASHES: i32 = 3;

/// Greatest number of restarts that a status can show.
const MAX_RESTARTS: u32 = i32::MAX as u32;

/// Annotation of a node: with `ignore` its pods start even if ConfigMaps or Secrets are missing, as in the recordings.
const MISSING: &str = "kloop.dev/simulate-missing";

/// Returns the behaviour of a pod's container on a simulated machine.
pub fn script(pod: &Object, spec: &PodSpec, role: ContainerRole) -> Option<SimulatedScript> {
    if role == ContainerRole::Init {
        return Some(SimulatedScript { exit: Some((0, 0)) });
    }
    let never_restarts = spec.restart_policy.as_deref() == Some("Never");
    let given_code = annotation(pod, "exit").and_then(|code| code.parse().ok()).filter(|_| never_restarts);
    let is_job = pod.controller().is_some_and(|owner| owner.kind == "Job");
    let code = given_code.or_else(|| is_job.then_some(0)).filter(|_| role == ContainerRole::Main);
    code.map(|code| SimulatedScript { exit: Some((1, code)) })
}

/// Returns the facts that the simulated machine reports about a pod.
pub fn simulated_facts(world: &World, row: &Row, pod: &Object, spec: &PodSpec, status: &PodStatus) -> PodFacts {
    let started = status.start_time.as_ref().map_or_else(|| api_time(world.now).0, |time| time.0);
    let init = spec.init_containers.iter().flatten().map(|container| {
        let role =
            if crate::kinds::pod::facts::is_sidecar(container) { ContainerRole::Sidecar } else { ContainerRole::Init };
        (container, role)
    });
    let all = init.chain(spec.containers.iter().map(|container| (container, ContainerRole::Main)));
    let all = all.map(|(container, role)| (container.name.as_str(), role));
    let added =
        spec.ephemeral_containers.iter().flatten().map(|container| (container.name.as_str(), ContainerRole::Ephemeral));
    let statuses = [&status.init_container_statuses, &status.container_statuses];
    let containers = all.chain(added).map(|(name, role)| {
        let old = statuses.into_iter().flatten().flatten().find(|status| status.name == name);
        let start_time = start_time(world.now, started, old);
        if role == ContainerRole::Main && annotation_of_ours(pod, "crash") == Some("true") {
            return (name.into(), crashed(world, spec, start_time));
        }
        let state = state(world.now, start_time, script(pod, spec, role));
        let probes = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness, ProbeKind::PostStart];
        let content =
            ProbeFacts { successes: i32::MAX, has_succeeded: true, last: Some(start_time), ..ProbeFacts::default() };
        let probes = probes.into_iter().map(|kind| (kind, content.clone())).collect();
        (name.into(), ContainerFacts { probes, ..ContainerFacts::new(0, state) })
    });
    PodFacts {
        namespace: row.key.namespace.clone(),
        name: row.key.name.clone(),
        node: spec.node_name.as_deref().unwrap_or_default().into(),
        containers: containers.collect(),
        ..PodFacts::default()
    }
}

/// The next time at which simulated facts change.
pub fn next_wake(pod: &LocalPod) -> Option<Time> {
    if !pod.is_simulated {
        return None;
    }
    let ends = |member: &PodContainer| {
        let AttemptState::Running { since } = &member.state else { return None };
        let (seconds, _) = script(&pod.object, &pod.spec, member.role)?.exit?;
        Some(ends(*since, seconds))
    };
    pod.members.iter().filter_map(ends).min()
}

/// When a container's first attempt began: with the pod, unless it had to wait.
fn start_time(now: Time, started: Time, old: Option<&ContainerStatus>) -> Time {
    let Some(state) = old.and_then(|old| old.state.as_ref()) else { return started };
    let moment = |at: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| at.as_ref().map(|at| at.0);
    let running = state.running.as_ref().map(|running| moment(&running.started_at));
    let ended = || state.terminated.as_ref().map(|ended| moment(&ended.started_at));
    if let Some(at) = running.or_else(ended) {
        return at.unwrap_or(started);
    }
    let waits = state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref());
    if waits == Some("CrashLoopBackOff") { started } else { api_time(now).0 }
}

/// Returns the facts of a container that exits with code 1 at each start, with the restarts so far. Takes a number of steps that does not
/// grow with the pod's age, which a client can write into its status.
fn crashed(world: &World, spec: &PodSpec, start_time: Time) -> ContainerFacts {
    let ended = |at: Time| AttemptEnd {
        code: 1,
        signal: None,
        reason: None,
        message: String::new(),
        started: Some(at),
        finished: at,
    };
    let restarts = spec.restart_policy.as_deref() != Some("Never");
    let (mut attempt, mut end, mut last) = (0u32, ended(start_time), None);
    let mut last_pause = 0;
    loop {
        // An attempt takes no time, so that without a pause any number of them would fit in any time.
        let pause = backoff::restart(&world.settings, attempt, &end, last.as_ref()).max(i64::from(attempt > 0));
        let due = end.finished.later(SignedDuration::from_secs(pause));
        if !restarts || due > world.now {
            return ContainerFacts { last, ..ContainerFacts::new(attempt, ContainerState::Ended(end)) };
        }
        // Pauses grow up to the longest: two that are equal are followed by more of the same.
        let count =
            if pause > 0 && pause == last_pause { world.now.duration_since(end.finished).as_secs() / pause } else { 1 };
        let after = |count: i64| end.finished.later(SignedDuration::from_secs(pause.saturating_mul(count)));
        (last, end) = (Some(ended(after(count - 1))), ended(after(count)));
        attempt = attempt.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)).min(MAX_RESTARTS);
        last_pause = pause;
    }
}

/// Removes the simulated facts of containers that could not have been started, because an object that the pod names is missing.
pub fn hold_back(pod: &mut LocalPod) {
    let names_any = pod.members.iter().any(|member| has_references(&member.spec)) || names_volumes(&pod.spec);
    if !names_any {
        return;
    }
    let held = held_containers(pod);
    if !held.is_empty() && !ignores_missing_references(pod) {
        // Without its volumes there is no pod at all on the machine.
        pod.facts = pod.facts.take().filter(|_| held.len() < pod.members.len());
        held.into_iter().for_each(|place| pod.members[place].reset(pod.world.now));
    }
}

/// The containers that could not have been started, by their place: all of them where a volume is missing.
fn held_containers(pod: &mut LocalPod) -> Vec<usize> {
    let has_begun = |member: &PodContainer| member.old.as_ref().is_some_and(|old| !waits(old));
    if !pod.members.iter().any(has_begun) {
        let facts = pod.facts.take();
        let lacks_volumes = volumes::missing(pod).is_some() || devices::unprepared(pod).is_some();
        pod.facts = facts;
        if lacks_volumes {
            return (0..pod.members.len()).collect();
        }
    }
    let mut held = Vec::new();
    for (place, member) in pod.members.iter().enumerate().filter(|(_, member)| !has_begun(member)) {
        if has_references(&member.spec) && environment::container_environment(pod, member, "").is_err() {
            held.push(place);
            if member.role.is_init() {
                // No container after it has been started.
                held.extend(place + 1..pod.members.len());
                break;
            }
        }
    }
    held
}

/// Whether a container has not been started yet, by its status.
fn waits(old: &ContainerStatus) -> bool {
    let waiting = old.state.as_ref().and_then(|state| state.waiting.as_ref());
    waiting.is_some_and(|waiting| waiting.reason.as_deref() != Some("CrashLoopBackOff"))
}

/// Whether a container's environment names ConfigMaps or Secrets.
fn has_references(container: &Container) -> bool {
    let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    container.env_from.as_ref().is_some_and(|from| !from.is_empty())
        || sources.into_iter().any(|from| from.config_map_key_ref.is_some() || from.secret_key_ref.is_some())
}

/// Whether a volume is made of ConfigMaps or Secrets.
fn names_volumes(spec: &PodSpec) -> bool {
    let mut sources = spec.volumes.iter().flatten().filter_map(VolumeSource::from_volume);
    sources.any(VolumeSource::names_objects)
}

/// Whether the node starts pods that reference missing objects.
fn ignores_missing_references(pod: &LocalPod) -> bool {
    let node = pod.spec.node_name.as_deref().and_then(|name| pod.world.find("nodes", "", name));
    node.is_some_and(|node| node.body().annotation(MISSING) == Some("ignore"))
}

fn state(now: Time, started: Time, script: Option<SimulatedScript>) -> ContainerState {
    match script.and_then(|script| script.exit) {
        Some((seconds, code)) if now >= ends(started, seconds) => ContainerState::Ended(AttemptEnd {
            code,
            signal: None,
            reason: None,
            message: String::new(),
            started: Some(started),
            finished: started.later(SignedDuration::from_secs(seconds)),
        }),
        _ => ContainerState::Running { pid: 0, since: started },
    }
}

/// A status has whole seconds, so the start may have been up to a second later.
fn ends(started: Time, seconds: i64) -> Time {
    started.later(SignedDuration::from_secs(if seconds == 0 { 0 } else { seconds.saturating_add(1) }))
}

/// Changes the status of a container as the pod's annotations ask.
pub fn shape(pod: &LocalPod, member: &PodContainer, mut status: ContainerStatus) -> ContainerStatus {
    if member.role != ContainerRole::Main {
        return status;
    }
    if annotation(&pod.object, "ready") == Some("false") {
        status.ready = false;
    }
    if asks_to_crash(&pod.object) {
        let waiting = ContainerStateWaiting { reason: Some("CrashLoopBackOff".into()), message: None };
        status.state = Some(ApiState { waiting: Some(waiting), ..ApiState::default() });
        status.ready = false;
        status.started = Some(false);
        status.restart_count = CRASHES;
    }
    status
}

/// Whether the pod stays in a crash loop. Its phase is still Running.
pub fn crashes(pod: &LocalPod) -> bool {
    pod.is_simulated && asks_to_crash(&pod.object)
}

fn asks_to_crash(pod: &Object) -> bool {
    pod.annotation("fake/crash") == Some("true")
}

fn annotation_of_ours<'a>(pod: &'a Object, name: &str) -> Option<&'a str> {
    pod.annotation(&format!("kloop.dev/simulate-{name}"))
}

fn annotation<'a>(pod: &'a Object, name: &str) -> Option<&'a str> {
    annotation_of_ours(pod, name).or_else(|| pod.annotation(&format!("fake/{name}")))
}

#[cfg(test)]
mod tests {
    use super::super::LOOP;
    use super::super::testing::{TestMachine, key, pod};
    use serde_json::{Value, json};

    fn simulated(annotations: Value, policy: &str) -> Value {
        let mut pod = pod(json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "a:1"}]}));
        pod["metadata"]["annotations"] = annotations;
        pod
    }

    #[test]
    fn pods_behave_as_their_annotations_ask() {
        let cases = [
            (json!({}), "Always", "Running c+=running/0", "True"),
            (json!({"fake/exit": "0"}), "Never", "Succeeded c=Completed/0", "PodCompleted"),
            (json!({"kloop.dev/simulate-exit": "2"}), "Never", "Failed c=Error/0", "PodFailed"),
            (json!({"fake/exit": "2"}), "Always", "Running c+=running/0", "True"),
            (json!({"fake/ready": "false"}), "Always", "Running c=running/0", "ContainersNotReady"),
            (json!({"fake/crash": "true"}), "Always", "Running c=CrashLoopBackOff/3", "ContainersNotReady"),
        ];
        for (annotations, policy, expected, ready) in cases {
            let mut machine = TestMachine::simulated(simulated(annotations.clone(), policy));
            machine.run_to(10);
            assert_eq!(machine.summary(), expected, "{annotations}");
            assert_eq!(machine.condition("Ready"), ready, "{annotations}");
            assert_eq!(machine.condition("Initialized"), "True");
            assert!(machine.starts.is_empty() && machine.events.is_empty(), "nothing is ordered, nothing has happened");
            let writes = machine.writes;
            machine.reboot();
            machine.run_to(1000);
            assert_eq!(machine.writes, writes, "a restart of the control plane changes nothing");
        }
    }

    #[test]
    fn simulated_pod_is_complete_after_its_first_plan() {
        let containers = json!([{"name": "c", "image": "a:1"}]);
        for (spec, is_settled) in [
            (json!({"containers": containers}), true),
            (json!({"containers": containers, "activeDeadlineSeconds": 5}), false),
        ] {
            let machine = TestMachine::simulated(pod(spec));
            let plan = (LOOP.plan)(&machine.world, &key("p"));
            assert_eq!((plan.writes.len(), plan.is_settled), (1, is_settled));
        }
    }

    #[test]
    fn pods_of_jobs_succeed_after_a_second() {
        let mut of_job = simulated(json!({}), "OnFailure");
        of_job["spec"]["initContainers"] = json!([{"name": "i", "image": "a"}]);
        of_job["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
        let mut machine = TestMachine::simulated(of_job);
        machine.settle();
        assert_eq!(machine.summary(), "Running i+=Completed/0 c+=running/0");
        machine.run_to(3);
        assert_eq!(machine.summary(), "Succeeded i+=Completed/0 c=Completed/0");
        assert_eq!(machine.container("c")["containerID"], "fake://c");
        assert_eq!(machine.container("c")["state"]["terminated"]["finishedAt"], "2023-11-14T22:13:21Z");
    }

    #[test]
    fn any_start_time_and_pause_of_a_crash_loop_is_counted_at_once() {
        // 2,022 years of 300 seconds each, or of a second each.
        for (backoff_seconds, restarts) in
            [(10, 212_000_000..213_000_000), (0, i32::MAX.into()..1 + i64::from(i32::MAX))]
        {
            let crash = json!({"kloop.dev/simulate-crash": "true"});
            let mut machine = TestMachine::simulated(simulated(crash, "Always"));
            machine.world.settings.backoff_seconds = backoff_seconds;
            machine.settle();
            let mut pod = machine.pod();
            pod.set(&["status", "startTime"], "0001-01-01T00:00:00Z");
            let status = &mut pod.0["status"]["containerStatuses"][0];
            status["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
            machine.put("pods", pod.0);
            machine.run_to(10);
            let count = machine.container("c")["restartCount"].as_i64().expect("a number");
            assert!(restarts.contains(&count), "{count}");
        }
    }

    #[test]
    fn crash_loop_follows_kubernetes_backoff() {
        let crash = json!({"kloop.dev/simulate-crash": "true"});
        let mut machine = TestMachine::simulated(simulated(crash.clone(), "Always"));
        machine.settle();
        for (second, restarts, pause) in [(5, 1, "10s"), (15, 2, "20s"), (65, 3, "40s"), (1000, 8, "5m0s")] {
            machine.run_to(second);
            assert_eq!(machine.summary(), format!("Running c=CrashLoopBackOff/{restarts}"), "{second}");
            let message = format!("back-off {pause} restarting failed container=c pod=p_default(uid-p)");
            assert_eq!(machine.container("c")["state"]["waiting"]["message"], message);
        }
        assert_eq!(machine.container("c")["lastState"]["terminated"]["exitCode"], 1);
        assert_eq!(machine.condition("Ready"), "ContainersNotReady");
        let mut once = TestMachine::simulated(simulated(crash, "Never"));
        once.run_to(100);
        assert_eq!(once.summary(), "Failed c=Error/0");
    }

    #[test]
    fn simulated_pod_waits_for_missing_references() {
        let key = json!({"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}});
        let volume = json!({"name": "v", "secret": {"secretName": "s"}});
        let container = json!({"name": "c", "image": "a"});
        let init = json!([{"name": "i", "image": "a", "env": [key]}]);
        for (spec, waits, told) in [
            (
                json!({"containers": [{"name": "c", "image": "a", "env": [key]}, {"name": "d", "image": "a"}]}),
                "Pending c=CreateContainerConfigError/0 d+=running/0",
                "Failed Error: configmap \"cm\" not found",
            ),
            (
                json!({"containers": [container], "initContainers": init}),
                "Pending i=CreateContainerConfigError/0 c=PodInitializing/0",
                "Failed Error: configmap \"cm\" not found",
            ),
            (
                json!({"containers": [container], "volumes": [volume]}),
                "Pending c=ContainerCreating/0",
                "FailedMount MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found",
            ),
        ] {
            let mut machine = TestMachine::simulated(pod(spec));
            machine.run_to(50);
            assert_eq!(machine.summary(), waits);
            let events: Vec<String> =
                machine.events.iter().map(|event| format!("{} {}", event.reason, event.message)).collect();
            assert_eq!(events, [told]);
            let meta = |name: &str| json!({"name": name, "namespace": "default", "uid": name});
            machine.put("configmaps", json!({"metadata": meta("cm"), "data": {"k": "v"}}));
            machine.put("secrets", json!({"metadata": meta("s")}));
            machine.settle();
            assert!(machine.summary().starts_with("Running "), "{}", machine.summary());
            assert_eq!(machine.condition("Ready"), "True");
            let started = machine.container("c")["state"]["running"]["startedAt"].clone();
            assert_eq!(started, "2023-11-14T22:14:10Z", "not before it could be");
            machine.run_to(500);
            assert_eq!(machine.container("c")["state"]["running"]["startedAt"], started);
        }
    }

    #[test]
    fn deleted_pod_is_removed_at_once_and_a_held_one_looks_as_before() {
        let mut machine = TestMachine::simulated(simulated(json!({}), "Always"));
        machine.settle();
        machine.delete(30);
        machine.settle();
        assert!(machine.world.get(&key("p")).is_none());
        let mut held = simulated(json!({}), "Always");
        held["metadata"]["finalizers"] = json!(["x.dev/hold"]);
        let mut machine = TestMachine::simulated(held);
        machine.settle();
        machine.delete(30);
        machine.settle();
        assert_eq!(machine.summary(), "Running c+=running/0");
        assert_eq!(machine.pod().0["metadata"]["deletionGracePeriodSeconds"], 0);
    }

    #[test]
    fn simulated_status_is_that_of_the_golden_recordings() {
        let mut machine = TestMachine::simulated(simulated(json!({}), "Always"));
        machine.settle();
        let mut status = machine.status();
        let ip = status["podIP"].clone();
        status["conditions"] = json!([]);
        let at = "2023-11-14T22:13:20Z";
        let expected = json!({
            "conditions": [],
            "containerStatuses": [{
                "containerID": "fake://c", "image": "a:1", "imageID": "fake://a:1", "lastState": {}, "name": "c",
                "ready": true, "restartCount": 0, "started": true, "state": {"running": {"startedAt": at}},
            }],
            "hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}], "observedGeneration": 1, "phase": "Running",
            "podIP": ip, "podIPs": [{"ip": ip}], "qosClass": "BestEffort", "startTime": at,
        });
        assert_eq!(status, expected);
    }
}
