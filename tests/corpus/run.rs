//! Manifests of public pages that need only programs of this machine: they run as their pages describe.

use super::folder;
use crate::cluster::Cluster;
use std::fs;

/// Returns the text of a manifest of `corpus/run`.
fn manifest(path: &str) -> Option<String> {
    Some(fs::read_to_string(folder("run")?.join(path)).expect("manifest"))
}

#[test]
fn counter_counts_into_its_log() {
    let Some(text) = manifest("k8s-website-1.29/content/en/examples/debug/counter-pod.yaml") else { return };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&text);
    cluster.until_reads("pod/counter", "{.status.phase}", "Running");
    cluster.until("it has counted to two", || cluster.kloop("logs counter").out.lines().count() >= 3);
    let log = cluster.ok("logs counter");
    for (number, line) in log.lines().enumerate() {
        assert!(line.starts_with(&format!("{number}: ")), "{log}");
    }
    let last = cluster.ok("logs counter --tail=1 --timestamps");
    let (time, line) = last.split_once(' ').expect("a time before the line");
    assert!(time.ends_with('Z') && line.contains(": "), "{last}");
}

#[test]
fn pod_receives_its_own_fields() {
    let Some(text) = manifest("k8s-website-1.29/content/en/examples/pods/inject/dapi-envars-pod.yaml") else { return };
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--node-name", "here"]);
    cluster.apply(&text);
    let pod = "dapi-envars-fieldref";
    cluster.until("it has told", || cluster.log(pod, "test-container").lines().count() >= 6);
    let address = cluster.read(&format!("pod/{pod}"), "{.status.podIP}");
    let log = cluster.log(pod, "test-container");
    // `echo -en` prints an empty line, or `-en` where sh is dash.
    let told: Vec<&str> = log.lines().filter(|line| !line.is_empty() && !line.starts_with("-en")).take(5).collect();
    assert_eq!(told, ["here", pod, "default", &address, "default"]);
}

#[test]
fn pod_waits_for_the_configmap_of_its_environment() {
    let Some(text) = manifest("k8s-website-1.29/content/en/examples/pods/pod-configmap-envFrom.yaml") else { return };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&text);
    let waiting = "{.status.containerStatuses[0].state.waiting.reason}";
    cluster.until_reads("pod/dapi-test-pod", waiting, "CreateContainerConfigError");
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: special-config}, data: {SPECIAL_LEVEL: very, SPECIAL_TYPE: charm}}");
    cluster.until_reads("pod/dapi-test-pod", "{.status.phase}", "Succeeded");
    let log = cluster.log("dapi-test-pod", "test-container");
    assert!(log.lines().any(|line| line == "SPECIAL_LEVEL=very"), "{log}");
    assert!(log.lines().any(|line| line == "SPECIAL_TYPE=charm"), "{log}");
}

#[test]
fn variable_is_read_from_a_file_of_an_init_container() {
    let Some(text) = manifest("k8s-website-newer/pods/inject/envars-file-container.yaml") else { return };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // Not every shell's `echo` prints two lines here.
    cluster.apply(&text.replace("echo ", "printf "));
    cluster.until_reads("pod/envfile-test-pod", "{.status.phase}", "Succeeded");
    let log = cluster.log("envfile-test-pod", "use-envfile");
    assert!(log.lines().any(|line| line == "DB_ADDRESS=address"), "{log}");
}

#[test]
fn exit_code_fails_the_job_by_pod_failure_policy() {
    let Some(text) = manifest("k8s-website-1.29/content/en/examples/controllers/job-pod-failure-policy-failjob.yaml")
    else {
        return;
    };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // The page's half minute is not needed.
    assert!(text.contains("sleep 30"));
    cluster.apply(&text.replace("sleep 30", "sleep 0.1"));
    let job = "job/job-pod-failure-policy-failjob";
    cluster.until_reads(job, "{.status.conditions[?(@.type==\"Failed\")].reason}", "PodFailurePolicy");
    let message = cluster.read(job, "{.status.conditions[?(@.type==\"Failed\")].message}");
    assert!(message.starts_with("Container main for pod default/job-pod-failure-policy-failjob-"), "{message}");
    assert!(message.ends_with("failed with exit code 42 matching FailJob rule at index 0"), "{message}");
    assert!(cluster.read(job, "{.status.failed}").parse::<u32>().is_ok_and(|failed| (1..=2).contains(&failed)));
}

#[test]
fn one_index_completes_the_job_by_success_policy() {
    let Some(text) = manifest("k8s-website-newer/controllers/job-success-policy.yaml") else { return };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // Nine of ten indexes fail: with the page's limit of six the result would depend on the order.
    cluster.apply(&text.replace("  parallelism: 10", "  backoffLimit: 10\n  parallelism: 10"));
    let reason = "{.status.conditions[?(@.type==\"SuccessCriteriaMet\")].reason}";
    cluster.until_reads("job/job-success", reason, "SuccessPolicy");
    cluster.until_reads("job/job-success", "{.status.conditions[?(@.type==\"Complete\")].status}", "True");
    assert_eq!(cluster.read("job/job-success", "{.status.completedIndexes}"), "2");
}

#[test]
fn list_among_other_documents_is_applied() {
    let Some(text) = manifest("client-python/kubernetes/e2e_test/test_yaml/multi-resource-with-list.yaml") else {
        return;
    };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    assert_eq!(cluster.apply(&text), "pod/mock-pod-0 created\npod/mock-pod-1 created\ndeployment.apps/mock created\n");
    for pod in ["mock-pod-0", "mock-pod-1"] {
        cluster.ready_pods(&format!("app={pod}"), 1);
        assert_eq!(cluster.log(pod, pod), "Hello Kubernetes!\n");
    }
    assert_eq!(cluster.pods("app=mock").len(), 3);
}

#[test]
fn four_containers_run_and_requests_default_to_limits() {
    let Some(text) = manifest("k8s-website-1.29/content/en/examples/admin/resource/limit-range-pod-1.yaml") else {
        return;
    };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&text);
    cluster.until_reads("pod/busybox1", "{.status.containerStatuses[*].ready}", "true true true true");
    for number in 1..=4 {
        cluster.until("it says hello", || {
            cluster.log("busybox1", &format!("busybox-cnt0{number}")).starts_with(&format!("hello from cnt0{number}\n"))
        });
    }
    assert_eq!(
        cluster.read("pod/busybox1", "{.spec.containers[2].resources.requests}"),
        r#"{"cpu":"500m","memory":"200Mi"}"#
    );
    assert_eq!(cluster.read("pod/busybox1", "{.status.qosClass}"), "Burstable");
    assert_eq!(cluster.pids("busybox1").len(), 4);
}

#[test]
fn cron_job_runs_on_schedule_and_on_request() {
    let Some(text) = manifest("k8s-website-1.29/content/en/examples/application/job/cronjob.yaml") else { return };
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    assert_eq!(cluster.apply(&text), "cronjob.batch/hello created\n");
    assert_eq!(cluster.ok("create job manual --from=cronjob/hello"), "job.batch/manual created\n");
    let complete = "{.status.conditions[?(@.type==\"Complete\")].status}";
    cluster.until_reads("job/manual", complete, "True");
    let said = cluster.ok("logs job/manual");
    assert!(said.lines().count() == 2 && said.ends_with("\nHello from the Kubernetes cluster\n"), "{said}");
    assert_eq!(cluster.read("job/manual", "{.metadata.ownerReferences[0].name}"), "hello");
    // A missed run starts at once, so the test need not wait for the next minute.
    let missed = kloop::object::Time::now() - std::time::Duration::from_secs(150);
    let patch = format!(r#"{{"status": {{"lastScheduleTime": "{}"}}}}"#, kloop::object::time::rfc3339(missed));
    let said = cluster.run(&["patch", "cronjob/hello", "--subresource=status", "--type=merge", "-p", &patch], "");
    assert_eq!(said.code, 0, "{}", said.err);
    let job = cluster.wait_for("a Job is made", || {
        let jobs = cluster.ok("get jobs -o name");
        jobs.lines().find(|name| name.starts_with("job.batch/hello-")).map(str::to_owned)
    });
    cluster.until_reads(&job, complete, "True");
    assert!(cluster.ok(&format!("logs {job}")).ends_with("\nHello from the Kubernetes cluster\n"));
    cluster.until("the CronJob has seen it", || {
        !cluster.read("cronjob/hello", "{.status.lastSuccessfulTime}").is_empty()
            && cluster.read("cronjob/hello", "{.status.active}").is_empty()
    });
    // When a minute begins, the next run is active for a moment.
    cluster.until("no run is active", || {
        cluster.ok("get cronjob hello --no-headers").starts_with("hello   * * * * *   <none>   False   0     ")
    });
}
