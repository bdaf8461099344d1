//! Containers that run as another user.

use super::{ONCE, pod_with};
use crate::cluster::Cluster;

fn pod(name: &str, context: &str, script: &str) -> String {
    let spec = format!("{ONCE}, securityContext: {context}, volumes: [{{name: data, emptyDir: {{}}}}]");
    pod_with(name, &spec, "volumeMounts: [{name: data, mountPath: /data}]", script)
}

#[test]
fn root_runs_containers_and_their_commands_as_their_user() {
    if !rustix::process::geteuid().is_root() {
        return skip!("only root can run processes as another user");
    }
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let script = "id -u; id -g; id -G; umask; touch /data/new && stat -c %u:%g /data/new; touch ./mine && echo kept; \
                  printf last > /dev/termination-log; until test -e /data/end; do sleep 0.02; done; exit 3";
    let context = "{runAsUser: 65534, runAsGroup: 1234, supplementalGroups: [77], fsGroup: 88, runAsNonRoot: true}";
    cluster.apply(&pod("other", context, script));
    cluster.until("the log is complete", || cluster.kloop("logs other").out.contains("kept"));
    assert_eq!(cluster.ok("logs other"), "65534\n1234\n1234 77 88\n0022\n65534:88\nkept\n");
    assert_eq!(cluster.ok("exec other -- id -u"), "65534\n");
    cluster.run(&["exec", "other", "--", "sh", "-c", "kill -0 1 && echo by hand > /proc/1/fd/1"], "");
    cluster.until("the line is in the log", || cluster.kloop("logs other").out.ends_with("kept\nby hand\n"));
    // The container's end kills the commands inside it, so `touch` may be killed (137) after it made the file.
    cluster.run(&["exec", "other", "--", "touch", "/data/end"], "");
    cluster.until_reads("pod/other", "{.status.phase}", "Failed");
    assert_eq!(cluster.read("pod/other", "{.status.containerStatuses[0].state.terminated.message}"), "last");
    cluster.ok("delete pod other");
    cluster.nothing_is_left();
}

#[test]
fn group_of_the_pod_reads_its_configuration_after_each_change() {
    if !rustix::process::geteuid().is_root() {
        return skip!("only root can run processes as another user");
    }
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {key: one}}");
    cluster.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: reader}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
         securityContext: {runAsUser: 1000, fsGroup: 2000}\n  \
         volumes: [{name: v, configMap: {name: settings, defaultMode: 0400}}]\n  containers:\n  \
         - name: c\n    image: busybox\n    volumeMounts: [{name: v, mountPath: /settings}]\n    \
         command: [sh, -c, \"until grep other /settings/key; do sleep 0.02; done; stat -Lc %a:%g /settings/key; \
         stat -Lc %a:%g /var/run/secrets/kubernetes.io/serviceaccount/token; sleep 1000\"]\n",
    );
    cluster.until_reads("pod/reader", "{.status.containerStatuses[0].ready}", "true");
    cluster.ok("patch cm settings -p {\"data\":{\"key\":\"other\"}}");
    cluster.until("the program has read it", || cluster.kloop("logs reader").out.contains("other\n"));
    cluster.until("both files are shown", || cluster.kloop("logs reader").out.lines().count() >= 3);
    let log = cluster.ok("logs reader");
    assert!(log.ends_with("other\n440:2000\n640:2000\n"), "{log}");
    cluster.ok("delete pod reader");
    cluster.nothing_is_left();
}

#[test]
fn ordinary_user_cannot_run_as_another_user() {
    let is_root = rustix::process::geteuid().is_root();
    let cluster = if is_root { Cluster::of_user(65534) } else { Cluster::new() };
    let _plane = cluster.watch();
    cluster.apply(&pod("other", "{runAsUser: 4321}", "exec sleep 1000"));
    let waiting = "{.status.containerStatuses[0].state.waiting.reason}";
    cluster.until_reads("pod/other", waiting, "CreateContainerConfigError");
    let why = cluster.read("pod/other", "{.status.containerStatuses[0].state.waiting.message}");
    assert!(why.starts_with("runAsUser 4321: kloop runs as user "), "{why}");
}
