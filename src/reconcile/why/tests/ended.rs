//! Containers that have ended: how, where it is known, and advice that can be followed.

use super::*;

fn event(name: &str, reason: &str, message: &str, minute: u8, container: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": reason, "message": message,
        "lastTimestamp": format!("2026-01-01T00:0{minute}:00Z"),
        "involvedObject": {"uid": "Pod-p", "fieldPath": container.map(|name| format!("spec.containers{{{name}}}"))},
    })
}

/// A pod whose container waits for its next attempt after this end.
fn looping(container: Value, ended: Value) -> Value {
    let waiting =
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container=c"}});
    let mut pod = pod(json!({"containers": [container]}), waiting);
    pod["status"]["containerStatuses"][0]["lastState"] = json!({"terminated": ended});
    pod
}

#[test]
fn an_end_is_told_by_its_cause() {
    let limited = json!({"name": "c", "image": "x", "resources": {"limits": {"memory": "64Mi"}}});
    let hooked =
        json!({"name": "c", "image": "x", "lifecycle": {"postStart": {"exec": {"command": ["cat", "/none"]}}}});
    let hook = event("p.1", "FailedPostStartHook", "PostStartHook failed: no such file\n", 5, Some("c"));
    let oom = json!({"exitCode": 137, "reason": "OOMKilled"});
    let at = |at: &str| json!({"exitCode": 143, "reason": "Error", "startedAt": at});
    let unstarted = json!({"exitCode": 128, "reason": "StartError", "message": "exec x: permission denied"});
    let plain = json!({"name": "c", "image": "x"});
    let replace = "change the manifest of pod/p, and: kloop replace --force -f FILE";
    for (pod, error, next) in [
        (
            looping(limited, oom.clone()),
            "OOMKilled: it took more memory than the limit of container c, 64Mi; restarted 4 times",
            format!("raise resources.limits.memory of container c (64Mi now), or let it take less: {replace}"),
        ),
        (
            looping(plain.clone(), oom),
            "OOMKilled: this machine had no memory left, and it has no limit of its own; restarted 4 times",
            format!("let it take less, or give it resources.limits.memory that it keeps to: {replace}"),
        ),
        (
            looping(hooked.clone(), at("2026-01-01T00:04:00Z")),
            "PostStartHook failed: no such file; restarted 4 times",
            format!("correct lifecycle.postStart of container c (cat /none): {replace}"),
        ),
        (
            looping(hooked, at("2026-01-01T00:06:00Z")),
            "it ended with code 143 and was restarted 4 times",
            "see why it ends (kloop logs p -c c --previous), and correct it".into(),
        ),
        (
            looping(plain, unstarted),
            "it could not be started: exec x: permission denied; restarted 4 times",
            format!("correct its command or image: {replace}"),
        ),
    ] {
        let answer = ask(&[node("True"), pod, hook.clone()], "pod/p", true);
        let cause = answer.root_cause().expect("a cause");
        assert_eq!((cause.what.as_str(), cause.error.as_deref()), ("container c", Some(error)), "{answer:#?}");
        assert_eq!(answer.next(), next);
    }
}

#[test]
fn what_is_told_of_the_machine_is_not_what_was_done_last() {
    let objects = [
        node("True"),
        looping(json!({"name": "c", "image": "x"}), json!({"exitCode": 1})),
        event("p.1", "Scheduled", "it is", 1, None),
        event("p.2", "LimitsNotEnforced", "Limits are not enforced by the kernel: so\nand so", 2, None),
    ];
    let answer = ask(&objects, "pod/p", true);
    let link = answer.links.iter().find(|link| link.what == "pod/p").unwrap();
    assert_eq!(link.last.as_ref().map(|last| &*last.reason), Some("Scheduled"));
}

#[test]
fn a_post_start_hook_that_runs_is_named() {
    let hooked = json!({"containers": [
        {"name": "c", "image": "x", "lifecycle": {"postStart": {"exec": {"command": ["sleep", "1000"]}}}}]});
    let making = json!({"waiting": {"reason": "ContainerCreating"}});
    let answer = ask(&[node("True"), pod(hooked, making.clone())], "pod/p", true);
    let link = answer.links.iter().find(|link| link.what == "container c").unwrap();
    assert_eq!(link.seen, "ContainerCreating, until its postStart hook has ended (sleep 1000)");
    assert_eq!(answer.standing(), ConvergenceState::Converging);
    assert!(answer.next().starts_with("wait for the postStart hook of container c to end (sleep 1000)"), "{answer:#?}");
    let answer = ask(&[node("True"), pod(json!({}), making)], "pod/p", true);
    assert_eq!(answer.next(), "wait, it is on its way");
}

#[test]
fn logs_are_advised_that_there_are() {
    let (c, d) = (json!({"name": "c", "image": "x"}), json!({"name": "d", "image": "x"}));
    let ended = json!({"exitCode": 5, "reason": "Error"});
    let mut one_runs =
        pod(json!({"restartPolicy": "Never", "containers": [c, d]}), json!({"terminated": ended.clone()}));
    one_runs["status"]["phase"] = "Running".into();
    one_runs["status"]["containerStatuses"][0]["restartCount"] = 0.into();
    let answer = ask(&[node("True"), one_runs], "pod/p", true);
    assert_eq!(answer.root_cause().and_then(|cause| cause.error.as_deref()), Some("it ended with code 5"));
    assert_eq!(answer.next(), "see why it ends (kloop logs p -c c), and correct it");

    let failed = |ended: Value| {
        let mut pod = pod(json!({"restartPolicy": "Never", "initContainers": [d]}), json!({"waiting": {}}));
        pod["status"]["phase"] = "Failed".into();
        pod["status"]["initContainerStatuses"] = json!([{"name": "d", "state": {"terminated": ended}}]);
        pod
    };
    let unstarted = json!({"exitCode": 128, "reason": "StartError", "message": "exec x: permission denied"});
    for (ended, error, next) in [
        (
            ended,
            "container d: Error (exit code 5)",
            "look at its log (kloop logs pod/p -c d), then delete it and apply it again",
        ),
        (
            unstarted,
            "container d: StartError (exit code 128): exec x: permission denied",
            "correct its command or image: change the manifest of pod/p, and: kloop replace --force -f FILE",
        ),
    ] {
        let answer = ask(&[node("True"), failed(ended)], "pod/p", true);
        assert_eq!(answer.root_cause().and_then(|cause| cause.error.as_deref()), Some(error), "{answer:#?}");
        assert_eq!(answer.next(), next);
    }
}

#[test]
fn a_pod_is_corrected_where_its_manifest_is() {
    let refused = |message: &str| pod(json!({}), json!({"waiting": {"reason": "ErrImageBuild", "message": message}}));
    let message = "build of image app: \"sh -c echo no; exit 3\" exited with code 3:\nno";
    let answer = ask(&[node("True"), refused(message)], "pod/p", true);
    assert_eq!(answer.root_cause().and_then(|cause| cause.error.as_deref()), Some(message), "a command is not cut");
    assert_eq!(answer.next(), "correct it: change the manifest of pod/p, and: kloop replace --force -f FILE");
    let quoted = "\"sh -c \\\"no; exit 3\\\"\" failed; install \"it\"";
    let answer = ask(&[node("True"), refused(quoted)], "pod/p", true);
    assert_eq!(answer.next(), "install \"it");
    let mut is_static = refused(message);
    is_static["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    let answer = ask(&[node("True"), is_static], "pod/p", true);
    assert_eq!(answer.next(), "correct it: change the manifest of pod/p in the folder that its node reads it from");
}

#[test]
fn of_a_pod_without_a_shim_every_container_is_dead() {
    let started = json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}});
    let containers = json!([{"name": "c", "image": "x"}, {"name": "d", "image": "x"}]);
    let mut runs = pod(json!({"containers": containers}), started.clone());
    runs["status"]["phase"] = "Running".into();
    let of = |name: &str| json!({"name": name, "ready": true, "restartCount": 0, "state": started});
    runs["status"]["containerStatuses"] = json!([of("c"), of("d")]);
    let plane =
        ControlPlaneState { lost: [("Pod-p".into(), UnreportedExit::All)].into(), ..ControlPlaneState::default() };
    let key = Key::new(crate::object::Resource("pods"), "default", "p");
    let answer = explain(&mut world(&[node("True"), runs]), &key, &plane).unwrap();
    let containers: Vec<_> = answer.links.iter().filter(|link| link.what.starts_with("container")).collect();
    assert_eq!(containers.len(), 2, "{answer:#?}");
    for link in containers {
        let seen = "its process is gone; its status, from before that, says running for 5m";
        assert_eq!((&*link.seen, link.standing), (seen, ConvergenceState::Converging));
    }
}
