//! Deaths of control planes, zygotes and shims, and impostors.

use super::*;

#[test]
fn new_control_plane_adopts_running_pods() {
    let mut rig = Rig::new();
    rig.start(script("stays", 0, "exec sleep 1000"));
    rig.start(Start {
        container: "goes".into(),
        ..script("ends", 4, "while [ ! -e go ]; do sleep 0.01; done; exit 9")
    });
    let pid = rig.running("stays", 0);
    rig.start(script("stays", 0, "exec sleep 1000"));
    let scratch = rig.pod("ends").join("goes/scratch");
    eventually("the other one has its folder, too", || scratch.is_dir());
    rig.machine = None;
    fs::write(scratch.join("go"), "").expect("written");
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
    // The new control plane gets the reports.
    rig.stop("stays", "c", 0, 30);
    assert_eq!(rig.ended("stays", 0).code, 143);
}

#[test]
fn inventory_needs_no_shim_and_each_reports_later_what_has_changed_since() {
    let mut rig = Rig::new();
    rig.start(script("held", 0, "exec sleep 1000"));
    let pid = rig.running("held", 0);
    rig.machine = None;
    let shim = shim_of(pid);
    send(shim, Signal::STOP);
    send(pid as i32, Signal::KILL);
    // Otherwise a shim on a busy machine could answer before the death.
    eventually("its process has died", || !lives(pid));
    let inventory = rig.replace();
    let state = &inventory["held"].containers["c"].state;
    assert!(matches!(state, ContainerState::Running { pid: same, .. } if *same == pid), "{state:?}");
    send(shim, Signal::CONT);
    rig.adopted.take().expect("asked").wait();
    let has_ended = |report| matches!(report, Report::Container { state: ContainerState::Ended(_), .. });
    assert!(rig.reports.try_iter().any(has_ended), "whoever waits for the answers has the reports");
}

#[test]
fn shims_of_a_moved_state_folder_follow_its_leader() {
    let base = tempfile::tempdir().expect("a folder");
    let [state, moved] = ["state", "moved"].map(|name| base.path().join(name));
    let (mut machine, reports) = open(&state, 1);
    machine.carry_out(Time::now(), &Effect::Start(Box::new(script("tenant", 0, "exec sleep 60"))));
    let await_state = |reports: &Receiver<Report>, fits: &dyn Fn(&ContainerState) -> bool| loop {
        let report = reports.recv_timeout(WAIT_TIMEOUT).expect("a report");
        if matches!(&report, Report::Container { state, .. } if fits(state)) {
            return;
        }
    };
    await_state(&reports, &|state| matches!(state, ContainerState::Running { .. }));
    drop(machine);
    fs::rename(&state, &moved).expect("moved");
    fs::create_dir(&state).expect("another cluster's folder");
    fs::write(state.join("epoch"), "10").expect("written");
    let (mut machine, reports) = open(&moved, 2);
    machine.inventory();
    machine.connect_to_shims();
    let stop = Effect::Stop { pod_uid: "tenant".into(), container: "c".into(), attempt: 0, grace_seconds: 30 };
    machine.carry_out(Time::now(), &stop);
    await_state(&reports, &|state| matches!(state, ContainerState::Ended(end) if end.code == 143));
    machine.carry_out(Time::now(), &Effect::Remove { pod_uid: "tenant".into() });
    while !matches!(reports.recv_timeout(WAIT_TIMEOUT).expect("a report"), Report::Removed { .. }) {}
}

/// Helper of the next test: a control plane that starts a pod and is then killed.
#[test]
fn control_plane_to_be_killed() {
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
fn killed_control_plane_disturbs_no_process() {
    let mut rig = Rig::new();
    rig.machine = None;
    let test = std::env::current_exe().expect("this test");
    let mut leader = std::process::Command::new(test)
        .args(["--exact", "runtime::deaths::control_plane_to_be_killed"])
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
fn requests_of_an_old_leader_are_refused() {
    let mut rig = Rig::new();
    rig.start(script("led", 0, "exec sleep 1000"));
    let pid = rig.running("led", 0);
    let mut old = rig.machine.take().expect("open");
    rig.epoch += 1;
    let (mut machine, reports) = open(rig.folder.path(), rig.epoch);
    // No shim is greeted: each finds the new epoch in the state folder.
    machine.inventory();
    rig.machine = Some(machine);
    rig.reports = reports;
    let order = |machine: &mut Machine, effect: Effect| machine.carry_out(Time::now(), &effect);
    order(&mut old, Effect::Stop { pod_uid: "led".into(), container: "c".into(), attempt: 0, grace_seconds: 0 });
    order(&mut old, Effect::Start(Box::new(Start { container: "d".into(), ..script("led", 0, "exec sleep 1000") })));
    order(&mut old, Effect::Start(Box::new(script("fresh", 0, "exec sleep 1000"))));
    order(&mut old, Effect::Remove { pod_uid: "led".into() });
    drop(old);
    // Every shim prefers the new leader's requests.
    rig.start(Start { container: "e".into(), ..script("led", 0, "exec sleep 1000") });
    let names = || folder::read_record(&rig.pod("led")).map(|record| record.containers.into_keys().collect::<Vec<_>>());
    eventually("the new leader's container starts", || names().is_some_and(|names| names.contains(&"e".to_owned())));
    assert_eq!(names().expect("a record"), ["c", "e"]);
    assert!(lives(pid));
    assert_eq!(marked(rig.folder.path()).len(), 2, "no other process was started");
    assert!(
        Machine::open(rig.folder.path(), 1, Box::new(|_| ())).is_err(),
        "an old leader cannot open the folder again"
    );
}

/// Returns the shim of a pod.
fn shim_of(pid: u32) -> i32 {
    process::stat(pid as i32).expect("it runs").parent
}

#[test]
fn tree_of_a_dead_shim_is_killed_before_its_replacement() {
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
    // The same without a control plane.
    rig.machine = None;
    let shim = shim_of(second);
    kill(shim);
    eventually("the shim is gone", || !lives(shim as u32));
    let inventory = rig.replace();
    assert!(matches!(&inventory["shot"].containers["c"].state, ContainerState::Ended(end) if end.code == 137));
    assert!(matches!(&inventory["shot"].containers["c"].last, Some(end) if end.code == 137));
    assert!(!lives(second));
}

#[test]
fn dead_zygote_is_replaced_and_its_shims_continue() {
    let mut rig = Rig::new();
    for number in 0..4 {
        rig.start(script(&format!("first-{number}"), 0, "exec sleep 1000"));
    }
    let pids: Vec<u32> = (0..4).map(|_| rig.any_running()).collect();
    let zygote_of = |pid: &u32| process::stat(shim_of(*pid)).map(|shim| shim.parent);
    let zygotes: BTreeSet<i32> = pids.iter().filter_map(zygote_of).collect();
    for zygote in zygotes {
        let stat = process::stat(zygote).expect("it runs");
        assert_eq!(stat.parent, std::process::id() as i32, "the zygote is our child");
        assert!(stat.identity.kill());
    }
    for number in 0..4 {
        rig.start(script(&format!("second-{number}"), 0, "exec sleep 1000"));
    }
    (0..4).for_each(|_| assert!(lives(rig.any_running())));
    assert!(pids.iter().all(|pid| lives(*pid)));
}

/// Rewrites a record as if a shim of another protocol version had left it; its processes are real.
fn make_foreign(pod: &Path, version: Option<u32>) {
    let path = pod.join(folder::RECORD);
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
    record["version"] = version.into();
    record["epoch"] = "of another kind".into();
    fs::write(path, record.to_string()).expect("written");
}

#[test]
fn shim_of_another_version_is_ended_and_the_pod_restarts() {
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
        assert!(tree.iter().all(|stat| !stat.identity.lives()), "all its processes are dead");
        rig.start(script(&uid, 1, "exec sleep 1000"));
        assert!(lives(rig.running(&uid, 1)));
        rig.stop(&uid, "c", 1, 0);
        assert_eq!(rig.ended(&uid, 1).code, 137);
    }
}

/// Locks a pod's folder as a shim does and answers on its socket; the process has to be killed.
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
fn impostor_on_a_shims_socket_is_ended() {
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
fn shim_that_closes_connections_is_retried_then_ended() {
    let mut rig = Rig::new();
    let mut child = pretended_shim(&rig.pod("rude"), "hang up");
    rig.stop("rude", "c", 0, 0);
    assert_eq!(rig.ended("rude", 0).code, 137);
    child.wait().expect("it was killed");
    let calls = fs::read(rig.pod("rude").join("connections")).expect("read").len();
    assert!((2..20).contains(&calls), "{calls} calls");
}

#[test]
fn records_of_another_boot_or_a_reused_pid_kill_no_process() {
    let mut rig = Rig::new();
    let mut bystander = std::process::Command::new("sleep").arg("1000").spawn().expect("started");
    let identity = process::ProcessIdentity::from_pid(bystander.id() as i32).expect("it runs");
    rig.machine = None;
    let recycled = process::ProcessIdentity { start: identity.start - 1, ..identity };
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
    assert_eq!(rig.ended("rebooted", 3).code, 0, "the next attempt runs");
    assert!(identity.lives(), "the other process still runs");
    bystander.kill().expect("killed");
    bystander.wait().expect("reaped");
}

#[test]
fn attempt_that_may_have_run_unrecorded_is_not_repeated() {
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
