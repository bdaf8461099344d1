//! A cluster for one conversation: a state file, a running control plane, and a shell whose `kubectl` is kloop.

use kloop::store::{OpenMode, Store, StoreRead};
use rustix::process::{Pid, Signal, kill_process_group};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest time for the cluster to settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time for one command.
const COMMAND_SECONDS: &str = "60";

/// Work of a loop that is due within this time is waited for, in milliseconds.
const SOON: i64 = 3000;
/// Maximum time for a busy machine's control plane to see a write before the next command.
const LATEST: Duration = Duration::from_secs(2);

/// The result of a command.
pub struct Answer {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

/// The control plane's last report that it is idle: the revision, the time of the next work, and the time of the report.
type Idle = Arc<Mutex<Option<(u64, i64, Instant)>>>;

/// A cluster; dropping it removes everything.
pub struct Cluster {
    dir: tempfile::TempDir,
    control: Child,
    server: RefCell<Option<Child>>,
    idle: Idle,
    store: Store,
}

impl Cluster {
    /// Starts the control plane in a copy of a scenario's folder, with the three nodes of the recordings.
    pub fn start(scenario: &Path) -> Cluster {
        let dir = tempfile::Builder::new().prefix("kloop-replay-").tempdir().expect("temporary folder");
        copy(scenario, &dir.path().join("files"));
        // A context has the name of its cluster's folder; the recordings' was called `c`.
        for folder in ["c", "bin"].map(|name| dir.path().join(name)) {
            std::fs::create_dir(&folder).expect("folder");
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("permissions");
        }
        symlink(env!("CARGO_BIN_EXE_kloop"), dir.path().join("bin/kubectl")).expect("link");
        let nodes = run(dir.path(), "kubectl create -f -", &super::nodes::manifests());
        assert_eq!(nodes.code, 0, "the nodes of the recordings: {}", nodes.stderr);
        // The recordings' `default` was an empty namespace of another name.
        let emptied = run(dir.path(), "kubectl delete service kubernetes", "");
        assert_eq!(emptied.code, 0, "{}", emptied.stderr);
        // The recorded cluster did not provision volumes.
        let unclassed = run(dir.path(), "kubectl delete storageclass standard", "");
        assert_eq!(unclassed.code, 0, "{}", unclassed.stderr);
        let mut control = command(dir.path(), env!("CARGO_BIN_EXE_kloop"))
            .args(["reconcile", "--watch", "--no-local-node", "--quiet", "--log-idle"])
            .arg("--controllers=*,-kubernetesservice-controller")
            .stdin(Stdio::null())
            .spawn()
            .expect("control plane");
        let idle = listen(control.stdout.take().expect("piped"));
        let store = Store::open(&dir.path().join("c/state.db"), OpenMode::Existing).expect("store");
        let cluster = Cluster { dir, control, server: RefCell::default(), idle, store };
        assert!(cluster.settle(), "a fresh cluster has to settle");
        cluster
    }

    /// Waits until the control plane is idle and no work is due soon. Returns false when that takes too long.
    pub fn settle(&self) -> bool {
        let start = Instant::now();
        while start.elapsed() < SETTLE_TIMEOUT {
            let head = self.store.read().and_then(|snapshot| snapshot.revision()).expect("revision");
            let idle = *self.idle.lock().expect("lock");
            if let Some((revision, next, at)) = idle
                && revision >= head
                && (next < 0 || next - at.elapsed().as_millis() as i64 > SOON)
            {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Waits until the control plane has seen all writes. The recorded commands took so long that it always had; kloop's take milliseconds,
    /// and a busy machine may be slower than that.
    pub fn catch_up(&self) {
        let start = Instant::now();
        let head = self.store.read().and_then(|snapshot| snapshot.revision()).expect("revision");
        let has_seen = || self.idle.lock().expect("lock").is_some_and(|(revision, ..)| revision >= head);
        while !has_seen() && start.elapsed() < LATEST {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts the REST API; returns its address and its token.
    pub fn serve(&self) -> (String, String) {
        let mut server = command(self.dir.path(), env!("CARGO_BIN_EXE_kloop"));
        let mut server = server.args(["serve", "--port=0"]).stderr(Stdio::null()).spawn().expect("a server");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        self.server.borrow_mut().replace(server);
        let address = line.trim().strip_prefix("Starting to serve on ").expect("an address").to_owned();
        let access = std::fs::read_to_string(self.dir.path().join("c/kubeconfig")).expect("kubeconfig");
        let token = access.lines().find_map(|line| line.trim().strip_prefix("token: ")).expect("a token");
        (address, token.to_owned())
    }

    /// Runs a shell command of the conversation.
    pub fn run(&self, command: &str, stdin: &str) -> Answer {
        run(self.dir.path(), command, stdin)
    }

    /// Returns the standard error of the control plane, if it has ended.
    pub fn died(&mut self) -> Option<String> {
        self.control.try_wait().ok().flatten()?;
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.control.stderr.take()?, &mut said).ok()?;
        Some(said)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let server = self.server.get_mut().as_mut();
        for child in std::iter::once(&mut self.control).chain(server) {
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                kill_process_group(pid, Signal::KILL).ok();
            }
            child.wait().ok();
        }
    }
}

/// Prepares a program with the cluster's environment, in its own process group.
fn command(dir: &Path, program: &str) -> Command {
    let path = format!("{}:{}", dir.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.current_dir(dir.join("files")).env("PATH", path).env("KLOOP_STATE", dir.join("c/state.db"));
    command.env("HOME", dir).env("TMPDIR", dir).env("LC_ALL", "C").env_remove("KUBECONFIG");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

fn run(dir: &Path, line: &str, stdin: &str) -> Answer {
    let mut child =
        command(dir, "timeout").args(["--signal=KILL", COMMAND_SECONDS, "bash", "-c", line]).spawn().expect("a shell");
    let mut input = child.stdin.take().expect("piped");
    // A command may exit without reading its input.
    input.write_all(stdin.as_bytes()).ok();
    drop(input);
    let group = Pid::from_raw(child.id() as i32);
    let output = child.wait_with_output().expect("an answer");
    if let Some(group) = group {
        kill_process_group(group, Signal::KILL).ok();
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Answer { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code().unwrap_or(-1) }
}

/// Keeps the last `idle REVISION MILLISECONDS`.
fn listen(out: ChildStdout) -> Idle {
    let idle = Idle::default();
    let told = idle.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let mut words = line.split(' ').skip(1).filter_map(|word| word.parse::<i64>().ok());
            if let (Some(revision), Some(next)) = (words.next(), words.next()) {
                *told.lock().expect("lock") = Some((revision as u64, next, Instant::now()));
            }
        }
    });
    idle
}

/// Copies a folder that may be read-only into a writable one.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("folder");
    for entry in std::fs::read_dir(from).expect("folder").map(|entry| entry.expect("entry").path()) {
        let target = to.join(entry.file_name().expect("name"));
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            std::fs::write(&target, std::fs::read(&entry).expect("file")).expect("copy");
        }
    }
}
