//! Workloads and machines at their worst: what they do stays theirs, and nobody else is touched.

use super::{on_host_files, pod};
use crate::cluster::{Cluster, Said, is_alive, signal};
use std::fs;
use std::path::Path;

#[test]
fn ten_thousand_orphans_are_reaped() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    // A hundred parents that leave a hundred each: a shell forks in a tenth of the time that a larger program takes for it.
    let script = "i=0; while [ $i -lt 100 ]; do (j=0; while [ $j -lt 100 ]; do : & j=$((j+1)); done); i=$((i+1)); done; \
                  echo done; exec sleep 1000";
    // The shim is to reap them, and not the container's own first process, which is a `sleep`.
    cluster.apply(&on_host_files(&pod("orphans", "Always", 1, script)));
    cluster.until("all were born", || cluster.log("orphans", "main") == "done\n");
    let main = cluster.pid("orphans");
    let shim = stat(main)[1];
    cluster.until("none is left as a zombie", || children(shim).iter().all(|child| is_alive(*child)));
    assert_eq!(cluster.read("pod/orphans", "{.status.containerStatuses[0].restartCount}"), "0");
    cluster.ok("delete pod orphans");
    cluster.nothing_is_left();
}

/// Parent and others of `/proc/PID/stat`, from the state on.
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
fn who_stands_still_ends_all_the_same() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&pod("still", "Always", 1, "sleep 1000 & wait"));
    let main = cluster.pid("still");
    signal(main, "STOP");
    cluster.until("it has stopped", || fs::read_to_string(format!("/proc/{main}/stat")).unwrap().contains(") T "));
    cluster.ok("delete pod still");
    assert!(!is_alive(main));
    cluster.nothing_is_left();
}

#[test]
fn who_is_frozen_holds_up_nobody_else() {
    let cluster = Cluster::new();
    let Some(freezer) = Freezer::new(&cluster) else {
        return eprintln!("SKIPPED: no control group can be made here, so nothing is frozen");
    };
    let _plane = cluster.watch();
    cluster.apply(&pod("cold", "Always", 1, "while :; do sleep 0.1; done"));
    let main = cluster.pid("cold");
    freezer.take(main);
    cluster.ok("delete pod cold --wait=false");
    cluster.apply(&pod("warm", "Always", 1, "exec sleep 1000"));
    cluster.ready_pods("app=warm", 1);
    cluster.ok("delete pod warm");
    cluster.until("the frozen one was asked to go", || {
        !cluster.read("pod/cold", "{.metadata.deletionTimestamp}").is_empty() || !is_alive(main)
    });
    freezer.thaw();
    cluster.nothing_is_left();
}

/// A control group of somebody else's, in which processes stand still.
struct Freezer {
    folder: std::path::PathBuf,
    file: &'static str,
    words: [&'static str; 2],
}

impl Freezer {
    fn new(cluster: &Cluster) -> Option<Freezer> {
        let name = cluster.home().file_name()?.to_string_lossy().replace('.', "freezer-");
        let kinds = [
            ("/sys/fs/cgroup/freezer", "freezer.state", ["FROZEN", "THAWED"]),
            ("/sys/fs/cgroup", "cgroup.freeze", ["1", "0"]),
        ];
        kinds.into_iter().find_map(|(root, file, words)| {
            let folder = Path::new(root).join(&name);
            fs::create_dir(&folder).ok()?;
            let freezer = Freezer { folder, file, words };
            freezer.folder.join(file).exists().then_some(freezer)
        })
    }

    fn take(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).expect("moved");
        fs::write(self.folder.join(self.file), self.words[0]).expect("frozen");
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
fn a_flood_without_line_ends_fills_neither_disk_nor_memory() {
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
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its memory");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < 32 << 10, "the shim took {peak} kB");
}

/// Runs a script of Python as the first process of namespaces of its own, with the binary's path as its argument.
fn in_namespaces(cluster: &Cluster, flags: &[&str], script: &str) -> Option<Said> {
    let mut unshare = cluster.program("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("-r");
    }
    unshare.args(flags);
    let mut probe = cluster.program("unshare");
    probe.args(unshare.get_args()).arg("true");
    if !probe.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no namespaces can be had here");
        return None;
    }
    unshare.args(["python3", "-c", script, env!("CARGO_BIN_EXE_kloop")]);
    Some(cluster.run_program(&mut unshare, ""))
}

#[test]
fn a_bystander_with_the_number_of_a_dead_workload_lives() {
    let cluster = Cluster::new();
    fs::write(cluster.home().join("pod.yaml"), pod("web", "Always", 1, "exec sleep 1000")).expect("written");
    // The first process of the namespace buries everybody, so that numbers become free.
    let script = r#"
import os, signal, subprocess, sys, time
kloop, home = sys.argv[1], os.environ["HOME"]
def bury():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
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
time.sleep(0.05)
bury()
for _ in range(100):
    open("/proc/sys/kernel/ns_last_pid", "w").write(str(pid - 1))
    bystander = subprocess.Popen(["sleep", "2000"])
    if bystander.pid == pid: break
    bystander.kill(); bystander.wait(); bury()
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
fn after_a_reboot_nothing_is_signalled_and_everything_goes_on() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&pod("always", "Always", 1, "exec sleep 1000"));
    cluster.apply(&pod("never", "Never", 1, "exec sleep 1000"));
    cluster.until_reads("pod/always", "{.status.phase}", "Running");
    cluster.until_reads("pod/never", "{.status.phase}", "Running");
    plane.end("KILL");
    cluster.until("nobody lives", || {
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
