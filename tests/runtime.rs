//! Real processes under real shims.

mod deaths;
mod inherited_code;
mod services;
mod shared_memory;
mod standby;

use kloop::kinds::shared::probe_handler::ProbeHandler;
use kloop::object::{Str, Time};
use kloop::runtime::image::Environment;
use kloop::runtime::machine::AdoptedShims;
use kloop::runtime::testing::start_request;
use kloop::runtime::{Host, Machine, folder, process};
use kloop::world::start::Start;
use kloop::world::{AttemptEnd, ContainerState, Effect, Report};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Maximum wait; only a failing test waits that long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A machine in its own folder, cleaned up when the test ends in any way.
struct Rig {
    folder: tempfile::TempDir,
    machine: Option<Machine>,
    reports: Receiver<Report>,
    epoch: u64,
    /// The shims that the last replacement of the control plane has asked.
    adopted: Option<AdoptedShims>,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let (machine, reports) = open(folder.path(), 1);
        Rig { folder, machine: Some(machine), reports, epoch: 1, adopted: None }
    }

    /// Replaces the control plane by a later one.
    fn replace(&mut self) -> std::collections::HashMap<Str, kloop::world::PodFacts> {
        self.machine = None;
        self.epoch += 1;
        let (mut machine, reports) = open(self.folder.path(), self.epoch);
        let inventory = machine.inventory();
        self.adopted = Some(machine.connect_to_shims());
        self.machine = Some(machine);
        self.reports = reports;
        inventory
    }

    fn order(&mut self, effect: Effect) {
        self.machine.as_mut().expect("open").carry_out(Time::now(), &effect);
    }

    fn start(&mut self, start: Start) {
        self.order(Effect::Start(Box::new(start)));
    }

    fn stop(&mut self, uid: &str, container: &str, attempt: u32, grace_seconds: i64) {
        self.order(Effect::Stop { pod_uid: uid.into(), container: container.into(), attempt, grace_seconds });
    }

    fn next(&self) -> Report {
        self.reports.recv_timeout(WAIT_TIMEOUT).expect("a report")
    }

    /// Returns the next report about this attempt that `fits` accepts.
    fn until<T>(&self, uid: &str, attempt: u32, fits: impl Fn(&ContainerState) -> Option<T>) -> T {
        loop {
            if let Report::Container { pod_uid, attempt: of, state, .. } = self.next()
                && &*pod_uid == uid
                && of == attempt
                && let Some(found) = fits(&state)
            {
                return found;
            }
        }
    }

    fn running(&self, uid: &str, attempt: u32) -> u32 {
        self.until(uid, attempt, |state| match state {
            ContainerState::Running { pid, .. } => Some(*pid),
            _ => None,
        })
    }

    fn any_running(&self) -> u32 {
        loop {
            if let Report::Container { state: ContainerState::Running { pid, .. }, .. } = self.next() {
                return pid;
            }
        }
    }

    fn ended(&self, uid: &str, attempt: u32) -> AttemptEnd {
        self.until(uid, attempt, |state| match state {
            ContainerState::Ended(ended) => Some(ended.clone()),
            _ => None,
        })
    }

    fn pod(&self, uid: &str) -> PathBuf {
        self.folder.path().join("pods").join(uid)
    }

    fn remove(&mut self, uid: &str) {
        self.order(Effect::Remove { pod_uid: uid.into() });
        while !matches!(self.next(), Report::Removed { pod_uid } if &*pod_uid == uid) {}
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.machine.is_none() {
            self.replace();
        }
        let pods: Vec<String> = fs::read_dir(self.folder.path().join("pods"))
            .expect("readable")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        for uid in pods {
            self.order(Effect::Remove { pod_uid: uid.as_str().into() });
            while !matches!(self.reports.recv_timeout(WAIT_TIMEOUT), Ok(Report::Removed { pod_uid }) if *pod_uid == *uid)
            {
            }
        }
        let left: Vec<i32> = marked(self.folder.path());
        assert!(left.is_empty() || std::thread::panicking(), "processes left behind: {left:?}");
    }
}

fn open(folder: &Path, epoch: u64) -> (Machine, Receiver<Report>) {
    let (send, reports) = channel();
    let send = Mutex::new(send);
    let report = Box::new(move |report| {
        let _ = send.lock().expect("not poisoned").send(report);
    });
    let shim = Path::new(env!("CARGO_BIN_EXE_kloop"));
    (Machine::open_with(folder, epoch, shim, Environment::inherited(), report).expect("opened"), reports)
}

fn send(to: i32, signal: Signal) {
    kill_process(Pid::from_raw(to).expect("a pid"), signal).expect("sent");
}

/// Returns the processes with the mark of a pod of this state folder.
fn marked(folder: &Path) -> Vec<i32> {
    let is_marked = |pid: i32| {
        let mark = process::environment(pid, folder::TERMINATION_LOG);
        mark.is_some_and(|mark| Path::new(&mark).starts_with(folder))
    };
    process::all_processes()
        .filter(|stat| !stat.zombie)
        .map(|stat| stat.identity.pid)
        .filter(|pid| is_marked(*pid))
        .collect()
}

/// Makes a start of a shell script.
fn script(uid: &str, attempt: u32, text: &str) -> Start {
    Start { command: vec!["sh".into(), "-c".into(), text.into()], ..start_request(uid, "c", attempt) }
}

/// Waits for a condition that is not reported.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn lives(pid: u32) -> bool {
    process::stat(pid as i32).is_some_and(|stat| !stat.zombie)
}

fn kill(pid: i32) {
    assert!(process::ProcessIdentity::from_pid(pid).expect("it runs").kill());
}

#[test]
fn exit_codes_and_signals_are_exact() {
    let mut rig = Rig::new();
    let table = [
        ("exit 0", 0, None),
        ("exit 1", 1, None),
        ("exit 42", 42, None),
        ("exit 255", 255, None),
        ("kill -TERM $$", 143, Some(15)),
        ("kill -KILL $$", 137, Some(9)),
        ("kill -SEGV $$", 139, Some(11)),
        ("kill -USR1 $$", 138, Some(10)),
        ("kill -PIPE $$", 141, Some(13)),
    ];
    for (attempt, (text, code, signal)) in table.into_iter().enumerate() {
        let attempt = attempt as u32;
        rig.start(script("codes", attempt, text));
        rig.running("codes", attempt);
        let ended = rig.ended("codes", attempt);
        assert_eq!((ended.code, ended.signal), (code, signal), "{text}");
        assert!(ended.started.is_some_and(|started| started <= ended.finished), "{text}");
    }
}

#[test]
fn program_that_cannot_be_executed_is_refused() {
    let mut rig = Rig::new();
    let folder = tempfile::tempdir().expect("a folder");
    let garbage = folder.path().join("garbage");
    fs::write(&garbage, "\x7fELF nonsense").expect("written");
    let orphan = folder.path().join("orphan");
    fs::write(&orphan, "#!/no/such/interpreter\n").expect("written");
    for file in [&garbage, &orphan] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("set");
    }
    let table = [
        ("nosuchprogram".to_owned(), "executable file not found in $PATH"),
        ("/no/such".to_owned(), "stat /no/such: no such file or directory"),
        ("/etc/passwd".to_owned(), "permission denied"),
        (garbage.display().to_string(), "exec format error"),
        (orphan.display().to_string(), "no such file or directory"),
    ];
    for (attempt, (program, part)) in table.into_iter().enumerate() {
        let attempt = attempt as u32;
        rig.start(Start { command: vec![program.clone()], ..start_request("refused", "c", attempt) });
        let (reason, message) = rig.until("refused", attempt, |state| match state {
            ContainerState::Refused { reason, message, .. } => Some((reason.clone(), message.clone())),
            _ => None,
        });
        assert_eq!(reason, "StartError", "{program}");
        assert!(message.contains(part), "{program}: {message}");
    }
    rig.start(Start { image: "nosuchprogram:1".into(), ..start_request("refused", "c", 9) });
    let reason = rig.until("refused", 9, |state| match state {
        ContainerState::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(reason, "ErrImagePull");
}

#[test]
fn output_becomes_a_log_in_the_cri_format() {
    let mut rig = Rig::new();
    rig.start(script("logs", 0, "echo one; echo two >&2; printf three"));
    rig.ended("logs", 0);
    let log = fs::read_to_string(rig.pod("logs").join("c/0.log")).expect("a log");
    let mut lines: Vec<&str> = log.lines().map(|line| line.split_once(' ').expect("a time").1).collect();
    lines.sort();
    // The end of a log without a newline is a partial line.
    assert_eq!(lines, ["stderr F two", "stdout F one", "stdout P three"]);
    let stamp = log.split(' ').next().expect("a time");
    assert!(stamp.len() == 30 && stamp.ends_with('Z') && stamp.parse::<Time>().is_ok(), "{stamp}");
}

#[test]
fn stop_sends_sigterm_then_sigkill_at_the_deadline() {
    let mut rig = Rig::new();
    rig.start(script("stop", 0, "trap 'exit 3' TERM; while :; do sleep 0.01; done"));
    rig.running("stop", 0);
    rig.stop("stop", "c", 0, 30);
    let code = rig.ended("stop", 0).code;
    // The signal may arrive before the shell has set its trap.
    assert!(code == 3 || code == 143, "{code}");

    rig.start(script("stop", 1, "trap '' TERM; echo ready; while :; do sleep 0.01; done"));
    rig.running("stop", 1);
    let log = rig.pod("stop").join("c/1.log");
    eventually("it got ready", || fs::read_to_string(&log).is_ok_and(|text| text.contains("ready")));
    rig.stop("stop", "c", 1, 600);
    rig.stop("stop", "c", 1, 0);
    rig.stop("stop", "c", 1, 600);
    assert_eq!(rig.ended("stop", 1).code, 137, "a later stop shortens and never lengthens");
}

#[test]
fn removal_leaves_nothing() {
    let mut rig = Rig::new();
    rig.start(script("gone", 0, "trap '' TERM HUP; sleep 1000 & setsid sleep 1000 & wait"));
    let pid = rig.running("gone", 0);
    rig.remove("gone");
    assert!(!lives(pid));
    assert!(!rig.pod("gone").exists());
    assert!(marked(rig.folder.path()).is_empty());
    rig.remove("gone");
}

#[test]
fn processes_that_a_container_leaves_behind_end_with_it() {
    let mut rig = Rig::new();
    // A double fork, its own session, ignoring all signals that can be ignored, and a stopped process.
    let text = "(setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > escaped; sleep 1000' &) ; \
                sleep 1000 & kill -STOP $!; (env -i setsid sleep 1000 &) ; \
                while [ ! -s escaped ]; do sleep 0.01; done; exit 7";
    rig.start(script("tree", 0, text));
    assert_eq!(rig.ended("tree", 0).code, 7);
    let escaped = fs::read_to_string(rig.pod("tree").join("c/scratch/escaped")).expect("it ran");
    assert!(!lives(escaped.trim().parse().expect("a pid")));
    assert!(marked(rig.folder.path()).is_empty());
}

#[test]
fn containers_of_a_pod_end_independently() {
    let mut rig = Rig::new();
    let stays = Start { container: "stays".into(), ..script("two", 0, "setsid sleep 1000 & exec sleep 1000") };
    rig.start(stays);
    let pid = rig.running("two", 0);
    let children = || process::all_processes().filter(|stat| stat.parent == pid as i32).count();
    eventually("its child runs", || children() == 1);
    rig.start(Start { container: "goes".into(), ..script("two", 0, "setsid sleep 1000 & exit 0") });
    assert_eq!(rig.ended("two", 0).code, 0);
    assert!(lives(pid) && children() == 1, "the other container is untouched");
    assert_eq!(marked(rig.folder.path()).len(), 2);
}

#[test]
fn repeated_start_starts_once() {
    let mut rig = Rig::new();
    for _ in 0..5 {
        rig.start(script("once", 0, "echo started; exec sleep 1000"));
    }
    let pid = rig.running("once", 0);
    rig.start(script("once", 0, "echo started; exec sleep 1000"));
    assert_eq!(rig.running("once", 0), pid);
    rig.stop("once", "c", 0, 0);
    assert_eq!(rig.ended("once", 0).code, 137);
    rig.start(script("once", 0, "echo started; exec sleep 1000"));
    assert_eq!(rig.ended("once", 0).code, 137, "an attempt that has ended does not run again");
    let log = fs::read_to_string(rig.pod("once").join("c/0.log")).expect("a log");
    assert!(log.lines().count() <= 1, "{log}");
}

#[test]
fn child_inherits_only_its_environment_and_three_descriptors() {
    let mut rig = Rig::new();
    // `ls` lists its own descriptors, because the shell may have its pipe open for a moment.
    let mut start = script(
        "child",
        0,
        "env; ls /proc/self/fd | grep -c .; grep -E '^Sig(Blk|Ign|Cgt)|^NoNew' /proc/self/status; umask; pwd",
    );
    start.env = vec![("A".into(), "b\nc".into()), ("PATH".into(), "/usr/bin:/bin".into())];
    rig.start(start);
    assert_eq!(rig.ended("child", 0).code, 0);
    let log = fs::read_to_string(rig.pod("child").join("c/0.log")).expect("a log");
    let lines: Vec<&str> = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
    for line in [
        "A=b",
        "c",
        "PATH=/usr/bin:/bin",
        "HOSTNAME=p",
        "SigBlk:\t0000000000000000",
        "SigIgn:\t0000000000000000",
        // A process that root starts may change its user, unless the manifest forbids it.
        if rustix::process::geteuid().is_root() { "NoNewPrivs:\t0" } else { "NoNewPrivs:\t1" },
        "0022",
    ] {
        assert!(lines.contains(&line), "{line:?} in {log}");
    }
    assert!(lines.contains(&"4"), "descriptors 0 to 2, and the folder that ls reads: {log}");
    assert!(!log.contains("CARGO"), "nothing of this process's environment: {log}");
    assert!(lines.last().is_some_and(|cwd| cwd.ends_with("pods/child/c/scratch")), "{log}");
}

#[test]
fn termination_message_is_the_file_or_the_end_of_the_log() {
    let mut rig = Rig::new();
    rig.start(script("message", 0, "printf 'it broke' > $KLOOP_TERMINATION_LOG; exit 1"));
    assert_eq!(rig.ended("message", 0).message, "it broke");
    rig.start(Start { termination_from_logs: true, ..script("message", 1, "echo last words; exit 1") });
    assert_eq!(rig.ended("message", 1).message, "last words\n");
    rig.start(Start { termination_from_logs: true, ..script("message", 2, "echo fine; exit 0") });
    assert_eq!(rig.ended("message", 2).message, "");
    assert!(!rig.pod("message").join("c/0.log").exists(), "only the attempt before the newest is kept");
}

#[test]
fn exec_probes_run_beside_the_container() {
    let mut rig = Rig::new();
    let mut start = script("probed", 0, "echo up > state; exec sleep 1000");
    start.env = vec![("WORD".into(), "up".into())];
    rig.start(start);
    rig.running("probed", 0);
    eventually("it is up", || {
        fs::read_to_string(rig.pod("probed").join("c/scratch/state")).is_ok_and(|text| text == "up\n")
    });
    let big = "head -c 100000 /dev/zero | tr '\\0' x; exit 1";
    let table = [
        ("grep -q $WORD state", true, ""),
        ("echo not today; exit 1", false, "not today\n"),
        (
            "setsid sleep 1000 & sleep 1000",
            false,
            "command timed out: \"sh -c setsid sleep 1000 & sleep 1000\" timed out after 1s",
        ),
        (big, false, ""),
    ];
    for (text, expected, part) in table {
        let probe = kloop::world::plan::ProbeRun {
            pod_uid: "probed".into(),
            container: "c".into(),
            attempt: 0,
            kind: kloop::world::ProbeKind::Liveness,
            handler: ProbeHandler::read(&serde_json::json!({"exec": {"command": ["sh", "-c", text]}})),
            ip: "127.0.0.1".into(),
            timeout_seconds: if part.contains("timed out") { 1 } else { 20 },
            counts_from: None,
        };
        rig.order(Effect::Probe(Box::new(probe)));
        let (ok, message) = loop {
            if let Report::Probe { verdict, message, .. } = rig.next() {
                break (verdict == kloop::world::ProbeResult::Success, message);
            }
        };
        assert_eq!(ok, expected, "{text}: {message}");
        assert!(message.contains(part) && message.len() <= 10 * 1024, "{text}: {message}");
    }
    assert_eq!(marked(rig.folder.path()).len(), 1, "only the container itself is left");
}
