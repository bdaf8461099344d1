//! Jobs: completion and failure.

use crate::cluster::Cluster;

fn job(name: &str, spec: &str, script: &str) -> String {
    let script = serde_json::Value::from(script);
    format!(
        r#"
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  {spec}
  template:
    spec:
      restartPolicy: Never
      containers:
      - {{name: main, image: busybox, command: [sh, -c, {script}]}}
"#
    )
}

#[test]
fn job_completes() {
    let cluster = Cluster::new();
    cluster.apply(&job("four", "completions: 4\n  parallelism: 2", "echo \"$HOSTNAME works\""));
    cluster.ok("reconcile");
    cluster.until_reads("job/four", "{.status.succeeded}", "4");
    cluster.until_reads("job/four", "{.status.conditions[?(@.type==\"Complete\")].status}", "True");
    let pods = cluster.pods("job-name=four");
    assert_eq!(pods.len(), 4);
    for pod in pods {
        assert_eq!(cluster.log(&pod, "main"), format!("{pod} works\n"));
    }
    let table = cluster.ok("get jobs --no-headers");
    assert_eq!(table.split_whitespace().take(3).collect::<Vec<_>>(), ["four", "Complete", "4/4"]);
}

#[test]
fn failed_job_fails_a_one_shot_run_with_the_reason() {
    let cluster = Cluster::new();
    // The Job runs for a moment, which must not be taken for convergence.
    cluster.apply(&job("broken", "backoffLimit: 0", "sleep 1; echo no; exit 4"));
    let said = cluster.kloop("reconcile --timeout 1h");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.err.starts_with("error: not converged:\n  jobs.batch default/broken: failed: "), "{}", said.err);
    assert!(
        said.err.contains("failed: BackoffLimitExceeded: Job has reached the specified backoff limit"),
        "{}",
        said.err
    );
    cluster.until_reads("job/broken", "{.status.failed}", "1");
}

#[test]
fn indexed_job_passes_each_pod_its_index() {
    let cluster = Cluster::new();
    cluster.apply(&job(
        "numbers",
        "completionMode: Indexed\n  completions: 3\n  parallelism: 3",
        "echo \"number $JOB_COMPLETION_INDEX\"",
    ));
    cluster.ok("reconcile");
    cluster.until_reads("job/numbers", "{.status.completedIndexes}", "0-2");
    let mut lines: Vec<String> = cluster.pods("job-name=numbers").iter().map(|pod| cluster.log(pod, "main")).collect();
    lines.sort();
    assert_eq!(lines, ["number 0\n", "number 1\n", "number 2\n"]);
}

#[test]
fn deleted_job_deletes_its_pods() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&job("long", "backoffLimit: 0", "exec sleep 1000"));
    cluster.until_reads("job/long", "{.status.ready}", "1");
    cluster.ok("delete job long");
    cluster.nothing_is_left();
    assert_eq!(cluster.ok("get pods -o name"), "");
}
