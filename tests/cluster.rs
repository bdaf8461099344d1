//! A cluster for one test: a state folder, the built binary run as users run it, and a cleanup that leaves nothing behind.
//!
//! Every process of its pods has the cluster's folder as `HOME` (kloop passes that variable on), and every shim runs in that folder. So
//! remaining processes are found even if they forked twice, made a session or lost their parent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a test waits for a condition. Only a failing test waits that long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
/// Time between two looks at the files of a cluster.
const STEP: Duration = Duration::from_millis(20);
/// Longest time between two questions while no file changes.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Number, length and time of the last change of a file.
type FileVersion = (u64, u64, (i64, i64));

/// Returns a TCP port of this machine that no program uses now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address").port()
}

/// The output of a command.
#[derive(Debug)]
pub struct Said {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// The exit code; 256 when a signal ended it.
    pub code: i32,
}

/// One cluster with a folder of its own.
pub struct Cluster {
    home: tempfile::TempDir,
    planes: RefCell<Vec<Child>>,
    /// The user that runs it, when it is not the user of the tests.
    user: Option<u32>,
    /// The state, when it is not the file `state.db` in the folder.
    state: Option<String>,
}

impl Cluster {
    /// Makes an empty cluster; nothing runs yet.
    pub fn new() -> Cluster {
        Cluster::within(&std::env::temp_dir()).expect("a folder")
    }

    /// Makes an empty cluster with its folder in this one.
    pub fn within(folder: &Path) -> std::io::Result<Cluster> {
        Ok(Cluster { home: tempfile::tempdir_in(folder)?, planes: RefCell::default(), user: None, state: None })
    }

    /// Makes an empty cluster that belongs to this user and runs programs as that user. Only root can.
    pub fn of_user(user: u32) -> Cluster {
        Cluster::new().owned_by(user)
    }

    /// Makes a folder of another machine for the cluster at this address.
    pub fn at_address(address: &str) -> Cluster {
        let mut cluster = Cluster::new();
        cluster.state = Some(address.to_owned());
        cluster
    }

    /// Gives the cluster to this user. Only root can.
    pub fn owned_by(mut self, user: u32) -> Cluster {
        self.user = Some(user);
        self.owns(&self.home());
        self
    }

    /// Gives a folder with its files to the cluster's user.
    pub fn owns(&self, folder: &Path) {
        let Some(user) = self.user else { return };
        chown(folder, Some(user), Some(user)).expect("given");
        for entry in fs::read_dir(folder).expect("a folder").map(Result::unwrap) {
            chown(entry.path(), Some(user), Some(user)).expect("given");
        }
    }

    /// Returns the cluster's folder, which has mode 0700.
    pub fn home(&self) -> PathBuf {
        self.home.path().canonicalize().expect("home")
    }

    /// Returns the folder of the pods' folders.
    pub fn pods_folder(&self) -> PathBuf {
        if self.state.is_none() {
            return self.home().join("pods");
        }
        // The one replica of a state on etcd.
        let replicas = fs::read_dir(self.home().join(".local/state/kloop/etcd")).expect("replicas");
        replicas.flatten().next().expect("a replica").path().join("pods")
    }

    /// Returns the binary, ready to run in this cluster, with only `PATH` of the caller's environment.
    pub fn command(&self) -> Command {
        self.program(env!("CARGO_BIN_EXE_kloop"))
    }

    /// Returns any program, ready to run as [`Cluster::command`] is.
    pub fn program(&self, path: &str) -> Command {
        let mut command = Command::new(path);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.home());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let state = self.state.as_ref().map_or_else(|| self.home().join("state.db"), PathBuf::from);
        command.env("KLOOP_STATE", state).stdin(Stdio::null());
        command
    }

    /// Runs `kloop` with the words of a line as arguments.
    pub fn kloop(&self, line: &str) -> Said {
        self.run(&line.split_whitespace().collect::<Vec<_>>(), "")
    }

    /// Runs `kloop` with these arguments and this standard input.
    pub fn run(&self, arguments: &[&str], stdin: &str) -> Said {
        self.run_program(self.command().args(arguments), stdin)
    }

    /// Runs a program with this standard input.
    pub fn run_program(&self, command: &mut Command, stdin: &str) -> Said {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        // It may end before it has read everything.
        drop(child.stdin.take().expect("stdin").write_all(stdin.as_bytes()));
        let output = child.wait_with_output().expect("kloop ends");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { out: text(output.stdout), err: text(output.stderr), code: output.status.code().unwrap_or(256) }
    }

    /// Runs a line that has to succeed; returns its output.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        let said = self.kloop(line);
        assert_eq!(said.code, 0, "kloop {line}\n{}{}", said.out, said.err);
        said.out
    }

    /// Applies manifests given as text; they have to be accepted.
    #[track_caller]
    pub fn apply(&self, manifests: &str) -> String {
        let said = self.run(&["apply", "-f", "-"], manifests);
        assert_eq!(said.code, 0, "kloop apply -f -\n{}{}\n{manifests}", said.out, said.err);
        said.out
    }

    /// Starts `reconcile --watch` in the background; its output is written to a file of the cluster.
    pub fn watch(&self) -> Plane<'_> {
        self.watch_with(&[])
    }

    /// Starts `reconcile --watch` with flags.
    pub fn watch_with(&self, flags: &[&str]) -> Plane<'_> {
        self.background(&[&["reconcile", "--watch"], flags].concat())
    }

    /// Starts any command in the background; its output and errors go to a file of the cluster.
    pub fn background(&self, arguments: &[&str]) -> Plane<'_> {
        let mut command = self.command();
        command.args(arguments);
        self.background_program(command)
    }

    /// Starts any program in the background.
    pub fn background_program(&self, mut command: Command) -> Plane<'_> {
        let number = self.planes.borrow().len();
        let path = self.home().join(format!("background-{number}.out"));
        let out = File::create(&path).expect("output file");
        command.stdout(out.try_clone().expect("output file")).stderr(out);
        self.planes.borrow_mut().push(command.spawn().expect("kloop starts"));
        Plane { cluster: self, number, path }
    }

    /// Waits until the question has an answer; panics with the state of the cluster when there is none.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, question: impl Fn() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            let files = self.files();
            if let Some(answer) = question() {
                return answer;
            }
            assert!(start.elapsed() < WAIT_TIMEOUT, "timed out waiting until {what}\n{}", self.story());
            self.pause(start.elapsed() / 8, &files);
        }
    }

    /// Waits for this time, or until the state or the output of a command in the background has changed. A question that starts a program
    /// takes as long as several changes of the state: many tests that ask all the time slow each other down.
    fn pause(&self, time: Duration, files: &[FileVersion]) {
        let until = Instant::now() + time.clamp(STEP, MAX_PAUSE);
        loop {
            std::thread::sleep(STEP);
            if Instant::now() >= until || self.files() != files {
                return;
            }
        }
    }

    /// Returns the versions of the files in its folder that reading commands do not change.
    fn files(&self) -> Vec<FileVersion> {
        let entries = fs::read_dir(self.home()).into_iter().flatten().flatten();
        // Readers of the state change this one.
        let entries = entries.filter(|entry| !entry.file_name().as_encoded_bytes().ends_with(b"-shm"));
        let version = |data: fs::Metadata| (data.ino(), data.len(), (data.mtime(), data.mtime_nsec()));
        let mut files: Vec<_> = entries.filter_map(|entry| Some(version(entry.metadata().ok()?))).collect();
        files.sort_unstable();
        files
    }

    /// Waits until the condition is true.
    #[track_caller]
    pub fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        self.wait_for(what, || is_so().then_some(()));
    }

    /// Waits until a path of an object has a value: `until_reads("deploy/web", "{.status.readyReplicas}", "3")`.
    #[track_caller]
    pub fn until_reads(&self, object: &str, path: &str, wanted: &str) {
        self.until(&format!("{object} {path} is {wanted:?}"), || self.read(object, path) == wanted);
    }

    /// Waits until the log of the container `main` is this text.
    #[track_caller]
    pub fn until_logs(&self, pod: &str, text: &str) {
        self.until(&format!("the log of {pod} is {text:?}"), || self.log(pod, "main") == text);
    }

    /// Reads a JSONPath of an object, or of a list: `read("pods -l app=web", "{.items[*].metadata.name}")`; empty when it does not exist.
    pub fn read(&self, object: &str, path: &str) -> String {
        self.kloop(&format!("get {object} -o jsonpath={path}")).out
    }

    /// Returns the names of the pods with these labels that are not being deleted.
    pub fn pods(&self, labels: &str) -> Vec<String> {
        let said = self.kloop(&format!("get pods -l {labels} -o json"));
        let list: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
        let live =
            list["items"].as_array().into_iter().flatten().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        live.filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned())).collect()
    }

    /// Waits until exactly this many pods with these labels exist and are ready; returns their names.
    #[track_caller]
    pub fn ready_pods(&self, labels: &str, count: usize) -> Vec<String> {
        self.wait_for(&format!("{count} pods with {labels} are ready"), || {
            let ready =
                self.read(&format!("pods -l {labels}"), "{.items[*].status.conditions[?(@.type==\"Ready\")].status}");
            let pods = self.pods(labels);
            let all_ready =
                ready.split_whitespace().count() == count && ready.split_whitespace().all(|is| is == "True");
            (pods.len() == count && all_ready).then_some(pods)
        })
    }

    /// Returns the name of a pod's folder: its uid, or for a static pod the hash of its manifest.
    fn local_uid(&self, pod: &str) -> String {
        let said =
            self.read(&format!("pod/{pod}"), "{.metadata.annotations.kubernetes\\.io/config\\.mirror}/{.metadata.uid}");
        said.split('/').find(|uid| !uid.is_empty()).unwrap_or_default().to_owned()
    }

    /// Returns the running processes of a pod by container, as recorded by the pod's shim.
    pub fn pids(&self, pod: &str) -> BTreeMap<String, u32> {
        let uid = self.local_uid(pod);
        let record = fs::read_to_string(self.pods_folder().join(uid).join("record.json")).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap_or_default();
        let containers = record["containers"].as_object().into_iter().flatten();
        let running = containers.filter_map(|(name, container)| {
            Some((name.clone(), container["state"]["Running"]["process"]["pid"].as_u64()? as u32))
        });
        running.collect()
    }

    /// Returns the process of a pod with one container, once it runs.
    #[track_caller]
    pub fn pid(&self, pod: &str) -> u32 {
        self.wait_for(&format!("{pod} has a process"), || self.pids(pod).into_values().next())
    }

    /// Returns the output of a container of a pod so far, of all attempts, without timestamps.
    pub fn log(&self, pod: &str, container: &str) -> String {
        let uid = self.local_uid(pod);
        let folder = self.pods_folder().join(uid).join(container);
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("entry").path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        files.sort();
        // The oldest file may have been removed since.
        let read = |path: &PathBuf| match fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.expect("log"),
        };
        let text: String = files.iter().map(read).collect();
        text.lines().map(|line| line.splitn(4, ' ').last().unwrap_or_default().to_owned() + "\n").collect()
    }

    /// Returns every running process of this cluster, except control planes.
    pub fn processes(&self) -> Vec<u32> {
        let planes: Vec<u32> = self.planes.borrow().iter().map(Child::id).collect();
        let mut found = self.descendants();
        found.retain(|pid| !planes.contains(pid));
        found
    }

    fn descendants(&self) -> Vec<u32> {
        let home = self.home();
        let mark = home.display().to_string();
        let pids =
            fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let stands = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            is_alive(*pid) && (stands.starts_with(&home) || String::from_utf8_lossy(&environment).contains(&mark))
        })
        .collect()
    }

    /// Returns the gateways, which end by themselves a while after all pods.
    pub fn gateways(&self) -> Vec<u32> {
        let command = format!("kloop\0network\0{}\0", self.home().display());
        let pids =
            fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == command.as_bytes()))
            .collect()
    }

    /// Waits until no process and no folder of a pod is left, and no pod is being deleted.
    #[track_caller]
    pub fn nothing_is_left(&self) {
        self.until("no process of the cluster is left", || self.processes().is_empty());
        self.until("no pod has a folder", || fs::read_dir(self.pods_folder()).map_or(0, Iterator::count) == 0);
        // The object is deleted after the processes and the folder.
        self.until("no pod is being deleted", || {
            self.read("pods -A", "{.items[*].metadata.deletionTimestamp}").trim().is_empty()
        });
    }

    /// Returns the state of the cluster, for a failing test.
    fn story(&self) -> String {
        let mut story = String::new();
        for line in ["get all -A -o wide", "get events -A"] {
            let said = self.kloop(line);
            story += &format!("$ kloop {line}\n{}{}\n", said.out, said.err);
        }
        for number in 0..self.planes.borrow().len() {
            let path = self.home().join(format!("background-{number}.out"));
            story += &format!("{}:\n{}\n", path.display(), fs::read_to_string(&path).unwrap_or_default());
        }
        story
    }
}

impl Cluster {
    /// Ends the control planes first, so that they start nothing again, then all other processes. Returns the pids and command lines of
    /// processes that are left after some time.
    pub fn end_everything(&self) -> Vec<String> {
        self.end_everything_within(WAIT_TIMEOUT)
    }

    fn end_everything_within(&self, time: Duration) -> Vec<String> {
        for plane in self.planes.borrow_mut().iter_mut() {
            drop(plane.kill());
            drop(plane.wait());
        }
        let until = Instant::now() + time;
        loop {
            let mut left = self.descendants();
            left.extend(self.gateways());
            if left.is_empty() || Instant::now() >= until {
                return left.into_iter().map(describe_process).collect();
            }
            left.into_iter().for_each(|pid| signal(pid, "KILL"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let left = self.end_everything();
        kloop::runtime::limits::discard(&self.home());
        if !left.is_empty() {
            let text = format!("processes of a cluster do not end:\n{}", left.join("\n"));
            if std::thread::panicking() { eprintln!("{text}") } else { panic!("{text}") }
        }
    }
}

/// Returns the pid and the command line of a process.
fn describe_process(pid: u32) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("{pid} {}", String::from_utf8_lossy(&command).replace('\0', " ").trim_end())
}

/// A control plane, or another command, in the background.
pub struct Plane<'a> {
    cluster: &'a Cluster,
    number: usize,
    path: PathBuf,
}

impl Plane<'_> {
    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.cluster.planes.borrow()[self.number].id()
    }

    /// Returns its output so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.path).expect("output")
    }

    /// Waits until it has printed this text.
    #[track_caller]
    pub fn until_says(&self, text: &str) {
        self.cluster.until(&format!("the command in the background says {text:?}"), || self.said().contains(text));
    }

    /// Sends a signal and waits for its end; returns the exit code, 256 when the signal itself ended it.
    #[track_caller]
    pub fn end(&self, name: &str) -> i32 {
        signal(self.pid(), name);
        self.ended()
    }

    /// Waits for its end; returns the exit code, 256 when a signal ended it.
    #[track_caller]
    pub fn ended(&self) -> i32 {
        self.cluster.wait_for("the command ends", || {
            let mut planes = self.cluster.planes.borrow_mut();
            let status = planes[self.number].try_wait().expect("child")?;
            Some(status.code().unwrap_or(256))
        })
    }
}

/// Sends a signal by name: `signal(pid, "KILL")`.
pub fn signal(pid: u32, name: &str) {
    // The process may be gone already.
    let kill = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).stderr(Stdio::null()).status();
    kill.expect("kill runs");
}

/// Whether a process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Whether a process is stopped by a signal.
pub fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

#[test]
fn process_that_does_not_end_is_named() {
    let cluster = Cluster::new();
    let mut sleeper = cluster.program("sleep").arg("1000").spawn().expect("it starts");
    let pid = sleeper.id();
    cluster.until("it runs", || describe_process(pid).contains("sleep"));
    assert_eq!(cluster.end_everything_within(Duration::ZERO), [format!("{pid} sleep 1000")]);
    signal(pid, "KILL");
    sleeper.wait().expect("it ends");
    assert!(cluster.end_everything_within(Duration::ZERO).is_empty());
}
