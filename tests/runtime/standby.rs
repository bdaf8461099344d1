//! Standby processes: when they become the next attempt, and when they are ended.

use super::*;
use kloop::runtime::STANDBY_COMPARISON_HOLDS;
use kloop::world::RestartDecision;
use kloop::world::limits::Limits;
use kloop::world::volume::{ContainerFiles, FilesystemView, Volume, VolumeContent, VolumeFile, VolumeMountPoint};

/// A container that restarts, and appends a line to a file for each attempt.
fn noting(rig: &Rig, attempt: u32, word: &str) -> Start {
    let text = format!("echo {word} >> {}; exec sleep 1000", truth(rig).display());
    Start { again: RestartDecision::Always, ..script("again", attempt, &text) }
}

fn truth(rig: &Rig) -> PathBuf {
    rig.folder.path().join("truth")
}

/// Returns the lines of the attempts that ran.
fn recorded_attempts(rig: &Rig) -> Vec<String> {
    fs::read_to_string(truth(rig)).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn shim(rig: &Rig) -> i32 {
    folder::holder(&rig.pod("again")).expect("a shim").pid
}

/// Runs the first attempt and kills it. Returns the standby process.
fn crash(rig: &mut Rig) -> i32 {
    rig.start(noting(rig, 0, "first"));
    let pid = rig.running("again", 0);
    eventually("it notes its life", || recorded_attempts(rig).len() == 1);
    kill(pid as i32);
    rig.ended("again", 0);
    let waiting = process::children(shim(rig));
    assert_eq!(waiting.len(), 1, "a standby exists before the next start");
    waiting[0]
}

/// Sends the expected start late.
fn starts_again(rig: &mut Rig) {
    rig.start(noting(rig, 1, "first"));
    rig.running("again", 1);
    eventually("the second life", || recorded_attempts(rig) == ["first", "first"]);
}

#[test]
fn standby_becomes_the_expected_start() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    assert_eq!(recorded_attempts(&rig), ["first"]);
    rig.start(noting(&rig, 1, "first"));
    assert_eq!(rig.running("again", 1), waiting as u32);
    eventually("the second life", || recorded_attempts(&rig) == ["first", "first"]);
}

#[test]
fn standby_keeps_no_other_descriptor_open() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    let open = || fs::read_dir(format!("/proc/{waiting}/fd")).map_or(0, |open| open.count());
    // Its three streams, the start pipe, and the error pipe.
    eventually("no other descriptor is open", || open() == 5);
}

#[test]
fn standby_is_ended_by_an_unexpected_start() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    rig.start(noting(&rig, 1, "other"));
    assert_ne!(rig.running("again", 1), waiting as u32);
    eventually("the other life", || recorded_attempts(&rig) == ["first", "other"]);
    eventually("it has ended", || !lives(waiting as u32));
}

#[test]
fn killed_standby_counts_as_no_attempt() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    // The stopped shim gets the start and the exit at once.
    send(shim(&rig), Signal::STOP);
    kill(waiting);
    rig.start(noting(&rig, 1, "first"));
    eventually("it is dead", || !lives(waiting as u32));
    send(shim(&rig), Signal::CONT);
    let report = rig.until("again", 1, |state| Some(state.clone()));
    assert!(matches!(report, ContainerState::Running { pid, .. } if pid != waiting as u32), "{report:?}");
    eventually("the second life", || recorded_attempts(&rig) == ["first", "first"]);
}

#[test]
fn standby_is_not_made_for_a_changed_start() {
    let volumes = [Volume {
        name: "v".into(),
        source: VolumeContent::Files(vec![VolumeFile::new("f", 0o644, b"new".as_slice())]),
    }];
    let refresh = Effect::Refresh { pod_uid: "again".into(), volumes: volumes.into(), missing: Vec::new() };
    let limits = Box::<Limits>::default();
    let resize = Effect::Resize { pod_uid: "again".into(), container: "c".into(), attempt: 0, limits };
    for change in [refresh, resize] {
        let mut rig = Rig::new();
        rig.start(noting(&rig, 0, "first"));
        let pid = rig.running("again", 0);
        let is_resize = matches!(change, Effect::Resize { .. });
        rig.order(change);
        if is_resize {
            while !matches!(rig.next(), Report::Resized { .. }) {}
        }
        eventually("it is done", || is_resize || rig.pod("again").join("volumes.d/v/f").exists());
        kill(pid as i32);
        rig.ended("again", 0);
        assert!(process::children(shim(&rig)).is_empty(), "resize: {is_resize}");
    }
}

#[test]
fn standby_expires_and_a_late_start_still_works() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    eventually("it has ended", || !lives(waiting as u32));
    assert_eq!(recorded_attempts(&rig), ["first"]);
    starts_again(&mut rig);
}

#[test]
fn standby_ends_with_its_shim_and_counts_as_no_attempt() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    kill(shim(&rig));
    eventually("it has ended", || !lives(waiting as u32));
    assert_eq!(recorded_attempts(&rig), ["first"]);
    starts_again(&mut rig);
}

#[test]
fn standby_is_not_made_for_stopped_or_final_attempts() {
    let table = [
        (RestartDecision::Never, 1, false),
        (RestartDecision::OnFailure, 0, false),
        (RestartDecision::OnFailure, 1, true),
        (RestartDecision::Always, 0, true),
    ];
    let mut rig = Rig::new();
    for (at, (again, code, waits)) in table.into_iter().enumerate() {
        let uid = format!("p{at}");
        rig.start(Start { again, ..script(&uid, 0, &format!("exit {code}")) });
        rig.ended(&uid, 0);
        let shim = folder::holder(&rig.pod(&uid)).expect("a shim").pid;
        assert_eq!(process::children(shim).len(), usize::from(waits), "{again:?} after {code}");
    }
    rig.start(noting(&rig, 0, "first"));
    rig.running("again", 0);
    rig.stop("again", "c", 0, 0);
    rig.ended("again", 0);
    assert!(process::children(shim(&rig)).is_empty(), "the container was stopped");
}

/// Waits for the standby of a running process.
fn prepared_beside(rig: &Rig, pid: u32) -> i32 {
    let beside = || process::children(shim(rig)).into_iter().find(|child| *child != pid as i32);
    eventually("a standby exists while the container runs", || beside().is_some());
    beside().expect("the standby exists")
}

#[test]
fn container_that_has_run_for_a_while_has_a_standby() {
    let mut rig = Rig::new();
    rig.start(noting(&rig, 0, "first"));
    let pid = rig.running("again", 0);
    let waiting = prepared_beside(&rig, pid);
    assert_eq!(recorded_attempts(&rig), ["first"]);
    kill(pid as i32);
    rig.ended("again", 0);
    rig.start(noting(&rig, 1, "first"));
    assert_eq!(rig.running("again", 1), waiting as u32);
    eventually("the second life", || recorded_attempts(&rig) == ["first", "first"]);
}

/// A container whose program appends a word to a file, with functions to write the program and to start an attempt.
struct BuiltProgram {
    program: PathBuf,
    truth: PathBuf,
}

impl BuiltProgram {
    fn new(rig: &Rig) -> BuiltProgram {
        BuiltProgram { program: rig.folder.path().join("program"), truth: truth(rig) }
    }

    fn build(&self, word: &str) {
        let text = format!("#!/bin/sh\necho {word} >> {}; exec sleep 1000\n", self.truth.display());
        let fresh = self.program.with_extension("fresh");
        fs::write(&fresh, text).expect("written");
        fs::set_permissions(&fresh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
        fs::rename(&fresh, &self.program).expect("in its place");
    }

    fn start(&self, attempt: u32) -> Start {
        let command = vec![self.program.to_string_lossy().into()];
        Start { again: RestartDecision::Always, command, ..start_request("again", "c", attempt) }
    }
}

#[test]
fn rebuilt_program_replaces_the_standby() {
    let mut rig = Rig::new();
    let program = BuiltProgram::new(&rig);
    program.build("old");
    rig.start(program.start(0));
    let pid = rig.running("again", 0);
    let waiting = prepared_beside(&rig, pid);
    program.build("new");
    kill(pid as i32);
    rig.ended("again", 0);
    rig.start(program.start(1));
    assert_ne!(rig.running("again", 1), waiting as u32);
    eventually("the new one", || recorded_attempts(&rig) == ["old", "new"]);
}

#[test]
fn program_rebuilt_during_the_pause_replaces_the_standby() {
    let mut rig = Rig::new();
    let program = BuiltProgram::new(&rig);
    program.build("old");
    rig.start(program.start(0));
    let pid = rig.running("again", 0);
    eventually("the old one runs", || recorded_attempts(&rig) == ["old"]);
    kill(pid as i32);
    rig.ended("again", 0);
    let waiting = process::children(shim(&rig));
    assert_eq!(waiting.len(), 1, "a standby exists before the next start");
    program.build("new");
    // The shim checked the program as the container ended, and checks it again only after a while.
    std::thread::sleep(STANDBY_COMPARISON_HOLDS * 3 / 2);
    rig.start(program.start(1));
    assert_ne!(rig.running("again", 1), waiting[0] as u32);
    eventually("the new one", || recorded_attempts(&rig) == ["old", "new"]);
}

#[test]
fn container_that_starts_in_a_volume_has_no_standby() {
    let mut rig = Rig::new();
    let start = |attempt| {
        let files = ContainerFiles {
            view: FilesystemView::Private,
            volumes: [Volume { name: "v".into(), source: VolumeContent::Empty }].into(),
            mounts: vec![VolumeMountPoint {
                volume: "v".into(),
                path: "/work".into(),
                sub_path: String::new(),
                read_only: false,
            }],
            ..ContainerFiles::default()
        };
        let working_dir = Some("/work".to_owned());
        Start { again: RestartDecision::Always, files, working_dir, ..script("again", attempt, "exit 1") }
    };
    for attempt in 0..2 {
        rig.start(start(attempt));
        rig.ended("again", attempt);
        assert!(process::children(shim(&rig)).is_empty(), "attempt {attempt}");
    }
}

#[test]
fn standby_ends_with_its_stopped_container() {
    let mut rig = Rig::new();
    rig.start(noting(&rig, 0, "first"));
    let pid = rig.running("again", 0);
    let waiting = prepared_beside(&rig, pid);
    rig.stop("again", "c", 0, 0);
    rig.ended("again", 0);
    eventually("it has ended", || !lives(waiting as u32));
    assert_eq!(recorded_attempts(&rig), ["first"]);
}
