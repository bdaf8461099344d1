//! Control planes start, stop and fail; the processes stay.

use super::{deployment, on_host_files, pod};
use crate::cluster::{Cluster, is_alive, is_stopped, signal};
use std::cell::RefCell;
use std::collections::BTreeMap;

const RESTARTS: &str = "{.items[*].status.containerStatuses[*].restartCount}";

fn pids(cluster: &Cluster, pods: &[String]) -> BTreeMap<String, u32> {
    pods.iter().map(|pod| (pod.clone(), cluster.pid(pod))).collect()
}

#[test]
fn killed_control_plane_disturbs_no_process_and_exits_are_reported() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 4, 1000));
    let script = r#"while ! test -e "$HOME/go"; do sleep 0.05; done; exit 9"#;
    cluster.apply(&on_host_files(&pod("once", "Never", 5, script)));
    let pods = cluster.ready_pods("app=web", 4);
    cluster.until_reads("pod/once", "{.status.phase}", "Running");
    let before = pids(&cluster, &pods);
    let once = cluster.pid("once");

    plane.end("KILL");
    assert!(before.values().all(|pid| is_alive(*pid)));
    // Two exits without a control plane: one on its own, one by a signal.
    std::fs::write(cluster.home().join("go"), "").unwrap();
    cluster.until("the process has exited", || !is_alive(once));
    let (victim, killed) = before.iter().next().map(|(pod, pid)| (pod.clone(), *pid)).unwrap();
    signal(killed, "KILL");
    cluster.until("the killed process is gone", || !is_alive(killed));
    // The next control plane reads the shims' records first.
    cluster
        .until("both shims have recorded it", || cluster.pids("once").is_empty() && cluster.pids(&victim).is_empty());

    let next = cluster.watch();
    next.until_says("kubelet: 3 pods keep running");
    next.until_says("default/once: main exited with code 9 while no control plane ran");
    next.until_says(&format!("default/{victim}: main was ended by signal 9 (code 137) while no control plane ran"));
    cluster.until_reads("pod/once", "{.status.containerStatuses[0].state.terminated.exitCode}", "9");
    cluster.until_reads(&format!("pod/{victim}"), "{.status.containerStatuses[0].restartCount}", "1");
    cluster.until_reads(
        &format!("pod/{victim}"),
        "{.status.containerStatuses[0].lastState.terminated.exitCode}",
        "137",
    );
    assert_eq!(cluster.ready_pods("app=web", 4), pods);
    let after = pids(&cluster, &pods);
    let same = before.iter().filter(|(pod, pid)| after[*pod] == **pid).count();
    assert_eq!(same, 3, "only the killed one is new: {before:?} {after:?}");
    let mut restarts: Vec<String> = cluster.read("pods -l app=web", RESTARTS).split(' ').map(str::to_owned).collect();
    restarts.sort();
    assert_eq!(restarts, ["0", "0", "0", "1"]);
}

#[test]
fn standby_takes_over_when_the_leader_dies() {
    let cluster = Cluster::new();
    let first = cluster.watch();
    cluster.apply(&deployment("web", 2, 1000));
    let pods = cluster.ready_pods("app=web", 2);
    let before = pids(&cluster, &pods);
    let second = cluster.watch();
    second.until_says(&format!("the control plane with pid {} leads; standing by", first.pid()));
    first.end("KILL");
    cluster.apply(&deployment("later", 1, 1000));
    cluster.ready_pods("app=later", 1);
    assert_eq!(pids(&cluster, &pods), before);
    assert_eq!(cluster.read("pods -l app=web", RESTARTS), "0 0");
    assert_eq!(second.end("INT"), 0);
}

#[test]
fn paused_leader_continues_without_harm() {
    let cluster = Cluster::new();
    let first = cluster.watch();
    cluster.apply(&deployment("web", 2, 1000));
    let pods = cluster.ready_pods("app=web", 2);
    let before = pids(&cluster, &pods);
    signal(first.pid(), "STOP");
    cluster.until("it has stopped", || is_stopped(first.pid()));
    // No other control plane waits to lead; pending requests are handled when this one continues.
    cluster.apply(&deployment("web", 3, 1000));
    signal(first.pid(), "CONT");
    let now = cluster.ready_pods("app=web", 3);
    assert!(pods.iter().all(|pod| now.contains(pod)));
    assert_eq!(pids(&cluster, &pods), before);
}

#[test]
fn stopped_leader_is_replaced_when_its_lease_ends() {
    let cluster = Cluster::new();
    let first = cluster.watch();
    cluster.apply(&deployment("web", 2, 1000));
    let pods = cluster.ready_pods("app=web", 2);
    let before = pids(&cluster, &pods);
    let second = cluster.watch();
    second.until_says("leads; standing by");
    signal(first.pid(), "STOP");
    cluster.apply(&deployment("later", 1, 1000));
    cluster.ready_pods("app=later", 1);
    signal(first.pid(), "CONT");
    first.until_says("another control plane took over; waiting");
    first.until_says(&format!("the control plane with pid {} leads; standing by", second.pid()));
    assert_eq!(pids(&cluster, &pods), before);
    cluster.ok("scale deploy/web --replicas=3");
    assert!(pods.iter().all(|pod| cluster.ready_pods("app=web", 3).contains(pod)));
}

#[test]
fn write_lock_of_another_program_is_waited_for() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 1, 1000));
    let pods = cluster.ready_pods("app=web", 1);
    let foreign = rusqlite::Connection::open(cluster.home().join("state.db")).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The exit of the process has to be written.
    signal(cluster.pid(&pods[0]), "KILL");
    plane.until_says(&format!("process {} (", std::process::id()));
    assert!(plane.said().contains("waiting to write to "), "{}", plane.said());
    let late = cluster.watch();
    late.until_says("leads; standing by");
    plane.end("KILL");
    late.until_says("waiting to write to the cluster's file: process ");
    let command = cluster.background(&["create", "configmap", "late"]);
    command.until_says(&format!("hint: waiting to write to the cluster's file: process {} (", std::process::id()));
    foreign.execute_batch("ROLLBACK").unwrap();
    assert_eq!(command.ended(), 0);
    assert!(command.said().ends_with("configmap/late created\n"), "{}", command.said());
    cluster.until_reads(&format!("pod/{}", pods[0]), "{.status.containerStatuses[0].restartCount}", "1");
    assert_eq!(late.end("INT"), 0);
}

/// A child that is killed when its test ends.
struct KilledAtTheEnd(RefCell<std::process::Child>);

impl Drop for KilledAtTheEnd {
    fn drop(&mut self) {
        let child = self.0.get_mut();
        drop(child.kill());
        drop(child.wait());
    }
}

#[test]
fn full_output_pipe_does_not_block_the_control_plane() {
    let cluster = Cluster::new();
    let mut command = cluster.command();
    command.args(["reconcile", "--watch", "--verbose"]).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let output = child.stdout.take().unwrap();
    let plane = KilledAtTheEnd(RefCell::new(child));
    let room = rustix::pipe::fcntl_setpipe_size(&output, 4096).unwrap();
    cluster.apply(&deployment("web", 20, 1000));
    cluster.ready_pods("app=web", 20);
    let unread = rustix::io::ioctl_fionread(&output).unwrap() as usize;
    cluster.ok("delete deploy/web");
    cluster.until("the pods are gone", || cluster.pods("app=web").is_empty());
    signal(plane.0.borrow().id(), "INT");
    let code = cluster.wait_for("the control plane ends", || plane.0.borrow_mut().try_wait().unwrap()).code();
    assert_eq!(code, Some(0));
    assert!(unread + 1024 > room, "the output pipe is full: {unread} of {room} bytes");
}

#[test]
fn removed_write_ahead_log_is_noticed() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 1, 1000));
    let pods = cluster.ready_pods("app=web", 1);
    let before = pids(&cluster, &pods);
    signal(plane.pid(), "STOP");
    std::fs::remove_file(cluster.home().join("state.db-wal")).unwrap();
    let told = cluster.kloop("get pods");
    assert!(
        told.code == 74 && told.err.contains("its -wal file was removed while another process uses it"),
        "{told:?}"
    );
    signal(plane.pid(), "CONT");
    assert_eq!(plane.ended(), 74, "{}", plane.said());
    let said = plane.said();
    assert!(said.contains("state.db-wal: it was removed or replaced while this control plane ran"), "{said}");
    assert!(before.values().all(|pid| is_alive(*pid)), "all processes run");
}

#[test]
fn new_cluster_starts_beside_processes_of_a_removed_one() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&deployment("old", 5, 1000));
    let pods = cluster.ready_pods("app=old", 5);
    let before = pids(&cluster, &pods);
    plane.end("KILL");
    for entry in std::fs::read_dir(cluster.home()).unwrap().flatten() {
        let gone = if entry.path().is_dir() { std::fs::remove_dir_all } else { std::fs::remove_file };
        gone(entry.path()).unwrap();
    }
    let next = cluster.watch();
    cluster.apply(&deployment("new", 1, 1000));
    cluster.ready_pods("app=new", 1);
    if before.values().any(|pid| is_alive(*pid)) && kloop::runtime::limits::CgroupTree::find(&cluster.home()).is_ok() {
        next.until_says("of a cluster that was at this path before still run, although its folder was removed");
    }
    before.values().for_each(|pid| signal(*pid, "KILL"));
}

#[test]
fn longest_grace_period_is_accepted() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    let longest = i64::MAX.to_string();
    let script = "trap '' TERM; echo up; while :; do sleep 1; done";
    cluster.apply(&pod("long", "Always", 5, script).replace("PeriodSeconds: 5", &format!("PeriodSeconds: {longest}")));
    cluster.apply(&pod("asked", "Always", 5, script));
    for name in ["long", "asked"] {
        cluster.until_logs(name, "up\n");
    }
    cluster.ok("delete pod long --wait=false");
    cluster.ok(&format!("delete pod asked --wait=false --grace-period={longest}"));
    for name in ["long", "asked"] {
        assert_eq!(cluster.read(&format!("pod/{name}"), "{.metadata.deletionGracePeriodSeconds}"), longest);
        assert!(cluster.read(&format!("pod/{name}"), "{.metadata.deletionTimestamp}").starts_with("9999-12-30"));
    }
    cluster.apply(&deployment("web", 1, 1000));
    cluster.ready_pods("app=web", 1);
    assert!(!plane.said().contains("internal error"), "{}", plane.said());
    cluster.ok("delete pod long asked --grace-period=1");
    assert_eq!(plane.end("INT"), 0);
}

#[test]
fn interrupt_leaves_the_processes_and_says_so() {
    let cluster = Cluster::new();
    for name in ["INT", "TERM"] {
        let plane = cluster.watch();
        cluster.apply(&deployment("web", 2, 1000));
        let pods = cluster.ready_pods("app=web", 2);
        let before = pids(&cluster, &pods);
        assert_eq!(plane.end(name), 0);
        assert!(plane.said().contains("the processes of 2 pods keep running"), "{}", plane.said());
        assert!(before.values().all(|pid| is_alive(*pid)));
    }
}

#[test]
fn stop_on_exit_ends_the_processes_and_the_next_run_starts_them_again() {
    let cluster = Cluster::new();
    let plane = cluster.watch_with(&["--stop-on-exit"]);
    cluster.apply(&deployment("web", 2, 1000));
    cluster.ready_pods("app=web", 2);
    assert_eq!(plane.end("INT"), 0);
    assert!(plane.said().contains("ended the processes of 2 pods"), "{}", plane.said());
    assert!(cluster.processes().is_empty(), "{:?}", cluster.processes());
    let _next = cluster.watch();
    cluster.until("the processes run again", || {
        cluster.pods("app=web").iter().filter(|pod| cluster.pids(pod).values().any(|pid| is_alive(*pid))).count() == 2
    });
    cluster.ready_pods("app=web", 2);
}

#[test]
fn nodes_have_leases() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let lease = || cluster.ok("get leases -n kube-node-lease -o name");
    cluster.until("the node has a lease", || lease().starts_with("lease.coordination.k8s.io/"));
    let node = cluster.ok("describe nodes");
    assert!(node.contains("\n  HolderIdentity: ") && !node.contains("Failed to get lease"), "{node}");
}

#[test]
fn stop_on_exit_fails_nothing() {
    let cluster = Cluster::new();
    let plane = cluster.watch_with(&["--stop-on-exit"]);
    cluster.apply(
        r#"{apiVersion: batch/v1, kind: Job, metadata: {name: once}, spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never,
            containers: [{name: main, image: busybox, command: [sleep, "1000"]}]}}}}"#,
    );
    let runs =
        || cluster.read("pods -l job-name=once", "{.items[*].status.containerStatuses[*].state.running.startedAt}");
    cluster.until("the job runs", || !runs().is_empty());
    assert_eq!(plane.end("INT"), 0);
    assert!(cluster.processes().is_empty(), "{:?}", cluster.processes());
    let pods = cluster.ok("get pods --no-headers");
    assert!(pods.contains(" 0/1 ") && pods.contains(" Stopped "), "{pods}");
    let _next = cluster.watch();
    cluster.until("the job runs again", || !runs().is_empty());
    assert_eq!(cluster.read("pods -l job-name=once", RESTARTS), "0");
    assert_eq!(cluster.read("job/once", "{.status.active}/{.status.failed}"), "1/");
}

#[test]
fn one_shot_beside_a_leader_ends_with_its_convergence() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&deployment("web", 1, 1000));
    assert!(cluster.ok("reconcile --timeout 60s").ends_with("converged\n"));
    cluster.apply(&pod("nowhere", "Always", 5, "sleep 1").replace("spec:", "spec:\n  nodeSelector: {disk: fast}"));
    let said = cluster.kloop("reconcile --timeout 1s");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.err.starts_with("error: not converged after 1s:\n  pods default/nowhere: "), "{}", said.err);
}

#[test]
fn removed_state_file_is_noticed() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 1, 1000));
    let pods = cluster.ready_pods("app=web", 1);
    let before = pids(&cluster, &pods);
    let (here, away) = (cluster.home().join("state.db"), cluster.home().join("away.db"));
    std::fs::rename(&here, &away).unwrap();
    assert_eq!(plane.ended(), 74, "{}", plane.said());
    assert!(plane.said().contains("it was removed or replaced"), "{}", plane.said());
    assert!(before.values().all(|pid| is_alive(*pid)), "all processes run");
    std::fs::rename(&away, &here).unwrap();
    let _next = cluster.watch();
    cluster.ready_pods("app=web", 1);
    assert_eq!(pids(&cluster, &pods), before, "the processes are adopted");
}

#[test]
fn one_shot_says_what_is_missing_and_why() {
    let cluster = Cluster::new();
    cluster.apply(&deployment("fine", 1, 1000));
    cluster.apply(
        &pod("waiting", "Always", 5, "sleep 1")
            .replace("image: debian", "image: debian, envFrom: [{configMapRef: {name: absent}}]"),
    );
    cluster.apply(&pod("nowhere", "Always", 5, "sleep 1").replace("spec:", "spec:\n  nodeSelector: {disk: fast}"));
    let said = cluster.kloop("reconcile --timeout 20s");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.err.starts_with("error: not converged after 20s:\n"), "{}", said.err);
    assert!(said.err.contains("configmap \"absent\" not found"), "{}", said.err);
    assert!(said.err.contains("1 node(s) didn't match Pod's node affinity/selector"), "{}", said.err);
    assert!(!said.err.contains("fine"), "converged objects are not listed: {}", said.err);
    assert_eq!(cluster.ready_pods("app=fine", 1).len(), 1);
    cluster.ok("delete pod waiting nowhere --wait=false");
    assert!(cluster.ok("reconcile").ends_with("converged\n"));
}

#[test]
fn idle_control_plane_writes_nothing() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&deployment("web", 3, 1000));
    cluster.ready_pods("app=web", 3);
    cluster.until_reads("deploy/web", "{.status.availableReplicas}", "3");
    let revision = || cluster.read("pods,rs,deploy,endpointslices,nodes -A", "{.items[*].metadata.resourceVersion}");
    // A second control plane's start and a resync would show as writes; three equal revisions with a write of ours between them show that
    // there are none.
    let before = revision();
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: unrelated}}");
    cluster.ok("delete configmap unrelated");
    assert_eq!(revision(), before);
}

#[test]
fn two_databases_in_one_folder_are_two_clusters() {
    let cluster = Cluster::new();
    let state = |name: &str| cluster.home().join(name).display().to_string();
    let asked = |name: &str, line: &str| cluster.kloop(&format!("--state {} {line}", state(name)));
    let planes = ["a.db", "b.db"].map(|name| {
        let manifest = pod("same", "Always", 5, &format!("echo of {name}; exec sleep 1000"));
        let said = cluster.run(&["--state", &state(name), "apply", "-f", "-"], &manifest);
        assert_eq!((said.out.as_str(), said.code), ("pod/same created\n", 0), "{}", said.err);
        cluster.watch_with(&["--state", &state(name)])
    });
    for name in ["a.db", "b.db"] {
        cluster.until("the pod runs", || asked(name, "logs same").out == format!("of {name}\n"));
        assert!(cluster.home().join(format!("{name}.d/pods")).is_dir());
    }
    let said = asked("a.db", "delete pod same");
    assert_eq!((said.out.as_str(), said.code), ("pod \"same\" deleted from default namespace\n", 0), "{}", said.err);
    let phase = "get pod same -o jsonpath={.status.phase}/{.status.containerStatuses[0].restartCount}";
    cluster.until("the other pod runs", || asked("b.db", phase).out == "Running/0");
    assert_eq!(asked("b.db", "logs same").out, "of b.db\n");
    assert!(!cluster.home().join("pods").exists() && !cluster.home().join("leader.lock").exists());
    drop(planes);
}

#[test]
fn activity_is_printed_and_bookkeeping_on_request() {
    let cluster = Cluster::new();
    let told =
        ["created replicaset.apps/web-", "created pod/web-", "bound to node ", "started main (pid ", "rolled out: "];
    let bookkeeping = ["the counts of pods changed", "every namespace has a default ServiceAccount"];
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 1, 1000));
    told.iter().for_each(|text| plane.until_says(text));
    cluster.ok("scale deploy/web --replicas=2");
    plane.until_says("from 1 to 2");
    cluster.apply(&pod("crash", "Always", 5, "exit 3"));
    plane.until_says(" default/crash: main exited with code 3");
    plane.until_says(" default/crash: main keeps failing; it is started again in ");
    signal(cluster.pid(&cluster.ready_pods("app=web", 2)[0]), "KILL");
    plane.until_says(": main was ended by signal 9 (code 137)");
    plane.until_says("restart 1)");
    for text in bookkeeping {
        assert!(!plane.said().contains(text), "{text:?} in\n{}", plane.said());
    }
    plane.end("TERM");
    let verbose = cluster.watch_with(&["-v"]);
    cluster.ok("create namespace other");
    cluster.ok("scale deploy/web --replicas=1");
    bookkeeping.iter().for_each(|text| verbose.until_says(text));
}

#[test]
fn pods_of_another_version_are_restarted_and_can_be_deleted() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 2, 1000));
    let pods = cluster.ready_pods("app=web", 2);
    let before = pids(&cluster, &pods);
    plane.end("KILL");
    for folder in std::fs::read_dir(cluster.pods_folder()).unwrap() {
        let path = folder.unwrap().path().join("record.json");
        let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        record.as_object_mut().unwrap().remove("version");
        std::fs::write(path, record.to_string()).unwrap();
    }
    let next = cluster.watch();
    for pod in &pods {
        cluster.until_reads(&format!("pod/{pod}"), "{.status.containerStatuses[0].restartCount}", "1");
        let last = "{.status.containerStatuses[0].lastState.terminated.exitCode}/{.status.containerStatuses[0].lastState.terminated.reason}";
        assert_eq!(cluster.read(&format!("pod/{pod}"), last), "137/ContainerStatusUnknown");
    }
    assert_eq!(cluster.ready_pods("app=web", 2), pods);
    assert!(before.values().all(|pid| !is_alive(*pid)), "no process of the other version is left");
    next.until_says("The container ran under another version of kloop");
    cluster.until("an event says why", || cluster.ok("get events").contains("under another version of kloop"));
    cluster.ok("delete deploy/web");
    cluster.nothing_is_left();
}

#[test]
fn why_names_the_cause_and_its_component() {
    let cluster = Cluster::new();
    cluster.apply(&deployment("web", 1, 1000));
    let said = cluster.kloop("why deployment/web");
    assert_eq!((said.code, said.out.ends_with("next: run: kloop reconcile --watch\n")), (1, true), "{said:?}");
    let plane = cluster.watch_with(&["--restart-backoff", "1s"]);
    cluster.ready_pods("app=web", 1);
    cluster.until("why reports convergence", || cluster.kloop("why deployment/web").code == 0);
    assert!(cluster.ok("why deployment/web").ends_with("next: nothing, it has converged\n"));
    cluster.apply(&pod("crash", "Always", 5, "echo oops; exit 3"));
    let said =
        cluster.wait_for("the pod is stuck", || Some(cluster.kloop("why pod/crash")).filter(|said| said.code == 1));
    let cause = said.out.lines().find(|line| line.starts_with('>')).expect("a cause");
    assert!(cause.contains("container main") && cause.contains("code 3") && cause.ends_with("[kubelet]"), "{said:?}");
    assert!(said.out.contains("log: oops\n"), "{said:?}");
    plane.end("INT");
    assert_eq!(cluster.kloop("why deployment/web").code, 0, "its process still runs");
    cluster.processes().into_iter().for_each(|pid| signal(pid, "KILL"));
    cluster.until("no process is left", || cluster.processes().is_empty());
    let said = cluster.kloop("why deployment/web");
    assert!(said.code == 1 && said.out.contains("its processes are gone"), "{said:?}");
    let said: serde_json::Value = serde_json::from_str(&cluster.kloop("why pod/crash -o json").out).expect("JSON");
    assert_eq!((&said["state"], &said["about"]), (&"stuck".into(), &"pod/crash".into()), "{said}");
}

#[test]
fn why_reports_processes_that_ended_without_a_control_plane() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    let script = r#"while ! test -e "$HOME/go"; do sleep 0.05; done; echo oops; exit 9"#;
    let beside = "- {name: beside, image: busybox, command: [sleep, \"1000\"]}\n  - {name: main";
    cluster.apply(&on_host_files(&pod("once", "Always", 5, script)).replace("- {name: main", beside));
    cluster.apply(&deployment("web", 2, 1000));
    let web = cluster.ready_pods("app=web", 2);
    cluster.until("the cluster has converged", || cluster.kloop("why").code == 0);
    plane.end("KILL");
    assert_eq!(cluster.kloop("why").code, 0, "the processes still run");
    let mains = [cluster.pids("once")["main"], cluster.pid(&web[0])];
    std::fs::write(cluster.home().join("go"), "").unwrap();
    signal(mains[1], "KILL");
    cluster.until("the processes have ended", || !mains.iter().any(|pid| is_alive(*pid)));
    let said = cluster.wait_for("why reports it", || Some(cluster.kloop("why pod/once")).filter(|said| said.code == 1));
    let container = said.out.lines().find(|line| line.contains("container main")).expect("a line");
    assert!(
        container.contains("ended with code 9") && container.contains("its status is older and says running"),
        "{said:?}"
    );
    assert!(!said.out.contains("container beside") && said.out.contains("log: oops\n"), "{said:?}");
    assert!(said.out.contains("the process of main has ended; its status is older"), "{said:?}");
    assert!(said.out.ends_with("next: run: kloop reconcile --watch\n"), "{said:?}");
    cluster.until("why reports that too", || cluster.kloop("why deployment/web").code == 1);
    let said = cluster.kloop("why");
    assert_eq!((said.code, said.out.lines().count()), (1, 1), "without a control plane nothing else is said: {said:?}");
    assert!(said.out.starts_with("stuck      control plane: not running"), "{said:?}");
    let said = cluster.kloop("why -v");
    assert_eq!(said.code, 1, "{said:?}");
    let told = ["pod/once", &format!("pod/{}", web[0]), "deployment/web", "ended with code 137"];
    assert!(told.iter().all(|what| said.out.contains(what)), "{said:?}");
    let _plane = cluster.watch();
    cluster.until("the cluster has converged again", || cluster.kloop("why").code == 0);
}

#[test]
fn plan_shows_changes_and_makes_none() {
    let cluster = Cluster::new();
    let manifest = deployment("web", 2, 1000);
    let said = cluster.run(&["plan", "-f", "-"], &manifest);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("deployment-controller deployment/web: created replicaset.apps/web-"), "{said:?}");
    let last = said.out.lines().last().expect("a summary");
    assert!(last.starts_with("converges after ") && last.ends_with(" created, 0 changed, 0 deleted"), "{last}");
    assert_eq!(cluster.kloop("get deployments").out, "", "a plan changes nothing");
    cluster.apply(&manifest);
    cluster.ok("reconcile");
    let before = cluster.ready_pods("app=web", 2);
    let said = cluster.run(&["plan", "-f", "-"], &manifest);
    assert_eq!(
        (said.code, said.out.lines().last()),
        (0, Some("converges after 0.0s: 0 created, 0 changed, 0 deleted"))
    );
    let stuck = manifest.replace("image: busybox, command: [sleep", "image: no-such-program, args: [sleep");
    let said = cluster.run(&["plan", "-f", "-"], &stuck);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("is stuck after ") && said.out.contains("> stuck      container main"), "{said:?}");
    assert_eq!(cluster.ready_pods("app=web", 2), before);
    let more = deployment("web", 3, 1000);
    assert_eq!(cluster.run(&["plan", "-f", "-", "--until", "0s"], &more).code, 2, "it has not converged yet");
    let said = cluster.run(&["plan", "-f", "-", "-o", "name"], &more);
    assert!(said.code == 1 && said.out.is_empty(), "{said:?}");
    assert!(
        said.err.contains("suitable for the output format \"name\", allowed formats are: go-template,"),
        "{said:?}"
    );
}

#[test]
fn backup_replaces_a_lost_state_file() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 2, 1000));
    let pods = cluster.ready_pods("app=web", 2);
    let before = pids(&cluster, &pods);
    let said = cluster.ok(&format!("backup {}", cluster.home().join("copy.db").display()));
    assert!(said.contains("saved to"), "{said}");
    cluster.ok("create configmap later");
    plane.end("KILL");
    // Two other leaders since the backup.
    for _ in 0..2 {
        let other = cluster.watch();
        cluster.ready_pods("app=web", 2);
        other.end("KILL");
    }
    let state = cluster.home().join("state.db");
    for end in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{end}", state.display())));
    }
    std::fs::copy(cluster.home().join("copy.db"), &state).unwrap();
    let _plane = cluster.watch();
    cluster.ok("scale deploy/web --replicas=3");
    assert!(pods.iter().all(|pod| cluster.ready_pods("app=web", 3).contains(pod)));
    assert_eq!(pids(&cluster, &pods), before, "no process was disturbed");
    assert_eq!(cluster.run(&["get", "configmap", "later"], "").code, 1, "it was created after the backup");
}

#[test]
fn why_names_a_controller_that_was_left_out() {
    let cluster = Cluster::new();
    let plane = cluster.watch_with(&["--controllers", "*,-job"]);
    plane.until_says("ready: ");
    cluster.apply(
        r#"{apiVersion: batch/v1, kind: Job, metadata: {name: once}, spec: {template: {spec: {restartPolicy: Never,
            containers: [{name: main, image: busybox, command: ["true"]}]}}}}"#,
    );
    let said = cluster.kloop("why job/once");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("job-controller is not running: it was left out by --controllers"), "{}", said.out);
    assert_eq!(plane.end("INT"), 0);
    let whole = cluster.watch();
    cluster.until_reads("job/once", "{.status.succeeded}", "1");
    assert!(!cluster.kloop("why job/once").out.contains("left out"));
    assert_eq!(whole.end("INT"), 0);
}

#[test]
fn why_names_a_stopped_process() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&deployment("web", 1, 1000));
    let pods = cluster.ready_pods("app=web", 1);
    let main = cluster.pid(&pods[0]);
    let shim = kloop::runtime::process::stat(main as i32).expect("it runs").parent as u32;
    cluster.until("the cluster has converged", || cluster.kloop("why").code == 0);
    for (pid, what) in [(plane.pid(), "control plane"), (shim, "its shim, process"), (main, "container main")] {
        signal(pid, "STOP");
        let mend = format!("kill -CONT {pid}");
        for line in ["why", "why deploy/web"] {
            cluster.until(&format!("kloop {line} tells of the {what}"), || {
                let said = cluster.kloop(line);
                said.code == 1 && said.out.contains(what) && said.out.contains(&mend)
            });
        }
        let told = cluster.kloop("get pods").err;
        assert_eq!(told.contains(&mend), what == "control plane", "{what}: {told}");
        signal(pid, "CONT");
        cluster.until("the process continues", || cluster.kloop("why deploy/web").code == 0);
    }
}
