//! Pods of simulated nodes: what a machine would report that does all at once and never fails.
//!
//! Nothing is ordered for them: their facts are computed from spec, status and time, so that any number of them costs no process,
//! no memory, and nothing to find again after a restart of the control plane.
//! Annotations (under `kloop.dev/simulate-` or `fake/`) make them behave otherwise: `exit: "N"` ends a pod that never restarts with
//! code N after a second, `ready: "false"` is never ready, `crash: "true"` waits in CrashLoopBackOff.

use super::container_status::api_time;
use super::pod::{LocalPod, Member, Role};
use crate::object::{Object, Time};
use crate::world::{ContainerFacts, ContainerState, Ended, PodFacts, ProbeFacts, ProbeKind, Row, Script, World};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{
    ContainerState as ApiState, ContainerStateWaiting, ContainerStatus, PodSpec, PodStatus,
};

/// How many restarts a pretended crash loop has had.
const CRASHES: i32 = 3;

/// How a container of this pod is to behave on a machine that pretends.
pub fn script(pod: &Object, spec: &PodSpec, role: Role) -> Option<Script> {
    if role == Role::Init {
        return Some(Script { exit: Some((0, 0)) });
    }
    let never_restarts = spec.restart_policy.as_deref() == Some("Never");
    let asked = annotation(pod, "exit").and_then(|code| code.parse().ok()).filter(|_| never_restarts);
    let is_job = pod.controller().is_some_and(|owner| owner.kind == "Job");
    let code = asked.or_else(|| is_job.then_some(0)).filter(|_| role == Role::Main);
    code.map(|code| Script { exit: Some((1, code)) })
}

/// What the pretended machine reports of a pod by now.
pub fn pretend(world: &World, row: &Row, pod: &Object, spec: &PodSpec, status: &PodStatus) -> PodFacts {
    let started = status.start_time.as_ref().map_or_else(|| api_time(world.now).0, |time| time.0);
    let init = spec.init_containers.iter().flatten().map(|container| {
        let role = if crate::kinds::pod::facts::is_sidecar(container) { Role::Sidecar } else { Role::Init };
        (container, role)
    });
    let all = init.chain(spec.containers.iter().map(|container| (container, Role::Main)));
    let all = all.map(|(container, role)| (container.name.as_str(), role));
    let added = spec.ephemeral_containers.iter().flatten().map(|container| (container.name.as_str(), Role::Ephemeral));
    let containers = all.chain(added).map(|(name, role)| {
        let state = state(world.now, started, script(pod, spec, role));
        let probes = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness, ProbeKind::PostStart];
        let content = ProbeFacts { successes: i32::MAX, last: Some(started), ..ProbeFacts::default() };
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

/// When time alone will change what is pretended.
pub fn wake(pod: &LocalPod) -> Option<Time> {
    if !pod.simulated {
        return None;
    }
    let started = pod.status.start_time.as_ref().map_or(pod.world.now, |time| time.0);
    let exits = pod.members.iter().filter(|member| member.lives());
    let exits = exits.filter_map(|member| script(&pod.object, &pod.spec, member.role)?.exit);
    exits.map(|(seconds, _)| ends(started, seconds)).min()
}

fn state(now: Time, started: Time, script: Option<Script>) -> ContainerState {
    match script.and_then(|script| script.exit) {
        Some((seconds, code)) if now >= ends(started, seconds) => ContainerState::Ended(Ended {
            code,
            signal: None,
            reason: None,
            message: String::new(),
            started: Some(started),
            finished: started + SignedDuration::from_secs(seconds),
        }),
        _ => ContainerState::Running { pid: 0, since: started },
    }
}

/// Status keeps whole seconds, so the start may have been up to a second later than it says.
fn ends(started: Time, seconds: i64) -> Time {
    started + SignedDuration::from_secs(if seconds == 0 { 0 } else { seconds + 1 })
}

/// Changes the status of a container as the pod's annotations ask.
pub fn shape(pod: &LocalPod, member: &Member, mut status: ContainerStatus) -> ContainerStatus {
    if member.role != Role::Main {
        return status;
    }
    if annotation(&pod.object, "ready") == Some("false") {
        status.ready = false;
    }
    if annotation(&pod.object, "crash") == Some("true") {
        let waiting = ContainerStateWaiting { reason: Some("CrashLoopBackOff".into()), message: None };
        status.state = Some(ApiState { waiting: Some(waiting), ..ApiState::default() });
        status.ready = false;
        status.started = Some(false);
        status.restart_count = CRASHES;
    }
    status
}

/// Whether the pod pretends to crash over and over; its phase is Running all the same.
pub fn crashes(pod: &LocalPod) -> bool {
    pod.simulated && annotation(&pod.object, "crash") == Some("true")
}

fn annotation<'a>(pod: &'a Object, name: &str) -> Option<&'a str> {
    pod.annotation(&format!("kloop.dev/simulate-{name}")).or_else(|| pod.annotation(&format!("fake/{name}")))
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Machine, key, pod};
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
            (
                json!({"kloop.dev/simulate-crash": "true"}),
                "Always",
                "Running c=CrashLoopBackOff/3",
                "ContainersNotReady",
            ),
        ];
        for (annotations, policy, expected, ready) in cases {
            let mut machine = Machine::simulated(simulated(annotations.clone(), policy));
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
    fn pods_of_jobs_succeed_after_a_second() {
        let mut of_job = simulated(json!({}), "OnFailure");
        of_job["spec"]["initContainers"] = json!([{"name": "i", "image": "a"}]);
        of_job["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
        let mut machine = Machine::simulated(of_job);
        machine.settle();
        assert_eq!(machine.summary(), "Running i+=Completed/0 c+=running/0");
        machine.run_to(3);
        assert_eq!(machine.summary(), "Succeeded i+=Completed/0 c=Completed/0");
        assert_eq!(machine.container("c")["containerID"], "fake://c");
        assert_eq!(machine.container("c")["state"]["terminated"]["finishedAt"], "2023-11-14T22:13:21Z");
    }

    #[test]
    fn a_deleted_pod_leaves_at_once_and_a_held_one_looks_as_before() {
        let mut machine = Machine::simulated(simulated(json!({}), "Always"));
        machine.settle();
        machine.delete(30);
        machine.settle();
        assert!(machine.world.get(&key("p")).is_none());
        let mut held = simulated(json!({}), "Always");
        held["metadata"]["finalizers"] = json!(["x.dev/hold"]);
        let mut machine = Machine::simulated(held);
        machine.settle();
        machine.delete(30);
        machine.settle();
        assert_eq!(machine.summary(), "Running c+=running/0");
        assert_eq!(machine.pod().0["metadata"]["deletionGracePeriodSeconds"], 0);
    }

    #[test]
    fn the_status_is_that_of_the_golden_conversations() {
        let mut machine = Machine::simulated(simulated(json!({}), "Always"));
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
