//! Jobs end to end.

use crate::controllers::testing::{Cluster, cluster};
use crate::world::Propagation;
use serde_json::{Value, json};

fn job(spec: &str, annotations: &str) -> Cluster {
    cluster(&format!(
        "
apiVersion: batch/v1
kind: Job
metadata: {{name: work}}
spec:
  {spec}
  template:
    metadata: {{annotations: {{{annotations}}}}}
    spec: {{restartPolicy: Never, containers: [{{name: c, image: 'busybox:1'}}]}}
"
    ))
}

fn status(cluster: &Cluster, name: &str) -> Value {
    cluster.value("jobs.batch", "work", &format!("/status/{name}"))
}

#[test]
fn job_counts_succeeded_pods() {
    for (spec, pods, succeeded) in [
        ("backoffLimit: 6", 1, 1),
        ("completions: 5", 5, 5),
        ("completions: 5\n  parallelism: 2", 5, 5),
        ("parallelism: 3", 3, 3),
        ("completions: 3\n  completionMode: Indexed\n  parallelism: 2", 3, 3),
    ] {
        for seed in 0..6 {
            let mut cluster = job(spec, "").seeded(seed);
            cluster.crashes = seed as u32;
            cluster.settle();
            // A work queue creates no pods after the first success, so a run with crashes may leave fewer.
            let torn = seed > 0 && spec == "parallelism: 3";
            let (pods, succeeded) =
                if torn { (cluster.count("pods"), cluster.count("pods")) } else { (pods, succeeded) };
            assert_eq!(status(&cluster, "succeeded"), succeeded, "{spec}");
            assert_eq!(status(&cluster, "failed"), Value::Null, "{spec}");
            assert_eq!(cluster.count("pods"), pods, "{spec}");
            let wanted = "SuccessCriteriaMet=True CompletionsReached, Complete=True CompletionsReached";
            assert_eq!(cluster.conditions("jobs.batch", "work"), wanted);
            assert_eq!(status(&cluster, "uncountedTerminatedPods"), serde_json::json!({}));
            assert!(cluster.world.list("pods").all(|pod| pod.finalizers.is_empty()));
        }
    }
}

#[test]
fn active_pods_never_exceed_parallelism() {
    for seed in 0..8 {
        let mut cluster = job("completions: 7\n  parallelism: 2", "").seeded(seed);
        cluster.check = Box::new(|world| assert!(world.list("pods").filter(|pod| pod.is_active_pod()).count() <= 2));
        cluster.settle();
        assert_eq!(status(&cluster, "succeeded"), 7);
    }
}

#[test]
fn indexed_pods_know_their_index() {
    let mut cluster = job("completions: 3\n  completionMode: Indexed\n  parallelism: 3", "");
    cluster.settle();
    assert_eq!(status(&cluster, "completedIndexes"), "0-2");
    let mut hosts: Vec<String> = Vec::new();
    for row in cluster.world.list("pods") {
        let pod = row.object();
        let index = pod.annotation(super::INDEX).unwrap().to_owned();
        assert_eq!(pod.label(super::INDEX), Some(index.as_str()));
        assert!(pod.name().starts_with(&format!("work-{index}-")));
        assert_eq!(pod.0["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
        hosts.push(pod.text(&["spec", "hostname"]).unwrap().to_owned());
    }
    hosts.sort();
    assert_eq!(hosts.join(" "), "work-0 work-1 work-2");
}

#[test]
fn failures_are_retried_with_pauses_up_to_the_limit() {
    let mut cluster = job("backoffLimit: 2", "fake/exit: '3'");
    cluster.settle();
    assert_eq!(cluster.count("pods"), 1);
    cluster.pass(11);
    assert_eq!(cluster.count("pods"), 2);
    cluster.pass(15);
    assert_eq!(cluster.count("pods"), 2);
    cluster.pass(10);
    assert_eq!((cluster.count("pods"), status(&cluster, "failed")), (3, 3.into()));
    let wanted = "FailureTarget=True BackoffLimitExceeded, Failed=True BackoffLimitExceeded";
    assert_eq!(cluster.conditions("jobs.batch", "work"), wanted);
    assert!(cluster.logged("event: BackoffLimitExceeded Job has reached the specified backoff limit"));
    assert!(!cluster.logged("SuccessfulDelete"));
}

#[test]
fn deadline_ends_the_job() {
    let mut cluster = job("activeDeadlineSeconds: 30", "fake/stay: ''");
    cluster.settle();
    assert_eq!(status(&cluster, "active"), 1);
    cluster.pass(31);
    assert_eq!(status(&cluster, "failed"), 1);
    let wanted = "FailureTarget=True DeadlineExceeded, Failed=True DeadlineExceeded";
    assert_eq!(cluster.conditions("jobs.batch", "work"), wanted);
    assert!(cluster.logged("event: SuccessfulDelete Deleted pod: work-"));
}

#[test]
fn suspended_job_deletes_its_pods_and_resumed_job_creates_them() {
    let mut cluster = job("suspend: true", "");
    cluster.settle();
    assert_eq!((cluster.count("pods"), status(&cluster, "startTime")), (0, Value::Null));
    assert_eq!(cluster.conditions("jobs.batch", "work"), "Suspended=True JobSuspended");
    cluster.patch("jobs.batch", "work", serde_json::json!({"spec": {"suspend": false}}));
    cluster.settle();
    assert_eq!(status(&cluster, "succeeded"), 1);
    assert!(cluster.conditions("jobs.batch", "work").starts_with("Suspended=False JobResumed"));
    let mut running = job("suspend: false", "fake/stay: ''");
    running.settle();
    running.patch("jobs.batch", "work", serde_json::json!({"spec": {"suspend": true}}));
    running.settle();
    assert_eq!((running.count("pods"), status(&running, "failed")), (0, Value::Null));
}

#[test]
fn deleted_job_deletes_its_pods() {
    for propagation in [Propagation::Background, Propagation::Foreground] {
        let mut cluster = job("backoffLimit: 6", "fake/stay: ''");
        cluster.settle();
        assert_eq!(cluster.count("pods"), 1);
        cluster.delete("jobs.batch", "work", propagation);
        cluster.settle();
        assert_eq!((cluster.count("jobs.batch"), cluster.count("pods")), (0, 0), "{propagation:?}");
    }
}

#[test]
fn finished_job_is_deleted_after_its_ttl() {
    let mut cluster = job("ttlSecondsAfterFinished: 60", "");
    cluster.pass(59);
    assert_eq!((cluster.count("jobs.batch"), cluster.count("pods")), (1, 1));
    cluster.pass(2);
    assert_eq!((cluster.count("jobs.batch"), cluster.count("pods")), (0, 0));
}

#[test]
fn failure_and_success_policies_end_jobs() {
    let fail = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [3]}}]}";
    let mut failing = job(fail, "fake/exit: '3'");
    failing.settle();
    assert_eq!(
        failing.conditions("jobs.batch", "work"),
        "FailureTarget=True PodFailurePolicy, Failed=True PodFailurePolicy"
    );
    let ignore =
        "backoffLimit: 0\n  podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [3]}}]}";
    let mut ignoring = job(ignore, "fake/exit: '3'");
    for _ in 0..6 {
        ignoring.step();
    }
    assert_eq!(status(&ignoring, "failed"), Value::Null);
    let success =
        "completions: 5\n  parallelism: 1\n  completionMode: Indexed\n  successPolicy: {rules: [{succeededCount: 2}]}";
    let mut succeeding = job(success, "");
    succeeding.settle();
    assert!(succeeding.conditions("jobs.batch", "work").ends_with("Complete=True SuccessPolicy"));
    let per_index =
        "completions: 2\n  parallelism: 2\n  completionMode: Indexed\n  backoffLimit: 100\n  backoffLimitPerIndex: 1";
    let mut indexed = job(per_index, "fake/exit: '1'");
    indexed.pass(60);
    assert_eq!(status(&indexed, "failedIndexes"), "0,1");
    assert!(indexed.conditions("jobs.batch", "work").ends_with("Failed=True FailedIndexes"));
    assert_eq!(indexed.count("pods"), 4);
}

#[test]
fn indexes_that_wait_hold_up_no_others() {
    let mut cluster = job(
        "completions: 50\n  parallelism: 8\n  completionMode: Indexed\n  backoffLimit: 100\n  backoffLimitPerIndex: 3",
        "fake/exit: '1'",
    );
    cluster.settle();
    assert_eq!(cluster.count("pods"), 8);
    cluster.patch("jobs.batch", "work", serde_json::json!({"spec": {"parallelism": 50}}));
    cluster.settle();
    assert_eq!(cluster.count("pods"), 50);
}

#[test]
fn policy_ignores_the_failures_of_disrupted_pods() {
    let ignore = "backoffLimit: 0\n  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}]}";
    for (disrupted, failed) in [("True", Value::Null), ("False", 1.into())] {
        let mut cluster = job(ignore, "fake/stay: ''");
        cluster.settle();
        let name = cluster.names("pods");
        let mut pod = cluster.object("pods", &name);
        pod.set(&["status", "phase"], "Failed");
        let condition = serde_json::json!({"type": "DisruptionTarget", "status": disrupted});
        pod.set(&["status", "conditions"], vec![condition]);
        cluster.write_status(pod);
        cluster.settle();
        assert_eq!(status(&cluster, "active"), Value::Null, "a successor waits as after any failure");
        cluster.pass(60);
        assert_eq!(status(&cluster, "failed"), failed, "DisruptionTarget={disrupted}");
        let is_retried = failed.is_null();
        assert_eq!(status(&cluster, "active") == 1, is_retried);
        assert_eq!(cluster.conditions("jobs.batch", "work").contains("BackoffLimitExceeded"), !is_retried);
    }
}

#[test]
fn ignored_failures_of_an_index_delay_its_next_pod_and_are_carried_on() {
    let ignore = "completions: 1\n  completionMode: Indexed\n  backoffLimit: 100\n  backoffLimitPerIndex: 1\n  podFailurePolicy: \
                  {rules: [{action: Ignore, onExitCodes: {operator: In, values: [9]}}]}";
    let mut cluster = job(ignore, "fake/exit: '9'");
    cluster.settle();
    assert_eq!(cluster.count("pods"), 1, "a successor waits as after any failure");
    cluster.pass(45);
    let annotation = |count: &str| {
        cluster.world.list("pods").filter_map(|pod| pod.object().annotation(count).map(str::to_owned)).max()
    };
    assert_eq!(annotation("batch.kubernetes.io/job-index-failure-count").as_deref(), Some("0"));
    assert_eq!(annotation("batch.kubernetes.io/job-index-ignored-failure-count").as_deref(), Some("2"));
    assert_eq!(status(&cluster, "failedIndexes"), "");
}

#[test]
fn excess_pods_and_pods_of_a_suspended_job_do_not_count_as_failed() {
    for (spec, change, active) in [
        ("parallelism: 4\n  completions: 10\n  backoffLimit: 1", json!({"parallelism": 1}), 1),
        ("parallelism: 4\n  completions: 10\n  backoffLimit: 0", json!({"suspend": true}), 4),
        (
            "parallelism: 4\n  completions: 4\n  completionMode: Indexed\n  backoffLimit: 1",
            json!({"parallelism": 1, "completions": 1}),
            1,
        ),
        (
            "parallelism: 2\n  completions: 2\n  podReplacementPolicy: Failed\n  backoffLimit: 0",
            json!({"suspend": true}),
            2,
        ),
    ] {
        for ends_late in [false, true] {
            let mut cluster = job(spec, "fake/stay: ''");
            cluster.settle();
            cluster.kubelet = !ends_late;
            cluster.patch("jobs.batch", "work", json!({"spec": change}));
            cluster.settle();
            cluster.patch("jobs.batch", "work", json!({"spec": {"suspend": false}}));
            cluster.settle();
            cluster.kubelet = true;
            cluster.settle();
            assert_eq!(status(&cluster, "failed"), Value::Null, "{spec} {change}");
            assert_eq!(status(&cluster, "active"), active, "{spec} {change}");
            let conditions = cluster.conditions("jobs.batch", "work");
            assert!(!conditions.contains("Fail"), "{spec} {change}: {conditions}");
        }
    }
}

#[test]
fn indexes_beyond_fewer_completions_are_forgotten() {
    let mut cluster = job("completions: 3\n  parallelism: 3\n  completionMode: Indexed", "fake/stay: ''");
    cluster.settle();
    let of_last = cluster.world.list("pods").find(|pod| pod.label(super::INDEX) == Some("2")).unwrap().object();
    let mut ended = of_last.clone();
    ended.set(&["status", "phase"], "Succeeded");
    cluster.write_status(ended);
    cluster.settle();
    assert_eq!(status(&cluster, "completedIndexes"), "2");
    for (size, indexes) in [(2, Value::Null), (3, Value::Null)] {
        cluster.patch("jobs.batch", "work", json!({"spec": {"completions": size, "parallelism": size}}));
        cluster.settle();
        assert_eq!((status(&cluster, "completedIndexes"), status(&cluster, "active")), (indexes, size.into()));
    }
}

#[test]
fn pods_that_the_end_of_a_job_deletes_count_by_its_outcome() {
    // Nothing ends the pods but the finalizer: they have no node.
    let policy = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [5]}}]}\n  podReplacementPolicy: Failed";
    let mut cluster = job(&format!("completions: 3\n  parallelism: 3\n  {policy}"), "fake/stay: ''");
    cluster.kubelet = false;
    cluster.settle();
    let mut failed = cluster.world.list("pods").next().unwrap().object();
    let terminated = json!([{"name": "c", "state": {"terminated": {"exitCode": 5}}}]);
    failed.set(&["status"], json!({"phase": "Failed", "containerStatuses": terminated}));
    cluster.write_status(failed);
    cluster.settle();
    assert!(
        cluster.conditions("jobs.batch", "work").contains("Failed=True"),
        "{}",
        cluster.conditions("jobs.batch", "work")
    );
    assert_eq!(status(&cluster, "failed"), 3);

    let policy = "completionMode: Indexed\n  successPolicy: {rules: [{succeededCount: 1}]}";
    let mut cluster = job(&format!("completions: 3\n  parallelism: 3\n  {policy}"), "fake/stay: ''");
    cluster.kubelet = false;
    cluster.settle();
    let mut ended = cluster.world.list("pods").next().unwrap().object();
    ended.set(&["status", "phase"], "Succeeded");
    cluster.write_status(ended);
    cluster.settle();
    assert!(cluster.conditions("jobs.batch", "work").contains("Complete=True"));
    assert_eq!((status(&cluster, "succeeded"), status(&cluster, "failed")), (1.into(), Value::Null));
}

#[test]
fn indexes_in_backoff_hold_up_none_of_many_others() {
    let mut cluster = job(
        "completions: 200\n  parallelism: 200\n  completionMode: Indexed\n  backoffLimit: 1000\n  backoffLimitPerIndex: 4",
        "fake/exit: '1'",
    );
    cluster.settle();
    assert_eq!(cluster.count("pods"), 200);
}

#[test]
fn deleting_a_failed_pod_forgets_neither_its_pause_nor_its_failure() {
    let mut cluster = job(
        "completions: 1\n  completionMode: Indexed\n  backoffLimit: 100\n  backoffLimitPerIndex: 1",
        "fake/exit: '1'",
    );
    cluster.settle();
    let pod = cluster.names("pods");
    cluster.delete("pods", &pod, Default::default());
    cluster.pass(9);
    assert_eq!(cluster.names("pods"), pod, "it stays until its successor exists");
    cluster.pass(2);
    let made = cluster.log.iter().filter(|line| line.contains("event: SuccessfulCreate")).count();
    assert_eq!((made, cluster.count("pods"), status(&cluster, "failed")), (2, 1, 2.into()));
    assert_eq!(status(&cluster, "failedIndexes"), "0");
    assert!(cluster.conditions("jobs.batch", "work").ends_with("Failed=True FailedIndexes"));
    assert!(cluster.world.list("pods").all(|pod| pod.finalizers.is_empty()));
}

#[test]
fn pods_that_a_user_deletes_are_replaced_after_a_pause() {
    let mut cluster = job("completions: 3\n  parallelism: 3", "fake/stay: ''");
    cluster.settle();
    for pod in cluster.names("pods").split(' ') {
        cluster.delete("pods", pod, Default::default());
    }
    cluster.pass(39);
    assert_eq!((cluster.count("pods"), status(&cluster, "failed")), (0, 3.into()));
    cluster.pass(2);
    assert_eq!((status(&cluster, "active"), status(&cluster, "failed")), (3.into(), 3.into()));
    cluster.delete("jobs.batch", "work", Propagation::Background);
    cluster.settle();
    assert!(cluster.world.loop_memory.job_backoffs.is_empty(), "nothing is kept of a Job that is gone");
}

#[test]
fn orphaned_pod_is_adopted_and_released_with_its_finalizer() {
    let mut cluster = job("parallelism: 2\n  completions: 4", "fake/stay: ''");
    cluster.settle();
    let pod = cluster.world.list("pods").next().unwrap().key.name.to_string();
    let job = cluster.value("jobs.batch", "work", "/metadata/uid");
    let tracked = |cluster: &Cluster| {
        let value = |pointer: &str| cluster.value("pods", &pod, pointer);
        (value("/metadata/ownerReferences/0/uid"), value("/metadata/finalizers/0"), cluster.count("pods"))
    };
    for orphan in [json!({"ownerReferences": null}), json!({"ownerReferences": null, "finalizers": null})] {
        cluster.patch("pods", &pod, json!({"metadata": orphan}));
        cluster.settle();
        assert_eq!(tracked(&cluster), (job.clone(), super::TRACKING.into(), 2), "{orphan}");
    }
    cluster.patch("pods", &pod, json!({"metadata": {"labels": null}}));
    cluster.settle();
    assert_eq!(tracked(&cluster), (Value::Null, Value::Null, 3));
}
