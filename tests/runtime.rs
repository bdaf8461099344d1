//! Real processes under real shims.

mod successor;

use kloop::object::{Str, Time};
use kloop::runtime::image::Environment;
use kloop::runtime::simulated::a_start;
use kloop::runtime::{Host, Machine, folder, process};
use kloop::world::plan::Start;
use kloop::world::{ContainerState, Effect, Ended, Report};
use std::collections::BTreeSet;
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

    fn any_running(&self) -> u32 {
        loop {
            if let Report::Container { state: ContainerState::Running { pid, .. }, .. } = self.next() {
                return pid;
            }
        }
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
    (Machine::open_with(folder, epoch, shim, Environment::of_this_process(), report).expect("opened"), reports)
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

#[test]
fn what_a_container_leaves_behind_ends_with_it() {
    let mut rig = Rig::new();
    // A double fork, a session of its own, deaf to everything that can be ignored, and a stopped one.
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
fn containers_of_a_pod_end_each_for_itself() {
    let mut rig = Rig::new();
    let stays = Start { container: "stays".into(), ..script("two", 0, "setsid sleep 1000 & exec sleep 1000") };
    rig.start(stays);
    let pid = rig.running("two", 0);
    let children = || process::everybody().filter(|stat| stat.parent == pid as i32).count();
    eventually("its child runs", || children() == 1);
    rig.start(Start { container: "goes".into(), ..script("two", 0, "setsid sleep 1000 & exit 0") });
    assert_eq!(rig.ended("two", 0).code, 0);
    assert!(lives(pid) && children() == 1, "the other container is untouched");
    assert_eq!(marked(rig.folder.path()).len(), 2);
}

#[test]
fn a_start_that_is_repeated_starts_once() {
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
fn the_child_gets_its_environment_and_three_descriptors_and_nothing_else() {
    let mut rig = Rig::new();
    // `ls` looks at itself: the shell may hold its own pipe for a moment.
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
        // What root starts may change who it is, unless the manifest says otherwise.
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
fn the_termination_message_is_what_was_written_or_the_end_of_the_log() {
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
fn a_new_control_plane_finds_everything_as_it_is() {
    let mut rig = Rig::new();
    rig.start(script("stays", 0, "exec sleep 1000"));
    rig.start(Start {
        container: "goes".into(),
        ..script("ends", 4, "while [ ! -e go ]; do sleep 0.01; done; exit 9")
    });
    let pid = rig.running("stays", 0);
    rig.start(script("stays", 0, "exec sleep 1000"));
    rig.machine = None;
    fs::write(rig.pod("ends").join("goes/scratch/go"), "").expect("written");
    eventually("its end is recorded", || {
        folder::read_record(&rig.pod("ends"))
            .is_some_and(|record| record.containers.values().any(|known| known.ended().is_some()))
    });
    let inventory = rig.replace();
    let state = |pod: &str, container: &str| inventory[pod].containers[container].state.clone();
    assert!(matches!(state("stays", "c"), ContainerState::Running { pid: same, .. } if same == pid));
    assert!(matches!(state("ends", "goes"), ContainerState::Ended(end) if end.code == 9));
    assert_eq!(inventory["ends"].containers["goes"].attempt, 4);
    assert_eq!((&*inventory["stays"].namespace, &*inventory["stays"].name), ("default", "p"));
    // And it is in charge: reports come to it.
    rig.stop("stays", "c", 0, 30);
    assert_eq!(rig.ended("stays", 0).code, 143);
}

/// The other half of the next test: a control plane that starts a pod and is then killed.
#[test]
fn a_control_plane_to_be_killed() {
    let Some(state) = std::env::var_os("KLOOP_TEST_STATE") else { return };
    let (mut machine, reports) = open(Path::new(&state), 1);
    machine.carry_out(
        Time::now(),
        &Effect::Start(Box::new(script("orphan", 0, "trap 'exit 5' TERM; while :; do sleep 0.01; done"))),
    );
    for report in reports {
        if let Report::Container { state: ContainerState::Running { pid, .. }, .. } = report {
            fs::write(Path::new(&state).join("pid"), pid.to_string()).expect("written");
        }
    }
}

#[test]
fn killing_the_control_plane_disturbs_nothing() {
    let mut rig = Rig::new();
    rig.machine = None;
    let test = std::env::current_exe().expect("this test");
    let mut leader = std::process::Command::new(test)
        .args(["--exact", "runtime::a_control_plane_to_be_killed"])
        .env("KLOOP_TEST_STATE", rig.folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("started");
    let file = rig.folder.path().join("pid");
    eventually("the pod runs", || fs::read_to_string(&file).is_ok_and(|pid| !pid.is_empty()));
    leader.kill().expect("killed");
    leader.wait().expect("reaped");
    let pid: u32 = fs::read_to_string(&file).expect("there").parse().expect("a pid");
    assert!(lives(pid));
    let inventory = rig.replace();
    let state = &inventory["orphan"].containers["c"].state;
    assert!(matches!(state, ContainerState::Running { pid: same, .. } if *same == pid), "{state:?}");
    rig.stop("orphan", "c", 0, 30);
    let code = rig.ended("orphan", 0).code;
    assert!(code == 5 || code == 143, "{code}");
}

#[test]
fn a_leader_of_the_past_can_do_nothing() {
    let mut rig = Rig::new();
    rig.start(script("led", 0, "exec sleep 1000"));
    let pid = rig.running("led", 0);
    let mut old = rig.machine.take().expect("open");
    rig.epoch += 1;
    let (mut machine, reports) = open(rig.folder.path(), rig.epoch);
    machine.inventory();
    rig.machine = Some(machine);
    rig.reports = reports;
    let order = |machine: &mut Machine, effect: Effect| machine.carry_out(Time::now(), &effect);
    order(&mut old, Effect::Stop { pod_uid: "led".into(), container: "c".into(), attempt: 0, grace_seconds: 0 });
    order(&mut old, Effect::Start(Box::new(Start { container: "d".into(), ..script("led", 0, "exec sleep 1000") })));
    order(&mut old, Effect::Start(Box::new(script("fresh", 0, "exec sleep 1000"))));
    order(&mut old, Effect::Remove { pod_uid: "led".into() });
    drop(old);
    // The new leader's words come after the old one's on every shim that there is.
    rig.start(Start { container: "e".into(), ..script("led", 0, "exec sleep 1000") });
    let names = || folder::read_record(&rig.pod("led")).map(|record| record.containers.into_keys().collect::<Vec<_>>());
    eventually("the new leader's container starts", || names().is_some_and(|names| names.contains(&"e".to_owned())));
    assert_eq!(names().expect("a record"), ["c", "e"]);
    assert!(lives(pid));
    assert_eq!(marked(rig.folder.path()).len(), 2, "nothing else was started");
    assert!(Machine::open(rig.folder.path(), 1, Box::new(|_| ())).is_err(), "and it cannot open the folder again");
}

/// The shim of a pod.
fn shim_of(pid: u32) -> i32 {
    process::stat(pid as i32).expect("it runs").parent
}

fn kill(pid: i32) {
    assert!(process::Identity::of(pid).expect("it runs").kill());
}

#[test]
fn when_a_shim_dies_its_tree_is_killed_before_anything_replaces_it() {
    let mut rig = Rig::new();
    rig.start(script(
        "shot",
        0,
        "(setsid sh -c 'trap \"\" TERM; sleep 1000' &); (env -i sleep 1000 &); trap '' TERM; sleep 1000",
    ));
    let pid = rig.running("shot", 0);
    eventually("it has children", || marked(rig.folder.path()).len() >= 4);
    kill(shim_of(pid));
    let ended = rig.ended("shot", 0);
    assert_eq!((ended.code, ended.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    assert!(!lives(pid));
    assert!(marked(rig.folder.path()).is_empty());
    rig.start(script("shot", 1, "exec sleep 1000"));
    let second = rig.running("shot", 1);
    // The same while nobody watches.
    rig.machine = None;
    kill(shim_of(second));
    let inventory = rig.replace();
    assert!(matches!(&inventory["shot"].containers["c"].state, ContainerState::Ended(end) if end.code == 137));
    assert!(matches!(&inventory["shot"].containers["c"].last, Some(end) if end.code == 137));
    assert!(!lives(second));
}

#[test]
fn a_dead_nursery_is_replaced_and_its_shims_live_on() {
    let mut rig = Rig::new();
    for number in 0..4 {
        rig.start(script(&format!("first-{number}"), 0, "exec sleep 1000"));
    }
    let pids: Vec<u32> = (0..4).map(|_| rig.any_running()).collect();
    let nursery_of = |pid: &u32| process::stat(shim_of(*pid)).map(|shim| shim.parent);
    let nurseries: BTreeSet<i32> = pids.iter().filter_map(nursery_of).collect();
    for nursery in nurseries {
        let stat = process::stat(nursery).expect("it runs");
        assert_eq!(stat.parent, std::process::id() as i32, "a child of ours and nobody else");
        assert!(stat.identity.kill());
    }
    for number in 0..4 {
        rig.start(script(&format!("second-{number}"), 0, "exec sleep 1000"));
    }
    (0..4).for_each(|_| assert!(lives(rig.any_running())));
    assert!(pids.iter().all(|pid| lives(*pid)));
}

/// Pretends that a program with another language on the wire has left this shim: its record is rewritten, its processes are real.
fn make_foreign(pod: &Path, version: Option<u32>) {
    let path = pod.join(folder::RECORD);
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
    record["version"] = version.into();
    record["epoch"] = "of another kind".into();
    fs::write(path, record.to_string()).expect("written");
}

#[test]
fn a_shim_of_another_version_is_ended_with_its_tree_and_the_pod_goes_on() {
    let mut rig = Rig::new();
    for (at, version) in [None, Some(0), Some(4_000_000)].into_iter().enumerate() {
        let uid = format!("old-{at}");
        rig.start(script(&uid, 0, "(env -i setsid sleep 1000 &) ; exec sleep 1000"));
        let pid = rig.running(&uid, 0);
        let shim = shim_of(pid);
        eventually("the other process runs too", || process::descendants(shim).len() == 2);
        let tree = process::descendants(shim);
        rig.machine = None;
        make_foreign(&rig.pod(&uid), version);
        let inventory = rig.replace();
        let ContainerState::Ended(end) = &inventory[&*uid].containers["c"].state else { panic!("{inventory:?}") };
        assert_eq!((end.code, end.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
        assert!(end.message.contains("another version of kloop"), "{}", end.message);
        assert!(tree.iter().all(|stat| !stat.identity.lives()), "nothing of it is left");
        rig.start(script(&uid, 1, "exec sleep 1000"));
        assert!(lives(rig.running(&uid, 1)));
        rig.stop(&uid, "c", 1, 0);
        assert_eq!(rig.ended(&uid, 1).code, 137);
    }
}

/// Holds a pod's folder as a shim does and serves its socket so; the process is to be killed.
fn pretended_shim(pod: &Path, answer: &str) -> std::process::Child {
    let script = r#"
import fcntl, os, socket, sys
lock = os.open(".", os.O_RDONLY)
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.socket(socket.AF_UNIX)
listener.bind("shim.sock")
listener.listen(8)
open("ready", "w").close()
connections = open("connections", "a")
while True:
    connection, _ = listener.accept()
    connections.write("x")
    connections.flush()
    if sys.argv[1] == "hang up":
        connection.close()
    else:
        connection.sendall(sys.argv[1].encode())
        globals().setdefault("open_ones", []).append(connection)
"#;
    fs::create_dir(pod).expect("made");
    let child =
        std::process::Command::new("python3").args(["-c", script, answer]).current_dir(pod).spawn().expect("started");
    eventually("it serves", || pod.join("ready").exists());
    child
}

#[test]
fn who_answers_rubbish_on_a_shims_socket_is_ended() {
    let mut rig = Rig::new();
    for (uid, answer) in [("rubbish", "what?\n"), ("later", "{\"State\":{\"version\":77}}\n")] {
        let mut child = pretended_shim(&rig.pod(uid), answer);
        rig.stop(uid, "c", 3, 0);
        let ended = rig.ended(uid, 3);
        assert_eq!((ended.code, ended.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
        child.wait().expect("it was killed");
    }
}

#[test]
fn who_hangs_up_is_not_called_again_and_again_and_ended_in_the_end() {
    let mut rig = Rig::new();
    let mut child = pretended_shim(&rig.pod("rude"), "hang up");
    rig.stop("rude", "c", 0, 0);
    assert_eq!(rig.ended("rude", 0).code, 137);
    child.wait().expect("it was killed");
    let calls = fs::read(rig.pod("rude").join("connections")).expect("read").len();
    assert!((2..20).contains(&calls), "{calls} calls");
}

#[test]
fn records_of_another_boot_or_of_a_recycled_pid_harm_nobody() {
    let mut rig = Rig::new();
    let mut bystander = std::process::Command::new("sleep").arg("1000").spawn().expect("started");
    let identity = process::Identity::of(bystander.id() as i32).expect("it runs");
    rig.machine = None;
    let recycled = process::Identity { start: identity.start - 1, ..identity };
    for (uid, boot, process) in
        [("rebooted", "another boot".to_owned(), identity), ("recycled", process::boot_id(), recycled)]
    {
        let state = serde_json::json!({"Running": {"process": process, "since": 0}});
        let record = serde_json::json!({
            "boot": boot, "epoch": 1, "pod": {"uid": uid, "namespace": "default", "name": uid, "node": "n", "ip": ""},
            "containers": {"c": {"attempt": 2, "state": state, "stopping": null, "last": null}},
        });
        fs::create_dir(rig.pod(uid)).expect("made");
        fs::write(rig.pod(uid).join("record.json"), record.to_string()).expect("written");
    }
    let inventory = rig.replace();
    for uid in ["rebooted", "recycled"] {
        let known = &inventory[uid].containers["c"];
        assert!(matches!(&known.state, ContainerState::Ended(end) if end.code == 137), "{known:?}");
        assert_eq!(known.attempt, 2);
    }
    rig.start(script("rebooted", 3, "exit 0"));
    assert_eq!(rig.ended("rebooted", 3).code, 0, "life goes on with the next attempt");
    assert!(identity.lives(), "the bystander lives");
    bystander.kill().expect("killed");
    bystander.wait().expect("reaped");
}

#[test]
fn an_attempt_that_may_have_run_unrecorded_is_not_run_again() {
    let mut rig = Rig::new();
    rig.machine = None;
    for (uid, container, attempt) in [("first", "c", 0), ("later", "d", 4)] {
        let folder = rig.pod(uid).join(container);
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join(format!("{attempt}.log")), "").expect("written");
    }
    let inventory = rig.replace();
    for (uid, container, attempt) in [("first", "c", 0), ("later", "d", 4)] {
        let known = &inventory[uid].containers[container];
        assert!(matches!(&known.state, ContainerState::Ended(end) if end.code == 137), "{known:?}");
        assert_eq!(known.attempt, attempt);
    }
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
        let probe = kloop::world::plan::Probe {
            pod_uid: "probed".into(),
            container: "c".into(),
            attempt: 0,
            kind: kloop::world::ProbeKind::Liveness,
            handler: serde_json::json!({"exec": {"command": ["sh", "-c", text]}}),
            ip: "127.0.0.1".into(),
            timeout_seconds: if expected || text == big { 20 } else { 1 },
        };
        rig.order(Effect::Probe(Box::new(probe)));
        let (ok, message) = loop {
            if let Report::Probe { verdict, message, .. } = rig.next() {
                break (verdict == kloop::world::Verdict::Success, message);
            }
        };
        assert_eq!(ok, expected, "{text}: {message}");
        assert!(message.contains(part) && message.len() <= 10 * 1024, "{text}: {message}");
    }
    assert_eq!(marked(rig.folder.path()).len(), 1, "only the container itself is left");
}
