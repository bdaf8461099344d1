//! Limits of containers, enforced by control groups on machines that have them.

use super::{ONCE, on_host_files, pod_with};
use crate::cluster::Cluster;
use serde_json::json;
use std::fs;

/// A pod of one container with these resources.
fn pod(name: &str, resources: &str, script: &str) -> String {
    pod_with(name, ONCE, &format!("resources: {resources}"), script)
}

/// Whether this machine enforces limits, by the status of a pod; prints that the test is skipped otherwise.
fn enforces_limits(cluster: &Cluster) -> bool {
    let probe = pod("probe", "{limits: {cpu: 1, memory: 1Gi}}", "exec sleep 1000");
    cluster.apply(&probe);
    cluster.until_reads("pod/probe", "{.status.phase}", "Running");
    let is_bounded = !groups(cluster.pid("probe")).is_empty();
    let is_told = || cluster.ok("get events").contains("LimitsNotEnforced");
    if is_bounded {
        assert!(!is_told());
    } else {
        // Events are written after other work.
        cluster.until("the event is there", is_told);
        skip!("limits are not enforced here");
    }
    cluster.ok("delete pod probe");
    is_bounded
}

/// Returns the control groups of kloop that a process is in.
fn groups(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    text.lines().filter(|line| line.contains("/kloop-")).map(str::to_owned).collect()
}

/// Returns the folders of a pod's control groups in all hierarchies.
fn folders(uid: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounted = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let found = mounted.flat_map(|at| below(at.as_ref(), 4));
    found.filter(|path| path.contains(&format!("pod{uid}"))).collect()
}

fn below(folder: &std::path::Path, depth: u32) -> Vec<String> {
    let folders = fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let all = folders.flat_map(|entry| {
        let deeper = if depth > 0 { below(&entry.path(), depth - 1) } else { Vec::new() };
        deeper.into_iter().chain([entry.path().to_string_lossy().into_owned()])
    });
    all.collect()
}

#[test]
fn container_over_its_memory_limit_is_oom_killed() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    if !enforces_limits(&cluster) {
        return;
    }
    cluster.apply(&pod("hog", "{limits: {memory: 32Mi}}", "exec tail /dev/zero"));
    cluster.until_reads("pod/hog", "{.status.phase}", "Failed");
    let ended = cluster.read("pod/hog", "{.status.containerStatuses[0].state.terminated}");
    assert!(ended.contains("\"reason\":\"OOMKilled\"") && ended.contains("\"exitCode\":137"), "{ended}");
    assert!(cluster.ok("describe pod hog").contains("OOMKilled"));
    assert!(cluster.ok("get pod hog").contains("OOMKilled"));
    let uid = cluster.read("pod/hog", "{.metadata.uid}");
    assert_eq!(folders(&uid), [""; 0], "the groups were removed");
    cluster.ok("delete pod hog");
    cluster.nothing_is_left();
}

/// A cluster without control groups: that of an ordinary user.
fn of_ordinary_user() -> Cluster {
    if rustix::process::geteuid().is_root() { Cluster::of_user(65_534) } else { Cluster::new() }
}

#[test]
fn without_control_groups_memory_is_watched() {
    let cluster = of_ordinary_user();
    let _plane = cluster.watch();
    // Child processes count, and a container within its limit is not killed.
    cluster.apply(&pod("hog", "{limits: {memory: 32Mi}}", "sleep 1000 & tail /dev/zero; echo on"));
    cluster.apply(&pod("calm", "{limits: {memory: 32Mi}}", "exec sleep 1000"));
    cluster.until_reads("pod/hog", "{.status.phase}", "Failed");
    let ended = cluster.read("pod/hog", "{.status.containerStatuses[0].state.terminated}");
    assert!(ended.contains("\"reason\":\"OOMKilled\"") && ended.contains("\"exitCode\":137"), "{ended}");
    cluster.until_reads("pod/calm", "{.status.phase}", "Running");
    cluster.ok("delete pod hog calm");
    cluster.nothing_is_left();
}

#[test]
fn without_control_groups_processes_are_bounded_by_a_namespace_or_watched() {
    let cluster = of_ordinary_user();
    let _plane = cluster.watch_with(&["--pod-max-pids", "40"]);
    let bomb = "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; echo all of them; exec sleep 1000";
    cluster.apply(&pod("bomb", "{}", bomb));
    // With the machine's files it has no user namespace.
    cluster.apply(&on_host_files(&pod("plain", "{}", bomb)));
    cluster.until_reads("pod/plain", "{.status.phase}", "Failed");
    let ended = cluster.read("pod/plain", "{.status.containerStatuses[0].state.terminated}");
    assert!(ended.contains("more than the 40 that it may have") && ended.contains("\"exitCode\":137"), "{ended}");
    cluster.until_reads("pod/bomb", "{.status.phase}", "Failed");
    let (said, ended) = (cluster.ok("logs bomb"), cluster.read("pod/bomb", "{.status.containerStatuses[0].state}"));
    let is_refused = said.to_lowercase().contains("cannot fork") && !said.contains("all of them");
    assert!(is_refused || ended.contains("more than the 40"), "{said} {ended}");
    cluster.ok("delete pod bomb plain");
    cluster.nothing_is_left();
}

#[test]
fn fork_bomb_is_stopped_by_the_process_limit() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--pod-max-pids", "50"]);
    if !enforces_limits(&cluster) {
        return;
    }
    // The script itself is also bounded, in case the limit fails.
    let bomb = "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo all of them; wait";
    cluster.apply(&pod("bomb", "{}", bomb));
    cluster.until_reads("pod/bomb", "{.status.phase}", "Failed");
    let said = cluster.ok("logs bomb");
    assert!(said.to_lowercase().contains("cannot fork") && !said.contains("all of them"), "{said}");
    cluster.apply(&pod("calm", "{}", "exec sleep 1000"));
    cluster.until_reads("pod/calm", "{.status.phase}", "Running");
    let uid = cluster.read("pod/calm", "{.metadata.uid}");
    let group = folders(&uid).into_iter().find(|path| fs::read_to_string(format!("{path}/pids.max")).is_ok());
    let cap = fs::read_to_string(format!("{}/pids.max", group.expect("a group for the pod"))).unwrap();
    assert_eq!(cap.trim(), "50");
    cluster.ok("delete pod bomb calm");
    cluster.nothing_is_left();
}

#[test]
fn exec_shares_the_limits_and_groups_of_a_killed_shim_are_removed() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    if !enforces_limits(&cluster) {
        return;
    }
    let limits = "{requests: {cpu: 100m}, limits: {cpu: 500m, memory: 64Mi}}";
    cluster.apply(&pod("web", limits, "exec sleep 1000"));
    cluster.until_reads("pod/web", "{.status.phase}", "Running");
    let own = groups(cluster.pid("web"));
    let beside = cluster.ok("exec web -- cat /proc/self/cgroup");
    assert!(!own.is_empty() && own.iter().all(|group| beside.contains(group)), "{own:?}\n{beside}");
    let uid = cluster.read("pod/web", "{.metadata.uid}");
    assert!(!folders(&uid).is_empty());
    let parent = fs::read_to_string(format!("/proc/{}/stat", cluster.pid("web"))).unwrap();
    let shim = parent.rsplit(')').next().unwrap().split(' ').nth(2).unwrap().parse().unwrap();
    crate::cluster::signal(shim, "KILL");
    cluster.until_reads("pod/web", "{.status.phase}", "Failed");
    cluster.ok("delete pod web");
    cluster.until("the groups are removed", || folders(&uid).is_empty());
    cluster.nothing_is_left();
}

#[test]
fn cpu_throttling_is_reported() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    if !enforces_limits(&cluster) {
        return;
    }
    let probed = |name: &str, limits: &str| {
        let probe = "readinessProbe: {exec: {command: [\"false\"]}, periodSeconds: 1}, resources:";
        pod(name, limits, "while :; do :; done").replace("resources:", probe)
    };
    cluster.apply(&probed("slow", "{limits: {cpu: 50m}}"));
    cluster.apply(&probed("free", "{}"));
    // `describe` shows it; an event reports it once a probe has failed.
    cluster.until("describe shows it", || cluster.ok("describe pod slow").contains("    Throttled:      in "));
    cluster.until("an event reports it", || cluster.ok("events --for pod/slow").contains("CPUThrottling"));
    let why = cluster.kloop("why pod/slow").out;
    assert!(why.contains("throttled: its CPU limit (50m) held it back in "), "{why}");
    cluster.until("the other pod was probed", || cluster.ok("events --for pod/free").contains("Unhealthy"));
    for line in ["describe pod free", "why pod/free", "events --for pod/free"] {
        let said = cluster.kloop(line).out;
        assert!(!said.to_lowercase().contains("throttl"), "{said}");
    }
    cluster.ok("delete pod slow free");
    cluster.nothing_is_left();
}

#[test]
fn top_shows_the_usage_of_pods_and_nodes() {
    let cluster = Cluster::new();
    let missing = cluster.kloop("top pod").err;
    assert!(
        missing.starts_with("No resources found in default namespace.\nhint: there is no cluster at "),
        "{missing}"
    );
    let _plane = cluster.watch();
    let busy = "while :; do :; done & exec sleep 1000";
    cluster.apply(&pod("busy", "{}", busy));
    cluster.apply(&pod("calm", "{limits: {memory: 64Mi}}", "exec sleep 1000"));
    for name in ["busy", "calm"] {
        cluster.until_reads(&format!("pod/{name}"), "{.status.phase}", "Running");
    }
    let shown = cluster.ok("top pod --sort-by cpu");
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "CPU(cores)", "MEMORY(bytes)"]);
    assert_eq!((lines[1][0], lines[2][0]), ("busy", "calm"), "{shown}");
    let milli = |cell: &str| cell.strip_suffix('m').unwrap().parse::<u32>().unwrap();
    assert!(milli(lines[1][1]) > milli(lines[2][1]), "{shown}");
    assert!(cluster.ok("top pod busy --containers --no-headers").starts_with("busy   main   "));
    assert!(cluster.ok("top pods -A --sum").contains("________"));
    let said = cluster.kloop("top pod nobody");
    let missing = "Error from server (NotFound): podmetrics.metrics.k8s.io \"default/nobody\" not found\n";
    assert_eq!((said.code, &*said.err), (1, missing));
    let node = cluster.ok("top node --no-headers");
    assert!(node.contains('%') && !node.contains("<unknown>"), "{node}");
    // An added node on this machine shows the usage of its own pods.
    cluster.ok("node add small --cpu 10m --memory 1Mi");
    let node = cluster.ok("top node small --no-headers");
    assert_eq!(node.split_whitespace().collect::<Vec<_>>(), ["small", "0m", "0%", "0Mi", "0%"]);
    let one = "error: only one of NAME or selector can be provided\n";
    assert_eq!(cluster.kloop("top pod busy -l a=b").err, one);
    assert_eq!(cluster.kloop("top pod --sort-by age").err, "error: --sort-by accepts only cpu or memory\n");
    cluster.ok("delete pod busy calm");
    cluster.nothing_is_left();
}

#[test]
fn pod_that_fills_the_disk_is_evicted() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: full}
spec:
  volumes: [{name: data, emptyDir: {sizeLimit: 1Mi}}]
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "head -c 3000000 /dev/zero > /data/much 2>/dev/null || head -c 3000000 /dev/zero > $KLOOP_VOLUME_DATA/much; exec sleep 1000"]
    volumeMounts: [{name: data, mountPath: /data}]
"#,
    );
    cluster.until_reads("pod/full", "{.status.reason}", "Evicted");
    let message = cluster.read("pod/full", "{.status.message}");
    assert_eq!(message, "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ");
    cluster.until_reads("pod/full", "{.status.phase}", "Failed");
    cluster.until("an event says so", || cluster.ok("get events").contains("Evicted"));
    cluster.ok("delete pod full");
    cluster.nothing_is_left();
}

#[test]
fn memory_volumes_are_shared_by_the_pod_and_removed_with_it() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: ram}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]
  containers:
  - name: writes
    image: busybox
    command: [sh, -c, "echo here > /data/new; mv /data/new /data/word; exec sleep 1000"]
    volumeMounts: [{name: data, mountPath: /data}]
  - name: reads
    image: busybox
    command: [sh, -c, "until cat /data/word; do sleep 0.02; done; head -c 2000000 /dev/zero > /data/much || echo full; stat -f -c %T /data; exec sleep 1000"]
    volumeMounts: [{name: data, mountPath: /data}]
"#,
    );
    cluster.until_reads("pod/ram", "{.status.phase}", "Running");
    if cluster.ok("get events").contains("VolumesNotInMemory") {
        return skip!("no tmpfs can be mounted here that the containers of a pod share");
    }
    cluster.until("the container has written", || cluster.log("ram", "reads").contains("tmpfs"));
    let said = cluster.log("ram", "reads");
    assert!(said.contains("here") && said.contains("full"), "{said}");
    cluster.ok("delete pod ram");
    cluster.nothing_is_left();
}

#[test]
fn running_container_is_resized_in_place() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("web", "{limits: {cpu: 500m, memory: 64Mi}}", "exec sleep 1000"));
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].resources.limits.memory}", "64Mi");
    let pid = cluster.pid("web");
    let change = r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"memory":"96Mi"},"limits":{"memory":"96Mi"}}}]}}"#;
    let refused = cluster.run(&["patch", "pod", "web", "-p", change], "");
    assert!(refused.err.contains("pod updates may not change fields other than"), "{}", refused.err);
    // A process that reads its groups meanwhile does not block the change.
    cluster.ok("debug web --image busybox -c peek -- sleep 1000");
    let said = cluster.run(&["patch", "pod", "web", "--subresource", "resize", "-p", change], "");
    assert_eq!((said.code, &*said.out), (0, "pod/web patched\n"), "{}", said.err);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].resources.limits.memory}", "96Mi");
    assert_eq!(cluster.pid("web"), pid, "the container was not restarted");
    // The condition may go with the next status after the one that shows the new limits.
    cluster.until_reads("pod/web", "{.status.conditions[?(@.type==\"PodResizeInProgress\")].status}", "");
    if groups(pid).is_empty() {
        return skip!("limits are not enforced here, so none are read");
    }
    let uid = cluster.read("pod/web", "{.metadata.uid}");
    let bound = folders(&uid).into_iter().filter(|path| path.ends_with("/c.main")).find_map(|path| {
        let read = |file: &str| fs::read_to_string(format!("{path}/{file}")).ok();
        read("memory.max").or_else(|| read("memory.limit_in_bytes"))
    });
    assert_eq!(bound.expect("a group with memory").trim(), (96 << 20).to_string());
    // The pod's group cannot have less than the container's in between.
    let change =
        r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"250m"},"limits":{"cpu":"250m"}}}]}}"#;
    let said = cluster.run(&["patch", "pod", "web", "--subresource", "resize", "-p", change], "");
    assert_eq!((said.code, &*said.out), (0, "pod/web patched\n"), "{}", said.err);
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].resources.limits.cpu}", "250m");
    cluster.until_reads("pod/web", "{.status.conditions[?(@.type==\"PodResizeInProgress\")].status}", "");
    cluster.ok("delete pod web");
    cluster.nothing_is_left();
}

#[test]
fn containers_of_a_pod_are_resized_at_once() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let names = ["a", "b", "c"];
    let containers = |memory: [u32; 3], cpu: [u32; 3]| -> Vec<serde_json::Value> {
        let container = |place: usize| {
            let amounts = json!({"cpu": format!("{}m", cpu[place]), "memory": format!("{}Mi", memory[place])});
            json!({"name": names[place], "resources": {"requests": amounts, "limits": amounts}})
        };
        (0..3).map(container).collect()
    };
    let mut first = containers([64, 64, 64], [100, 200, 300]);
    for container in &mut first {
        (container["image"], container["command"]) = ("busybox".into(), json!(["sleep", "1000"]));
    }
    let spec = json!({"terminationGracePeriodSeconds": 0, "containers": first});
    cluster.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}).to_string());
    cluster.until_reads("pod/web", "{.status.phase}", "Running");
    let pids = cluster.pids("web");
    // One grows, one shrinks, one changes places between its amounts.
    let change = json!({"spec": {"containers": containers([96, 48, 80], [150, 100, 200])}}).to_string();
    let said = cluster.run(&["patch", "pod", "web", "--subresource", "resize", "-p", &change], "");
    assert_eq!((said.code, &*said.out), (0, "pod/web patched\n"), "{}", said.err);
    let shown =
        |amount: &str| cluster.read("pod/web", &format!("{{.status.containerStatuses[*].resources.limits.{amount}}}"));
    cluster.until("the status shows all", || shown("memory") == "96Mi 48Mi 80Mi" && shown("cpu") == "150m 100m 200m");
    assert_eq!(cluster.pids("web"), pids, "no container was restarted");
    cluster.until("the resize is over", || {
        let pending = "{.status.conditions[?(@.type==\"PodResizeInProgress\")].status}";
        cluster.read("pod/web", pending).is_empty()
            && cluster.read("pod/web", "{.status.observedGeneration}")
                == cluster.read("pod/web", "{.metadata.generation}")
    });
    let Some(pid) = pids.values().next().filter(|pid| !groups(**pid).is_empty()) else {
        return skip!("limits are not enforced here, so none are read");
    };
    let uid = cluster.read("pod/web", "{.metadata.uid}");
    for (name, memory) in names.iter().zip([96u64, 48, 80]) {
        let bound = folders(&uid).into_iter().filter(|path| path.ends_with(&format!("/c.{name}"))).find_map(|path| {
            let read = |file: &str| fs::read_to_string(format!("{path}/{file}")).ok();
            read("memory.max").or_else(|| read("memory.limit_in_bytes"))
        });
        assert_eq!(bound.expect("a group with memory").trim(), (memory << 20).to_string(), "{name} of {pid}");
    }
}

#[test]
fn resize_waits_for_resources_of_other_pods() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let requests = |name: &str, cpu: &str| pod(name, &format!("{{requests: {{cpu: {cpu}}}}}"), "exec sleep 1000");
    cluster.apply(&requests("web", "10m"));
    cluster.until_reads("pod/web", "{.status.containerStatuses[0].resources.requests.cpu}", "10m");
    let node = cluster.read("pod/web", "{.spec.nodeName}");
    let cores: i64 = cluster.read(&format!("node/{node}"), "{.status.allocatable.cpu}").parse().expect("whole cores");
    let (much, more) = (format!("{}m", cores * 1000 - 500), format!("{}m", cores * 1000 - 600));
    cluster.apply(&requests("big", &much));
    cluster.until_reads("pod/big", "{.status.phase}", "Running");
    let pid = cluster.pid("web");
    let edit = |from: &str, to: &str| {
        let editor = cluster.home().join("editor");
        fs::write(&editor, format!("sed -i 's/cpu: {from}$/cpu: {to}/' \"$1\"\n")).expect("written");
        let editor = format!("sh {}", editor.display());
        let mut command = cluster.command();
        command.args(["edit", "pod", "web", "--subresource", "resize"]).env("EDITOR", editor);
        let said = cluster.run_program(&mut command, "");
        assert_eq!((said.code, &*said.out), (0, "pod/web edited\n"), "{}", said.err);
    };
    let condition = |field: &str| {
        cluster.read("pod/web", &format!("{{.status.conditions[?(@.type==\"PodResizePending\")].{field}}}"))
    };
    // More than the node has, then more than the other pod leaves, then an amount that fits.
    let resize = format!(
        r#"{{"spec":{{"containers":[{{"name":"main","resources":{{"requests":{{"cpu":"{}m"}}}}}}]}}}}"#,
        cores * 1000 + 1
    );
    let said = cluster.run(&["patch", "pod", "web", "--subresource", "resize", "-p", &resize], "");
    let why = format!("cpu, requested: {}, allocatable: {}", cores * 1000 + 1, cores * 1000);
    assert!(said.code == 1 && said.err.contains(&why), "{}", said.err);
    edit("10m", &more);
    cluster.until("the resize is deferred", || condition("reason") == "Deferred");
    let allocated = "{.status.containerStatuses[0].allocatedResources.cpu}";
    assert_eq!(cluster.read("pod/web", allocated), "10m", "a deferred resize is not allocated");
    let why = format!("Node didn't have enough resource: cpu, requested: {}", more.trim_end_matches('m'));
    assert!(condition("message").starts_with(&why), "{}", condition("message"));
    let actual = "{.status.containerStatuses[0].resources.requests.cpu}";
    assert_eq!(cluster.read("pod/web", actual), "10m");
    cluster.ok("delete pod big");
    cluster.until_reads("pod/web", actual, &more);
    assert_eq!((condition("reason"), cluster.pid("web")), (String::new(), pid), "the resize is done without a restart");
    // A resource with a restart policy is changed by a restart, which is reported once.
    let restarts = requests("anew", "10m")
        .replace("resources:", "resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}], resources:");
    cluster.apply(&restarts.replace("restartPolicy: Never", "restartPolicy: Always"));
    cluster.until_reads("pod/anew", actual, "10m");
    let change = r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"20m"}}}]}}"#;
    assert_eq!(cluster.run(&["patch", "pod", "anew", "--subresource", "resize", "-p", change], "").code, 0);
    cluster.until_reads("pod/anew", "{.status.containerStatuses[0].restartCount}", "1");
    let told = cluster.ok("events --for pod/anew");
    let killing: Vec<&str> = told.lines().filter(|line| line.contains("Killing")).collect();
    assert!(
        matches!(killing[..], [one] if one.ends_with("Container main resize requires restart") && !one.contains("(x")),
        "{told}"
    );
    cluster.ok("delete pod web anew");
    cluster.nothing_is_left();
}

#[test]
fn memory_pressure_evicts_pods_by_usage_and_rejects_new_ones() {
    let cluster = Cluster::new();
    // A threshold that every machine exceeds.
    let _plane = cluster.watch_with(&["--eviction-hard", "memory.available<1000Ti"]);
    cluster.until("the machine is a node", || !cluster.ok("get nodes -o name").is_empty());
    let node = cluster.ok("get nodes -o name").trim().to_owned();
    let pressed = "{.status.conditions[?(@.type==\"MemoryPressure\")].reason}";
    cluster.until_reads(&node, pressed, "KubeletHasInsufficientMemory");
    cluster.until("the node is tainted", || {
        cluster.read(&node, "{.spec.taints[*].key}").contains("node.kubernetes.io/memory-pressure")
    });
    // Both are bound directly, because the scheduler respects the taint.
    let bound = |name: &str, resources: &str| {
        let place = format!("nodeName: {}\n  restartPolicy", node.trim_start_matches("node/"));
        pod(name, resources, "exec sleep 1000").replacen("restartPolicy", &place, 1)
    };
    cluster.apply(&bound("besteffort", "{}"));
    cluster.until_reads("pod/besteffort", "{.status.reason}", "Evicted");
    cluster.until_reads("pod/besteffort", "{.status.phase}", "Failed");
    let told = "The node had condition: [MemoryPressure]. ";
    assert_eq!(cluster.read("pod/besteffort", "{.status.message}"), format!("Pod was rejected: {told}"));
    assert_eq!(cluster.read("pod/besteffort", "{.status.containerStatuses}"), "");
    cluster.until("an event says so", || cluster.ok("events --for pod/besteffort").contains(told.trim_end()));
    let row = cluster.ok("get pod besteffort --no-headers");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[..3], ["besteffort", "0/1", "Evicted"]);
    let said = cluster.kloop("logs besteffort");
    let expected = "Error from server (BadRequest): container \"main\" in pod \"besteffort\" is not available\n";
    assert_eq!((said.code, &*said.err), (1, expected));
    cluster.apply(&bound("greedy", "{requests: {memory: 1Ki}}"));
    cluster.until_reads("pod/greedy", "{.status.reason}", "Evicted");
    cluster.until_reads("pod/greedy", "{.status.phase}", "Failed");
    let message = cluster.read("pod/greedy", "{.status.message}");
    assert!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: 1000Ti, available: "),
        "{message}"
    );
    let told = cluster.ok("get events -A");
    assert!(told.contains("EvictionThresholdMet") && told.contains("NodeHasInsufficientMemory"), "{told}");
    cluster.ok("delete pod besteffort greedy");
    cluster.nothing_is_left();
}
