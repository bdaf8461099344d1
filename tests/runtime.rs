//! Real processes under real shims.

use kloop::object::{Str, Time};
use kloop::runtime::simulated::a_start;
use kloop::runtime::{Host, Machine, folder, process};
use kloop::world::plan::Start;
use kloop::world::{ContainerState, Effect, Ended, Report};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than anything takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A machine in a folder of its own, swept clean when the test ends, however it ends.
struct Rig {
    folder: tempfile::TempDir,
    machine: Option<Machine>,
    reports: Receiver<Report>,
    epoch: u64,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let (machine, reports) = open(folder.path(), 1);
        Rig { folder, machine: Some(machine), reports, epoch: 1 }
    }

    /// The control plane is replaced by a later one.
    fn replace(&mut self) -> std::collections::HashMap<Str, kloop::world::PodFacts> {
        self.machine = None;
        self.epoch += 1;
        let (mut machine, reports) = open(self.folder.path(), self.epoch);
        let inventory = machine.inventory();
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
        self.reports.recv_timeout(PATIENCE).expect("a report")
    }

    /// The next report about this attempt that fits.
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

    fn ended(&self, uid: &str, attempt: u32) -> Ended {
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
            while !matches!(self.reports.recv_timeout(PATIENCE), Ok(Report::Removed { pod_uid }) if *pod_uid == *uid) {}
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
    (Machine::open_with(folder, epoch, shim, report).expect("opened"), reports)
}

/// Processes that carry the mark of a pod of this state folder.
fn marked(folder: &Path) -> Vec<i32> {
    let is_marked = |pid: i32| {
        let mark = process::environment(pid, folder::TERMINATION_LOG);
        mark.is_some_and(|mark| Path::new(&mark).starts_with(folder))
    };
    process::everybody()
        .filter(|stat| !stat.zombie)
        .map(|stat| stat.identity.pid)
        .filter(|pid| is_marked(*pid))
        .collect()
}

/// A start of a shell script.
fn script(uid: &str, attempt: u32, text: &str) -> Start {
    Start { command: vec!["sh".into(), "-c".into(), text.into()], ..a_start(uid, "c", attempt) }
}

/// Waits until something holds that nothing reports.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn lives(pid: u32) -> bool {
    process::stat(pid as i32).is_some_and(|stat| !stat.zombie)
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
fn a_program_that_cannot_be_executed_is_refused() {
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
        rig.start(Start { command: vec![program.clone()], ..a_start("refused", "c", attempt) });
        let (reason, message) = rig.until("refused", attempt, |state| match state {
            ContainerState::Refused { reason, message, .. } => Some((reason.clone(), message.clone())),
            _ => None,
        });
        assert_eq!(reason, "StartError", "{program}");
        assert!(message.contains(part), "{program}: {message}");
    }
    rig.start(Start { image: "nosuchprogram:1".into(), ..a_start("refused", "c", 9) });
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
    assert_eq!(lines, ["stderr F two", "stdout F one", "stdout F three"]);
    let stamp = log.split(' ').next().expect("a time");
    assert!(stamp.len() == 30 && stamp.ends_with('Z') && stamp.parse::<Time>().is_ok(), "{stamp}");
}

#[test]
fn stop_asks_first_and_kills_at_the_deadline() {
    let mut rig = Rig::new();
    rig.start(script("stop", 0, "trap 'exit 3' TERM; while :; do sleep 0.01; done"));
    rig.running("stop", 0);
    rig.stop("stop", "c", 0, 30);
    let code = rig.ended("stop", 0).code;
    // The signal may come before the shell has set its trap.
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
