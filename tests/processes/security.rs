//! Rights of containers, their host names, and their termination messages.

use super::{ONCE, clusters, on_host_files, pod_with};
use crate::cluster::Cluster;

/// A pod with one container; `spec` and `container` are additional fields.
fn pod(name: &str, spec: &str, container: &str, script: &str) -> String {
    let spec = if spec.is_empty() { ONCE.to_owned() } else { format!("{ONCE}, {spec}") };
    pod_with(name, &spec, container, script)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

const RIGHTS: &str = "grep -E 'CapBnd|CapEff|NoNew' /proc/self/status";

#[test]
fn container_has_the_capabilities_of_its_manifest() {
    if !is_root() {
        return skip!("only root has capabilities to leave");
    }
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let dropping =
        "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}";
    cluster.apply(&pod("dropping", "", dropping, &format!("{RIGHTS}; exec sleep 1000")));
    cluster.apply(&pod("plain", "", "", &format!("{RIGHTS}; exec sleep 1000")));
    let expected = "CapEff:\t0000000000000400\nCapBnd:\t0000000000000400\nNoNewPrivs:\t1\n";
    cluster.until("the log is complete", || cluster.kloop("logs dropping").out.lines().count() == 3);
    assert_eq!(cluster.ok("logs dropping"), expected);
    assert_eq!(cluster.run(&["exec", "dropping", "--", "sh", "-c", RIGHTS], "").out, expected);
    let own = std::fs::read_to_string("/proc/self/status").expect("read");
    let own = own.lines().find(|line| line.starts_with("CapBnd")).expect("told");
    cluster.until("the log is complete", || cluster.kloop("logs plain").out.lines().count() == 3);
    assert!(cluster.ok("logs plain").contains(own), "the default keeps all capabilities");
}

#[test]
fn ordinary_user_gets_an_event_that_capabilities_need_root() {
    let cluster = clusters().pop().expect("one");
    let _plane = cluster.watch();
    let adding = "securityContext: {capabilities: {add: [SYS_TIME]}}";
    cluster.apply(&pod("adding", "", adding, &format!("{RIGHTS}; exec sleep 1000")));
    cluster.until_reads("pod/adding", "{.status.phase}", "Running");
    // Events are written after other work.
    cluster.until("the event is there", || {
        let events = cluster.ok("get events -o jsonpath={range.items[*]}{.reason}:{.message};{end}");
        events.contains("NoCapabilities:container main: securityContext.capabilities.add needs root")
    });
}

#[test]
fn read_only_root_permits_writes_in_volumes_only() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let volume = "volumes: [{name: data, emptyDir: {}}]";
        let container =
            "securityContext: {readOnlyRootFilesystem: true}, volumeMounts: [{name: data, mountPath: /data}]";
        let script = "for at in / /var /etc; do touch $at/new 2>/dev/null || echo no; done; touch /data/new && echo yes; \
                      echo > /dev/null && printf last > /dev/termination-log; exit 3";
        cluster.apply(&pod("closed", volume, container, script));
        cluster.until_reads("pod/closed", "{.status.phase}", "Failed");
        let events = cluster.ok("get events -o jsonpath={range.items[*]}{.reason};{end}");
        if events.contains("FilesystemWritable") {
            skip!("no file system can be made read-only here");
            continue;
        }
        assert_eq!(cluster.ok("logs closed"), "no\nno\nno\nyes\n");
        assert_eq!(cluster.read("pod/closed", "{.status.containerStatuses[0].state.terminated.message}"), "last");
    }
}

#[test]
fn pod_has_its_own_host_name() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let script = "uname -n; echo $HOSTNAME; exec sleep 1000";
        cluster.apply(&pod("named", "hostname: db, subdomain: shop, setHostnameAsFQDN: true", "", script));
        cluster.apply(&on_host_files(&pod("shared", "", "", script)));
        cluster.apply(&pod("outside", "hostNetwork: true", "", script));
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let full = "db.shop.default.svc.cluster.local";
        for name in ["named", "shared", "outside"] {
            cluster.until("the log is complete", || cluster.kloop(&format!("logs {name}")).out.lines().count() == 2);
        }
        let events = cluster.ok("get events -o jsonpath={range.items[*]}{.reason};{end}");
        let views = !events.contains("FilesShared");
        let root = cluster.kloop("exec named -- id -u").out == "0\n";
        let called = |can: bool, name: &str| if can { name.to_owned() } else { machine.clone() };
        let named = called(root || views, full);
        assert_eq!(cluster.ok("logs named"), format!("{named}\n{full}\n"));
        assert_eq!(cluster.ok("exec named -- uname -n"), format!("{named}\n"));
        // Without a private layer only root can set the host name.
        let shared = called(root, "shared");
        assert_eq!(cluster.ok("logs shared"), format!("{shared}\nshared\n"));
        assert_eq!(cluster.ok("exec shared -- uname -n"), format!("{shared}\n"));
        let node = cluster.read("pod/outside", "{.spec.nodeName}");
        assert_eq!(cluster.ok("logs outside"), format!("{machine}\n{node}\n"));
        assert_eq!(cluster.read("pod/outside", "{.status.podIP}"), cluster.read("pod/outside", "{.status.hostIP}"));
    }
}

#[test]
fn termination_message_is_read_from_the_machines_files_too() {
    for cluster in clusters() {
        let _plane = cluster.watch();
        let path = cluster.home().join("why");
        let says = format!("terminationMessagePath: {}", path.display());
        let host = |name: &str, container: &str, script: &str| on_host_files(&pod(name, "", container, script));
        cluster.apply(&host("speaker", &says, &format!("printf 'no disk' > {}; exit 3", path.display())));
        let logs = "terminationMessagePath: /proc/nowhere, terminationMessagePolicy: FallbackToLogsOnError";
        cluster.apply(&host("logger", logs, "echo no luck; exit 3"));
        let last = "{.status.containerStatuses[0].state.terminated.message}";
        cluster.until_reads("pod/speaker", last, "no disk");
        cluster.until_reads("pod/logger", "{.status.phase}", "Failed");
        assert_eq!(cluster.read("pod/logger", last).trim_end(), "no luck");
    }
}

#[test]
fn other_users_have_their_home_and_inherited_variables() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--env", "COLOR=blue", "--env", "KLOOP_NO_SUCH"]);
    let script = "echo $HOME $COLOR ${KLOOP_NO_SUCH-none}; exec sleep 1000";
    cluster.apply(&pod("own", "", "", script));
    cluster.until("the log is complete", || !cluster.kloop("logs own").out.is_empty());
    assert_eq!(cluster.ok("logs own"), format!("{} blue none\n", cluster.home().display()));
    if is_root() {
        cluster.apply(&pod("other", "securityContext: {runAsUser: 4321}", "", script));
        cluster.until("the log is complete", || !cluster.kloop("logs other").out.is_empty());
        assert_eq!(cluster.ok("logs other"), "/ blue none\n");
    }
}

/// Collects the files below a folder that contain a word; links and sockets are skipped.
fn files_containing(folder: &std::path::Path, word: &[u8], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_containing(&path, word, found),
            Ok(kind) if kind.is_file() => {
                let bytes = std::fs::read(&path).unwrap_or_default();
                if bytes.windows(word.len()).any(|window| window == word) {
                    found.push(path.display().to_string());
                }
            }
            _ => {}
        }
    }
}

#[test]
fn secret_is_visible_to_its_pod_only() {
    let cluster = Cluster::new();
    let plane = cluster.watch_with(&["--verbose"]);
    let word = format!("canary-{}", std::process::id());
    cluster.ok(&format!("create secret generic word --from-literal=word={word}"));
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: knows}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: word, secret: {secretName: word}}]
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "[ $WORD = $(cat /word/word) ] && exec sleep 1000"]
    env: [{name: WORD, valueFrom: {secretKeyRef: {name: word, key: word}}}]
    volumeMounts: [{name: word, mountPath: /word}]
    readinessProbe: {periodSeconds: 1, tcpSocket: {port: 1}}
"#,
    );
    cluster.until("the pod was probed", || cluster.ok("events --for pod/knows").contains("Unhealthy"));
    let own = cluster.pid("knows");
    for line in
        ["describe secret word", "describe pod knows", "get events -o yaml", "get pod knows -o yaml", "why pod/knows"]
    {
        let said = cluster.kloop(line);
        assert!(!(said.out + &said.err).contains(&word), "{line}");
    }
    assert!(!plane.said().contains(&word), "{}", plane.said());
    // No other process has it in its command line or environment.
    for pid in cluster.processes().into_iter().chain([plane.pid()]) {
        for file in ["cmdline", "environ"] {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let has = text.windows(word.len()).any(|window| window == word.as_bytes());
            assert!(!has || (file == "environ" && pid == own), "{file} of {pid}");
        }
    }
    let mut found = Vec::new();
    files_containing(&cluster.home(), word.as_bytes(), &mut found);
    // The store has it in base64; the pod reads it from its volume. No other file contains it.
    found.retain(|path| !path.contains("/volumes"));
    assert_eq!(found, [""; 0]);
}

#[test]
fn other_users_of_the_machine_have_no_access() {
    use std::os::unix::process::CommandExt;
    if !is_root() {
        return skip!("only root can be somebody else, too");
    }
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("web", "", "", "exec sleep 1000"));
    cluster.until_reads("pod/web", "{.status.phase}", "Running");
    let pid = cluster.pid("web");
    let stranger = |program: &str, line: &str| {
        let mut command = cluster.program(program);
        command.args(line.split(' ')).uid(65_534).gid(65_534);
        cluster.run_program(&mut command, "")
    };
    for line in ["get pods", "exec web -- true", "logs web", "attach web", "delete pod web --now", "reconcile"] {
        let said = stranger(env!("CARGO_BIN_EXE_kloop"), line);
        assert!(said.code != 0 && said.out.is_empty(), "{line}: {} {}", said.out, said.err);
    }
    let home = cluster.home().display().to_string();
    let seen = stranger("find", &home).out;
    assert!(!seen.contains("/pods/"), "sockets, logs and records are not readable: {seen}");
    assert_ne!(stranger("cat", &format!("{home}/state.db")).code, 0);
    assert_eq!((cluster.pid("web"), cluster.read("pod/web", "{.status.phase}")), (pid, "Running".to_owned()));
}

#[test]
fn pod_gets_the_fields_of_its_runtime_class() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let of_class =
        |name: &str, more: &str| pod_with(name, &format!("{ONCE}, runtimeClassName: small{more}"), "", "echo it runs");
    let said = cluster.run(&["apply", "-f", "-"], &of_class("early", ""));
    assert!(said.err.contains("pod rejected: RuntimeClass \"small\" not found"), "{}", said.err);
    cluster.apply(
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: small}, handler: any, \
         overhead: {podFixed: {memory: 16Mi}}, scheduling: {tolerations: [{key: small, operator: Exists}]}}",
    );
    let said = cluster.run(&["apply", "-f", "-"], &of_class("other", ", overhead: {memory: 1Mi}"));
    assert!(said.err.contains("Pod's Overhead doesn't match RuntimeClass's defined Overhead"), "{}", said.err);
    cluster.apply(&of_class("late", ""));
    cluster.until_reads("pod/late", "{.status.phase}", "Succeeded");
    assert_eq!(cluster.log("late", "main"), "it runs\n");
    assert_eq!(cluster.read("pod/late", "{.spec.overhead.memory}"), "16Mi");
    assert_eq!(cluster.read("pod/late", "{.spec.tolerations[?(@.key==\"small\")].operator}"), "Exists");
}
