//! PID namespaces of containers, and the end of their processes with the first one.

use super::{clusters, on_host_files, pod_with};
use crate::cluster::{Cluster, is_alive, signal};
use std::fs;

const STAYS: &str = "exec sleep 1000";

/// A pod with the containers `main` and `beside`.
fn pod(name: &str, spec: &str) -> String {
    let beside = "  - {name: beside, image: busybox, command: [sleep, '1000']}\n";
    pod_with(name, &format!("terminationGracePeriodSeconds: 5{spec}"), "", STAYS) + beside
}

/// Returns the PID namespace of a container, as seen inside.
fn space(cluster: &Cluster, pod: &str, container: &str) -> String {
    cluster.ok(&format!("exec {pod} -c {container} -- readlink /proc/self/ns/pid"))
}

/// Runs a script in a shell with this command; returns its output.
fn shell(cluster: &Cluster, words: &[&str], script: &str) -> String {
    let said = cluster.run(&[words, &["--", "sh", "-c", script]].concat(), "");
    assert_eq!(said.code, 0, "{words:?}: {}", said.err);
    said.out
}

#[test]
fn container_sees_the_processes_of_its_pid_namespace() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let machines = pod("files", "");
        let manifests =
            [pod("own", ""), pod("shared", ", shareProcessNamespace: true"), pod("hosted", ", hostPID: true")];
        cluster.apply(&[&manifests.join("---\n"), "---\n", &on_host_files(&machines)].concat());
        cluster.ok("wait --for=condition=Ready pod --all --timeout=30s");
        let machine = fs::read_link("/proc/self/ns/pid").expect("a link").display().to_string() + "\n";
        let [main, beside] = ["main", "beside"].map(|name| space(&cluster, "own", name));
        assert!(main != beside && main != machine && beside != machine, "{main}{beside}{machine}");
        let [main, beside] = ["main", "beside"].map(|name| space(&cluster, "shared", name));
        assert!(main == beside && main != machine, "{main}{beside}{machine}");
        assert_eq!(space(&cluster, "hosted", "main"), machine);
        assert_eq!(space(&cluster, "files", "main"), machine, "/proc is the machine's there");
        let seen = shell(&cluster, &["exec", "own", "-c", "main"], "cd /proc; echo [0-9]*");
        assert_eq!(seen.split_whitespace().count(), 2, "its program, and this shell: {seen}");
        let joining = ["debug", "own", "--image=busybox", "--target=main", "-c", "joining", "-q", "--attach=false"];
        shell(&cluster, &joining, STAYS);
        let runs = "{.status.ephemeralContainerStatuses[0].state.running.startedAt}";
        cluster.until("the ephemeral container runs", || !cluster.read("pod/own", runs).is_empty());
        assert_eq!(space(&cluster, "own", "joining"), space(&cluster, "own", "main"));
    }
}

#[test]
fn host_paths_show_the_processes_of_the_machine() {
    let volumes = "volumes: [{name: root, hostPath: {path: /}}, {name: proc, hostPath: {path: /proc}}]";
    let mounts =
        "volumeMounts: [{name: root, mountPath: /host, readOnly: true}, {name: proc, mountPath: /machine/proc}]";
    for cluster in clusters() {
        let _plane = cluster.watch();
        cluster.apply(&pod_with("agent", volumes, mounts, STAYS));
        cluster.ok("wait --for=condition=Ready pod/agent --timeout=30s");
        let own = fs::read_to_string("/proc/self/comm").expect("a name");
        for place in ["/host/proc", "/machine/proc"] {
            let name = format!("cat {place}/{}/comm", std::process::id());
            assert_eq!(shell(&cluster, &["exec", "agent"], &name), own, "{place}");
        }
        assert!(cluster.run(&["exec", "agent", "--", "ls", &format!("/proc/{}", std::process::id())], "").code != 0);
    }
}

#[test]
fn first_process_is_the_program_itself() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let script = "trap 'echo reload' HUP; trap 'echo bye; exit 7' QUIT; touch /marker; echo begun; while :; do sleep 0.05; done";
        cluster.apply(&pod_with("own", "terminationGracePeriodSeconds: 5", "env: [{name: MINE, value: me}]", script));
        cluster.until("the program has started", || cluster.kloop("logs own").out == "begun\n");
        let inside = |script: &str| shell(&cluster, &["exec", "own"], script);
        inside("kill -0 1 && kill -HUP 1 && kill -TERM 1");
        inside("echo by hand > /proc/1/fd/1");
        cluster.until("the log has all lines", || cluster.kloop("logs own").out.lines().count() == 3);
        let mut heard: Vec<String> = cluster.ok("logs own").lines().map(str::to_owned).collect();
        heard.sort();
        assert_eq!(heard, ["begun", "by hand", "reload"], "SIGTERM without a trap is not delivered");
        assert_eq!(
            inside("ls /proc/1/root/marker; tr '\\0' '\\n' < /proc/1/environ | grep MINE"),
            "/proc/1/root/marker\nMINE=me\n"
        );
        // The program may exit before the shell that signals it, and kills that shell.
        let asked = cluster.run(&["exec", "own", "--", "sh", "-c", "kill -QUIT 1"], "");
        assert!([0, 137].contains(&asked.code), "{asked:?}");
        let ended = "{.status.containerStatuses[0].lastState.terminated.exitCode}";
        cluster.until_reads("pod/own", ended, "7");
        cluster.ok("delete pod own");
        cluster.nothing_is_left();
    }
}

#[test]
fn shared_memory_is_private_to_the_pod() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let own = format!("kloop-test-{}", std::process::id());
        let script = format!(
            "ls -A /dev/shm; echo x >> /dev/shm/{own}; test $(wc -l < /dev/shm/{own}) -gt 2 && exec sleep 1000; exit 1"
        );
        let init = format!("echo x > /dev/shm/{own}; stat -f -c %T /dev/shm; stat -c %a /dev/shm");
        let first = serde_json::json!([{"name": "first", "image": "busybox", "command": ["sh", "-c", init]}]);
        let volume = "  - {name: volume, image: busybox, command: [sleep, '1000'], volumeMounts: [{name: m, mountPath: /dev/shm}]}\n";
        let spec = format!(", volumes: [{{name: m, emptyDir: {{medium: Memory}}}}], initContainers: {first}");
        let shares =
            pod("shares", &spec).replace(&format!("\"{STAYS}\""), &serde_json::Value::from(script).to_string());
        cluster.apply(&[&*shares, volume, "---\n", &pod("other", "")].concat());
        cluster.ok("wait --for=condition=Ready pod/other --timeout=30s");
        cluster.until_reads("pod/shares", "{.status.containerStatuses[?(@.name==\"main\")].ready}", "true");
        assert_eq!(cluster.log("shares", "first"), "tmpfs\n1777\n");
        let both = format!("{own}\n").repeat(2);
        cluster.until("the restarted container has found the file too", || cluster.log("shares", "main") == both);
        let list = "ls -A /dev/shm";
        assert_eq!(shell(&cluster, &["exec", "shares", "-c", "beside"], list), format!("{own}\n"));
        assert_eq!(shell(&cluster, &["exec", "shares", "-c", "volume"], list), "");
        assert_eq!(shell(&cluster, &["exec", "other", "-c", "main"], list), "");
        assert!(!std::path::Path::new("/dev/shm").join(&own).exists());
        cluster.ok("delete pods --all");
        cluster.nothing_is_left();
    }
}

#[test]
fn shim_that_keeps_shared_memory_ends_once_its_folder_is_gone() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    let script = format!("echo x > /dev/shm/kloop-test-{}; exec sleep 1000", std::process::id());
    cluster.apply(&pod_with("keeps", "restartPolicy: Always", "", &script));
    cluster.ok("wait --for=condition=Ready pod/keeps --timeout=30s");
    let (main, shims) = (cluster.pid("keeps"), || cluster.processes());
    plane.end("KILL");
    signal(main, "KILL");
    // Without a control plane, the shim waits for the next attempt, because files in memory are lost when it ends.
    cluster.until("only the shim is left", || shims().len() == 1);
    fs::remove_dir_all(cluster.pods_folder()).expect("removed");
    cluster.until("it has ended", || shims().is_empty());
}

#[test]
fn process_without_a_handler_ends_by_the_signal() {
    for cluster in clusters() {
        let plane = cluster.watch();
        cluster.apply(&pod_with("deaf", "terminationGracePeriodSeconds: 1000", "", STAYS));
        cluster.ok("wait --for=condition=Ready pod/deaf --timeout=30s");
        cluster.ok("delete pod deaf");
        plane.until_says("default/deaf: main was ended by signal 15 (code 143)");
        cluster.nothing_is_left();
    }
}

#[test]
fn pause_process_exposes_nothing() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        cluster.apply(&pod("shared", ", shareProcessNamespace: true"));
        cluster.ok("wait --for=condition=Ready pod/shared --timeout=30s");
        let seen = shell(
            &cluster,
            &["exec", "shared", "-c", "main"],
            "cat /proc/1/comm; ls -A /proc/1/root/ 2>/dev/null; grep -E 'CapEff|NoNew' /proc/1/status",
        );
        let (name, rest) = seen.split_once('\n').expect("lines");
        assert_eq!(name, "pause");
        assert!(rest.ends_with("NoNewPrivs:\t1\n") && rest.starts_with("CapEff:"), "there are no files: {seen}");
        // Orphans become its children and are reaped.
        shell(&cluster, &["exec", "shared", "-c", "beside"], "(setsid setsid true &)");
        cluster.ok("delete pod shared");
        cluster.nothing_is_left();
    }
}

#[test]
fn dead_shim_ends_its_processes_without_a_control_plane() {
    for cluster in clusters() {
        let plane = cluster.watch();
        cluster.apply(&pod_with("family", "", "", "(setsid setsid sleep 1000 &) ; exec sleep 1000"));
        cluster.ok("wait --for=condition=Ready pod/family --timeout=30s");
        let main = cluster.pid("family");
        let stat = fs::read_to_string(format!("/proc/{main}/stat")).expect("it runs");
        let shim = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok()).expect("its parent");
        plane.end("KILL");
        signal(shim, "KILL");
        cluster.until("the shim is dead", || !is_alive(shim));
        cluster.until("all processes of the pod are dead", || cluster.processes().is_empty());
    }
}

#[test]
fn containers_see_the_machines_processes_without_a_proc_mount() {
    let cluster = clusters().pop().expect("an ordinary user's");
    let hide = "mount -t tmpfs none /proc/fs";
    let mut probe = cluster.program("unshare");
    if !probe.args(["-r", "-m", "sh", "-c", hide]).output().is_ok_and(|done| done.status.success()) {
        return skip!("no namespaces can be had here");
    }
    let mut plane = cluster.program("unshare");
    // Runs in a nested user namespace, which cannot unmount it.
    let begin = format!("{hide} && exec unshare -r -m \"$0\" reconcile --watch");
    plane.args(["-r", "-m", "sh", "-c", &begin, env!("CARGO_BIN_EXE_kloop")]);
    cluster.apply(&pod("own", ""));
    let _plane = cluster.background_program(plane);
    cluster.ok("wait --for=condition=Ready pod/own --timeout=30s");
    let machine = fs::read_link("/proc/self/ns/pid").expect("a link").display().to_string() + "\n";
    assert_eq!(space(&cluster, "own", "main"), machine);
    cluster.ok("delete pod own");
    cluster.nothing_is_left();
}
