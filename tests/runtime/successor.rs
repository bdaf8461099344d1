//! A process that waits to become the next attempt, and when it does not.

use super::*;
use kloop::world::RestartDecision;
use kloop::world::limits::Limits;
use kloop::world::volume::{Volume, VolumeContent, VolumeFile};
use rustix::process::{Pid, Signal, kill_process};

/// A container that would be started again, and notes each of its lives in a file.
fn noting(rig: &Rig, attempt: u32, word: &str) -> Start {
    let text = format!("echo {word} >> {}; exec sleep 1000", truth(rig).display());
    Start { again: RestartDecision::Always, ..script("again", attempt, &text) }
}

fn truth(rig: &Rig) -> PathBuf {
    rig.folder.path().join("truth")
}

/// The containers that have run, as text.
fn lives_noted(rig: &Rig) -> Vec<String> {
    fs::read_to_string(truth(rig)).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn send(to: i32, signal: Signal) {
    kill_process(Pid::from_raw(to).expect("a pid"), signal).expect("sent");
}

fn shim(rig: &Rig) -> i32 {
    folder::holder(&rig.pod("again")).expect("a shim").pid
}

/// Runs the first attempt and kills it. Gives the process that then waits.
fn crash(rig: &mut Rig) -> i32 {
    rig.start(noting(rig, 0, "first"));
    let pid = rig.running("again", 0);
    eventually("it notes its life", || lives_noted(rig).len() == 1);
    kill(pid as i32);
    rig.ended("again", 0);
    let waiting = process::children(shim(rig));
    assert_eq!(waiting.len(), 1, "one waits before anybody asks for it");
    waiting[0]
}

/// The start that was expected comes late.
fn starts_again(rig: &mut Rig) {
    rig.start(noting(rig, 1, "first"));
    rig.running("again", 1);
    eventually("the second life", || lives_noted(rig) == ["first", "first"]);
}

#[test]
fn it_becomes_the_start_that_was_expected_and_runs_nothing_before() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    assert_eq!(lives_noted(&rig), ["first"]);
    rig.start(noting(&rig, 1, "first"));
    assert_eq!(rig.running("again", 1), waiting as u32);
    eventually("the second life", || lives_noted(&rig) == ["first", "first"]);
}

#[test]
fn while_it_waits_it_holds_nothing_open_that_others_wait_to_see_closed() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    let open = || fs::read_dir(format!("/proc/{waiting}/fd")).map_or(0, |open| open.count());
    // Its three streams, the door, and what it would say if it failed.
    eventually("nothing else is open", || open() == 5);
}

#[test]
fn another_start_than_the_expected_one_ends_it() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    rig.start(noting(&rig, 1, "other"));
    assert_ne!(rig.running("again", 1), waiting as u32);
    eventually("the other life", || lives_noted(&rig) == ["first", "other"]);
    eventually("it has ended", || !lives(waiting as u32));
}

#[test]
fn one_that_is_killed_while_it_waits_has_not_lived() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    // The shim hears of the start and of the death at once.
    send(shim(&rig), Signal::STOP);
    kill(waiting);
    rig.start(noting(&rig, 1, "first"));
    eventually("it is dead", || !lives(waiting as u32));
    send(shim(&rig), Signal::CONT);
    let report = rig.until("again", 1, |state| Some(state.clone()));
    assert!(matches!(report, ContainerState::Running { pid, .. } if pid != waiting as u32), "{report:?}");
    eventually("the second life", || lives_noted(&rig) == ["first", "first"]);
}

#[test]
fn nobody_waits_for_a_start_that_will_be_another_one() {
    let volumes = [Volume {
        name: "v".into(),
        source: VolumeContent::Files(vec![VolumeFile {
            path: "f".into(),
            mode: 0o644,
            content: b"new".as_slice().into(),
        }]),
    }];
    let refresh = Effect::Refresh { pod_uid: "again".into(), volumes: volumes.into() };
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
fn it_does_not_wait_for_ever_and_a_late_start_is_a_start_all_the_same() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    eventually("it has ended", || !lives(waiting as u32));
    assert_eq!(lives_noted(&rig), ["first"]);
    starts_again(&mut rig);
}

#[test]
fn it_ends_with_its_shim_and_nobody_takes_it_for_a_life() {
    let mut rig = Rig::new();
    let waiting = crash(&mut rig);
    kill(shim(&rig));
    eventually("it has ended", || !lives(waiting as u32));
    assert_eq!(lives_noted(&rig), ["first"]);
    starts_again(&mut rig);
}

#[test]
fn nobody_waits_for_what_was_stopped_or_is_not_started_again() {
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
    assert!(process::children(shim(&rig)).is_empty(), "it was stopped");
}

/// Waits for the process that is to follow one which still runs.
fn prepared_beside(rig: &Rig, pid: u32) -> i32 {
    let beside = || process::children(shim(rig)).into_iter().find(|child| *child != pid as i32);
    eventually("one waits while the first one runs", || beside().is_some());
    beside().expect("it waits")
}

#[test]
fn container_that_has_run_for_a_while_has_a_standby() {
    let mut rig = Rig::new();
    rig.start(noting(&rig, 0, "first"));
    let pid = rig.running("again", 0);
    let waiting = prepared_beside(&rig, pid);
    assert_eq!(lives_noted(&rig), ["first"]);
    kill(pid as i32);
    rig.ended("again", 0);
    rig.start(noting(&rig, 1, "first"));
    assert_eq!(rig.running("again", 1), waiting as u32);
    eventually("the second life", || lives_noted(&rig) == ["first", "first"]);
}

#[test]
fn a_program_that_was_built_anew_is_what_starts_again() {
    let mut rig = Rig::new();
    let (program, truth) = (rig.folder.path().join("program"), truth(&rig));
    let build = |word: &str| {
        let text = format!("#!/bin/sh\necho {word} >> {}; exec sleep 1000\n", truth.display());
        let fresh = program.with_extension("fresh");
        fs::write(&fresh, text).expect("written");
        fs::set_permissions(&fresh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
        fs::rename(&fresh, &program).expect("in its place");
    };
    build("old");
    let command = vec![program.to_string_lossy().into()];
    let start =
        |attempt| Start { again: RestartDecision::Always, command: command.clone(), ..a_start("again", "c", attempt) };
    rig.start(start(0));
    let pid = rig.running("again", 0);
    let waiting = prepared_beside(&rig, pid);
    build("new");
    kill(pid as i32);
    rig.ended("again", 0);
    rig.start(start(1));
    assert_ne!(rig.running("again", 1), waiting as u32);
    eventually("the new one", || lives_noted(&rig) == ["old", "new"]);
}

#[test]
fn one_that_waits_beside_what_is_stopped_goes_with_it() {
    let mut rig = Rig::new();
    rig.start(noting(&rig, 0, "first"));
    let pid = rig.running("again", 0);
    let waiting = prepared_beside(&rig, pid);
    rig.stop("again", "c", 0, 0);
    rig.ended("again", 0);
    eventually("it has ended", || !lives(waiting as u32));
    assert_eq!(lives_noted(&rig), ["first"]);
}
