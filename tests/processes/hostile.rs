//! Hostile workloads and broken machines: the damage stays in their pod.

use super::{ONCE, on_host_files, pod, pod_with};
use crate::cluster::{Cluster, Said, is_alive, is_stopped, signal};
use std::fs;
use std::path::Path;

#[test]
fn ten_thousand_orphans_are_reaped() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // A hundred parents that leave a hundred children each, because a small shell forks ten times faster than a large program.
    let script = "i=0; while [ $i -lt 100 ]; do (j=0; while [ $j -lt 100 ]; do : & j=$((j+1)); done); i=$((i+1)); done; \
                  echo done; exec sleep 1000";
    // The shim has to reap them, not the container's first process, which is a `sleep`.
    cluster.apply(&on_host_files(&pod("orphans", "Always", 1, script)));
    cluster.until("all orphans were started", || cluster.log("orphans", "main") == "done\n");
    let main = cluster.pid("orphans");
    let shim = stat(main)[1];
    cluster.until("no zombie is left", || children(shim).iter().all(|child| is_alive(*child)));
    assert_eq!(cluster.read("pod/orphans", "{.status.containerStatuses[0].restartCount}"), "0");
    cluster.ok("delete pod orphans");
    cluster.nothing_is_left();
}

/// Returns the numeric fields of `/proc/PID/stat` after the state, beginning with the parent.
pub fn stat(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit(") ").next().unwrap_or_default();
    rest.split(' ').map(|word| word.parse().unwrap_or_default()).collect()
}

fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).get(1) == Some(&parent)).collect()
}

#[test]
fn stopped_process_is_ended() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("still", "Always", 1, "sleep 1000 & wait"));
    let main = cluster.pid("still");
    signal(main, "STOP");
    cluster.until("the process has stopped", || is_stopped(main));
    cluster.ok("delete pod still");
    assert!(!is_alive(main));
    cluster.nothing_is_left();
}

#[test]
fn frozen_pod_does_not_block_others() {
    let cluster = Cluster::new();
    let Some(freezer) = Freezer::new(&cluster) else {
        return skip!("no control group can be made here, so nothing is frozen");
    };
    let _plane = cluster.watch();
    cluster.apply(&pod("cold", "Always", 1, "while :; do sleep 0.1; done"));
    let main = cluster.pid("cold");
    freezer.take(main);
    cluster.until("the process is frozen", || freezer.is_frozen());
    cluster.ok("delete pod cold --wait=false");
    cluster.apply(&pod("warm", "Always", 1, "exec sleep 1000"));
    cluster.ready_pods("app=warm", 1);
    cluster.ok("delete pod warm");
    cluster.until("the frozen pod is terminating", || {
        !cluster.read("pod/cold", "{.metadata.deletionTimestamp}").is_empty() || !is_alive(main)
    });
    freezer.thaw();
    cluster.nothing_is_left();
}

/// A control group of another owner, in which processes are frozen.
struct Freezer {
    folder: std::path::PathBuf,
    file: &'static str,
    words: [&'static str; 2],
    /// The file that tells whether all processes of the group are frozen, and its line for that.
    frozen: (&'static str, &'static str),
}

impl Freezer {
    fn new(cluster: &Cluster) -> Option<Freezer> {
        let name = cluster.home().file_name()?.to_string_lossy().replace('.', "freezer-");
        let kinds = [
            ("/sys/fs/cgroup/freezer", "freezer.state", ["FROZEN", "THAWED"], ("freezer.state", "FROZEN")),
            ("/sys/fs/cgroup", "cgroup.freeze", ["1", "0"], ("cgroup.events", "frozen 1")),
        ];
        kinds.into_iter().find_map(|(root, file, words, frozen)| {
            let folder = Path::new(root).join(&name);
            fs::create_dir(&folder).ok()?;
            let freezer = Freezer { folder, file, words, frozen };
            freezer.folder.join(file).exists().then_some(freezer)
        })
    }

    fn take(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).expect("moved");
        fs::write(self.folder.join(self.file), self.words[0]).expect("frozen");
    }

    fn is_frozen(&self) -> bool {
        let (file, line) = self.frozen;
        fs::read_to_string(self.folder.join(file)).expect("its state").lines().any(|found| found == line)
    }

    fn thaw(&self) {
        drop(fs::write(self.folder.join(self.file), self.words[1]));
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        // Its processes may need a moment to end.
        for _ in 0..1000 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn endless_output_without_newlines_fills_neither_disk_nor_memory() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("flood", "Always", 1, "head -c 200000000 /dev/zero; echo; echo dry; exec sleep 1000"));
    let log = || cluster.kloop("logs flood --tail=1").out;
    cluster.until("the flood is over", || log() == "dry\n");
    let folder = cluster.pods_folder().join(cluster.read("pod/flood", "{.metadata.uid}")).join("main");
    let files = fs::read_dir(folder).expect("the folder").flatten();
    let bytes: u64 = files.map(|file| file.metadata().expect("a file").len()).sum();
    assert!(bytes < 64 << 20, "{bytes} bytes of log are kept");
    let shim = stat(cluster.pid("flood"))[1];
    let status = fs::read_to_string(format!("/proc/{shim}/status")).expect("the shim");
    let kilobytes = |field: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("its memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    // Excludes pages of the binary itself, which are most of an idle shim.
    let taken = kilobytes("VmHWM:").saturating_sub(kilobytes("RssFile:"));
    assert!(taken < 16 << 10, "the shim took {taken} kB");
}

/// Runs a Python script as the first process of new namespaces, with the binary's path as its argument.
fn in_namespaces(cluster: &Cluster, flags: &[&str], script: &str) -> Option<Said> {
    let mut unshare = cluster.program("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("-r");
    }
    unshare.args(flags);
    let mut probe = cluster.program("unshare");
    probe.args(unshare.get_args()).arg("true");
    if !probe.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success()) {
        skip!("no namespaces can be had here");
        return None;
    }
    unshare.args(["python3", "-c", script, env!("CARGO_BIN_EXE_kloop")]);
    Some(cluster.run_program(&mut unshare, ""))
}

#[test]
fn process_with_the_reused_pid_of_a_workload_is_not_killed() {
    let cluster = Cluster::new();
    fs::write(cluster.home().join("pod.yaml"), pod("web", "Always", 1, "exec sleep 1000")).expect("written");
    // The namespace's first process reaps all orphans, so that their pids become free.
    let script = r#"
import os, signal, subprocess, sys, time
kloop, home = sys.argv[1], os.environ["HOME"]
def reap_all():
    try:
        while True: os.waitpid(-1, 0)
    except ChildProcessError: pass
def run(*words):
    return subprocess.run([kloop, *words], capture_output=True, text=True).stdout
def until(holds):
    end = time.time() + 60
    while not holds():
        assert time.time() < end, run("get", "pods", "-o", "yaml")
        time.sleep(0.02)
def plane():
    return subprocess.Popen([kloop, "reconcile", "--watch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def read(path):
    return run("get", "pod", "web", "-o", "jsonpath=" + path)
def main():
    pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    for pid in pids:
        try: words = open(f"/proc/{pid}/cmdline").read()
        except OSError: continue
        if words == "sleep\x001000\x00": return pid
first = plane()
run("apply", "-f", home + "/pod.yaml")
until(main)
pid = main()
until(lambda: read("{.status.phase}") == "Running")
os.kill(-1, signal.SIGKILL)
first.wait()
reap_all()
for _ in range(100):
    open("/proc/sys/kernel/ns_last_pid", "w").write(str(pid - 1))
    bystander = subprocess.Popen(["sleep", "2000"])
    if bystander.pid == pid: break
    bystander.kill(); bystander.wait(); reap_all()
print("reused" if bystander.pid == pid else "not reused")
plane()
until(lambda: read("{.status.containerStatuses[0].restartCount}") == "1")
until(lambda: main() is not None)
print("lives" if bystander.poll() is None else "was killed")
os.kill(-1, signal.SIGKILL)
"#;
    let Some(said) = in_namespaces(&cluster, &["-pf", "--mount-proc", "--kill-child"], script) else { return };
    assert_eq!(said.out, "reused\nlives\n", "{}", said.err);
}

#[test]
fn pod_waits_while_no_pid_namespace_is_available() {
    let cluster = Cluster::new();
    fs::write(cluster.home().join("pod.yaml"), pod("web", "Always", 0, "exec sleep 1000")).expect("written");
    let script = r#"
import os, signal, subprocess, sys, time
kloop, home = sys.argv[1], os.environ["HOME"]
open("/proc/sys/user/max_pid_namespaces", "w").write("1")
holder = subprocess.Popen(["unshare", "-p", "-f", "--kill-child", "sleep", "1000"])
def run(*words):
    return subprocess.run([kloop, *words], capture_output=True, text=True).stdout
def until(holds):
    end = time.time() + 240
    while not holds():
        assert time.time() < end, run("get", "pods", "-o", "yaml") + run("get", "events")
        time.sleep(0.02)
def space(pid):
    return os.readlink(f"/proc/{pid}/ns/pid")
def read(path):
    return run("get", "pod", "web", "-o", "jsonpath=" + path)
children = f"/proc/{holder.pid}/task/{holder.pid}/children"
until(lambda: open(children).read().split() and space(open(children).read().split()[0]) != space("self"))
plane = subprocess.Popen([kloop, "reconcile", "--watch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
run("apply", "-f", home + "/pod.yaml")
state = "{.status.containerStatuses[0].state}"
until(lambda: any(word in read(state) for word in ["PID namespace", "running"]))
print("waits" if "PID namespace" in read(state) else "runs among the machine's processes")
holder.kill()
holder.wait()
# The kernel frees a namespace some time after its last process has ended, so that an attempt or two may still be refused.
until(lambda: "running" in read(state))
inside = run("exec", "web", "--", "readlink", "/proc/self/ns/pid").strip()
print("apart" if inside and inside != space("self") else "not apart")
run("delete", "pod", "web")
plane.terminate()
plane.wait()
"#;
    let Some(said) = in_namespaces(&cluster, &["-Urm"], script) else { return };
    assert_eq!(said.out, "waits\napart\n", "{}", said.err);
}

#[test]
fn reboot_signals_no_process_and_pods_restart() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&pod("always", "Always", 1, "exec sleep 1000"));
    cluster.apply(&pod("never", "Never", 1, "exec sleep 1000"));
    cluster.until_reads("pod/always", "{.status.phase}", "Running");
    cluster.until_reads("pod/never", "{.status.phase}", "Running");
    plane.end("KILL");
    cluster.until("no process runs", || {
        cluster.processes().into_iter().for_each(|pid| signal(pid, "KILL"));
        cluster.processes().is_empty()
    });
    fs::write(cluster.home().join("boot"), "11111111-2222-3333-4444-555555555555\n").expect("written");
    let script = r#"
import os, subprocess, sys, time
kloop, home = sys.argv[1], os.environ["HOME"]
subprocess.run(["mount", "--bind", home + "/boot", "/proc/sys/kernel/random/boot_id"], check=True)
plane = subprocess.Popen([kloop, "reconcile", "--watch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def read(pod, path):
    words = [kloop, "get", "pod", pod, "-o", "jsonpath=" + path]
    return subprocess.run(words, capture_output=True, text=True).stdout
state = "{.status.phase} {.status.containerStatuses[0].restartCount}"
wanted = {"always": "Running 1", "never": "Failed 0"}
end = time.time() + 60
while any(read(pod, state) != is_so for pod, is_so in wanted.items()) and time.time() < end:
    time.sleep(0.02)
for pod in wanted: print(pod, read(pod, state))
print(read("never", "{.status.containerStatuses[0].state.terminated.exitCode}"))
plane.kill()
plane.wait()
"#;
    let Some(said) = in_namespaces(&cluster, &["-m"], script) else { return };
    assert_eq!(said.out, "always Running 1\nnever Failed 0\n137\n", "{}", said.err);
}

/// A Pod with an emptyDir at `/data` that runs a script of Python, and then sleeps.
fn digger(name: &str, script: &str) -> String {
    let script = serde_json::Value::from(format!("{script}\nprint('done', flush=True)\nimport time\ntime.sleep(1000)"));
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {{name: data, emptyDir: {{}}}}
  containers:
  - name: main
    image: python
    command: [python3, -c, {script}]
    volumeMounts: [{{name: data, mountPath: /data}}]
"#
    )
}

const DEEP: &str = "import os\nos.chdir('/data')\nfor _ in range(8000):\n  os.mkdir('d')\n  os.chdir('d')";

#[test]
fn deep_folder_is_removed_without_a_stack_overflow() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&digger("deep", DEEP));
    cluster.apply(&digger("deserted", DEEP));
    let is_done = |pod: &str| cluster.log(pod, "main") == "done\n";
    cluster.until("the folders exist", || is_done("deep") && is_done("deserted"));
    cluster.ok("delete pod deep");
    // Without its shim the control plane has to remove it.
    let shim = stat(cluster.pid("deserted"))[1];
    cluster.ok("delete pod deserted --wait=false");
    signal(shim, "KILL");
    cluster.nothing_is_left();
    assert!(is_alive(plane.pid()));
}

#[test]
fn unremovable_folder_is_reported_and_removed_later() {
    let cluster = Cluster::new();
    if !rustix::process::geteuid().is_root() {
        return skip!("only root can mount something in the way");
    }
    let _plane = cluster.watch();
    cluster.apply(&digger("stuck", "import os\nos.mkdir('/data/way')"));
    cluster.until("the folder exists", || cluster.log("stuck", "main") == "done\n");
    let pod = cluster.pods_folder().join(cluster.read("pod/stuck", "{.metadata.uid}"));
    let way = Mounted::below(&pod, "volumes.d/data/way");
    cluster.ok("delete pod stuck --wait=false");
    cluster.until("the error is reported", || {
        cluster.read("events", "{.items[*].message}").contains("error killing pod: cannot remove \"way\"")
    });
    assert!(!cluster.read("pod/stuck", "{.metadata.deletionTimestamp}").is_empty(), "the pod is not deleted yet");
    drop(way);
    cluster.nothing_is_left();
}

/// A tmpfs below a folder; unmounted when dropped, wherever it was moved to.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn below(top: &Path, folder: &str) -> Mounted {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", top.join(folder), "tmpfs", flags, None).expect("mounted");
        Mounted(top.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let all = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
        for mount in all.filter(|mount| mount.starts_with(&self.0)) {
            let _ = rustix::mount::unmount(mount, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// A stopped process, which continues when this is dropped.
struct Stopped(u32);

impl Stopped {
    fn stop(pid: u32) -> Stopped {
        signal(pid, "STOP");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

#[test]
fn commands_for_a_stopped_shim_fail_and_close_their_outputs() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("calm", "Always", 0, "exec sleep 1000"));
    cluster.ready_pods("app=calm", 1);
    let shim = Stopped::stop(stat(cluster.pid("calm"))[1]);
    let lines = ["exec calm -- true", "attach calm"];
    let shells = lines.map(|line| {
        let mut shell = cluster.program("sh");
        // A descriptor that the stopped shim has not received yet would keep the substitution's pipe open.
        shell.args(["-c", &format!("x=$(\"$KLOOP\" {line} 2>&1); echo \"code $? $x\"")]);
        shell.env("KLOOP", env!("CARGO_BIN_EXE_kloop"));
        cluster.background_program(shell)
    });
    for shell in &shells {
        shell.until_says(&format!("it is stopped; run `kill -CONT {}`", shim.0));
        assert!(!shell.said().starts_with("code 0"), "{}", shell.said());
    }
    drop(shim);
    cluster.ok("exec calm -- true");
    cluster.ok("delete pod calm");
    cluster.nothing_is_left();
}

#[test]
fn processes_left_by_a_probe_are_ended() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let probe = "setsid sleep 86421 >/dev/null 2>&1 & echo >> /tmp/probes";
    let probe = serde_json::Value::from(probe);
    let probe = format!("readinessProbe: {{exec: {{command: [sh, -c, {probe}]}}, periodSeconds: 1}}");
    cluster.apply(&pod_with("probed", ONCE, &probe, "exec sleep 1000"));
    cluster.ready_pods("app=probed", 1);
    let count = || cluster.kloop("exec probed -- wc -l /tmp/probes").out;
    cluster.until("the pod was probed three times", || count().starts_with('3'));
    let main = cluster.pid("probed");
    let shim = stat(main)[1];
    let is_left = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\086421\0");
    let below = |top: u32| children(top).into_iter().flat_map(|pid| [vec![pid], children(pid)].concat());
    cluster.until("no process of the probes is left", || !below(shim).chain(below(main)).any(|pid| is_left(&pid)));
    cluster.ok("delete pod probed");
    cluster.nothing_is_left();
}

#[test]
fn small_shell_limits_end_no_command_by_a_signal() {
    let cluster = Cluster::new();
    fs::write(cluster.home().join("pod.yaml"), pod("small", "Always", 0, "exec sleep 1000")).expect("written");
    let kloop = env!("CARGO_BIN_EXE_kloop");
    let limited = |limit: &str, line: &str| {
        let script = format!("ulimit {limit}; cd {}; {kloop} {line}", cluster.home().display());
        cluster.run_program(cluster.program("sh").args(["-c", &script]), "")
    };
    for line in ["apply -f pod.yaml", "get pods -A", "plan -f pod.yaml", "explain pod.spec.containers", "help"] {
        let said = limited("-s 256", line);
        assert_eq!(said.code, 0, "{line}: {}{}", said.out, said.err);
    }
    let said = limited("-f 1", "create configmap big --from-literal=a=b");
    assert!(said.code != 0 && said.code < 128, "{} {}", said.code, said.err);
    assert!(said.err.starts_with("error: "), "{}", said.err);
    let said = limited("-n 20", "reconcile");
    let reason = "error: this process may open 20 files, and reconcile needs 48: raise the limit (ulimit -n 48)\n";
    assert_eq!((said.code, &*said.err), (1, reason));
    // The control plane and its shims with a small stack limit.
    let mut plane = cluster.program("sh");
    plane.args(["-c", &format!("ulimit -s 256; exec {kloop} reconcile --watch")]);
    let _plane = cluster.background_program(plane);
    cluster.ready_pods("app=small", 1);
    cluster.ok("exec small -- true");
    cluster.ok("delete pod small");
    cluster.nothing_is_left();
}

#[test]
fn files_are_private_under_a_umask_of_zero() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = Cluster::new();
    let mut plane = cluster.program("sh");
    plane.args(["-c", &format!("umask 0; exec {} reconcile --watch", env!("CARGO_BIN_EXE_kloop"))]);
    let _plane = cluster.background_program(plane);
    let policy = r#"
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec: {podSelector: {}, policyTypes: [Egress]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"#;
    cluster.apply(&(pod("web", "Always", 0, "umask > /tmp/umask; exec sleep 1000") + policy));
    cluster.ready_pods("app=web", 1);
    cluster.until("the routes are written", || cluster.home().join("routes").exists());
    cluster
        .until("the container has the default umask", || cluster.kloop("exec web -- cat /tmp/umask").out == "0022\n");
    let mut folders = vec![cluster.home()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable").flatten() {
            let Ok(found) = entry.metadata() else { continue };
            // Files that the test itself created for a command's output.
            if entry.file_name().to_string_lossy().starts_with("background-") || found.is_symlink() {
                continue;
            }
            let mode = found.permissions().mode() & 0o7777;
            assert_eq!(mode & 0o022, 0, "{mode:o} {}", entry.path().display());
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    cluster.ok("delete pod web");
    cluster.nothing_is_left();
}
