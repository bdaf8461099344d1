//! The cost of pods on the machine itself: from effects to running processes, a restart, a shim's memory, a log's speed.
//!
//! `cargo bench --bench pods`, or only parts of it: `cargo bench --bench pods -- bursts restarts flood`.

use kloop::object::Time;
use kloop::runtime::image::Environment;
use kloop::runtime::testing::start_request;
use kloop::runtime::{Host, Machine};
use kloop::world::start::Start;
use kloop::world::volume::FilesystemView;
use kloop::world::{ContainerState, Effect, Report};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Maximum number of looks at the memory of shims, for it to settle.
const MAX_LOOKS: usize = 40;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| asked.is_empty() || asked.iter().any(|word| word == part);
    for view in [FilesystemView::Host, FilesystemView::Private] {
        for pods in [1, 100, 1000].into_iter().filter(|_| wants("bursts")) {
            burst(pods, &view);
        }
        if wants("restarts") {
            restarts(&view);
        }
    }
    if wants("flood") {
        flood(100);
        flood(1000);
    }
}

fn open(folder: &Path) -> (Machine, Receiver<Report>) {
    let (send, reports) = channel();
    let send = Mutex::new(send);
    let report = move |report| drop(send.lock().expect("not poisoned").send(report));
    let shim = Path::new(env!("CARGO_BIN_EXE_kloop"));
    (Machine::open_with(folder, 1, shim, Environment::inherited(), Box::new(report)).expect("opened"), reports)
}

fn start(uid: &str, attempt: u32, command: &[&str], view: &FilesystemView) -> Effect {
    let command = command.iter().map(|word| word.to_string()).collect();
    let mut start = Start { command, ..start_request(uid, "c", attempt) };
    start.files.view = view.clone();
    Effect::Start(Box::new(start))
}

fn wait(reports: &Receiver<Report>, mut wanted: usize, fits: impl Fn(&Report) -> bool) {
    while wanted > 0 {
        wanted -= usize::from(fits(&reports.recv_timeout(Duration::from_secs(60)).expect("a report")));
    }
}

fn runs(report: &Report) -> bool {
    matches!(report, Report::Container { state: ContainerState::Running { .. }, .. })
}

fn ended(report: &Report) -> bool {
    matches!(report, Report::Container { state: ContainerState::Ended(_), .. })
}

fn burst(pods: usize, view: &FilesystemView) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut machine, reports) = open(folder.path());
    let uids: Vec<String> = (0..pods).map(|number| format!("pod-{number}")).collect();
    let from = Instant::now();
    for uid in &uids {
        machine.carry_out(Time::now(), &start(uid, 0, &["sleep", "1000"], view));
    }
    let ordered = from.elapsed();
    wait(&reports, pods, runs);
    let running = from.elapsed();
    println!(
        "{pods} pods that see files as {view:?}: ordered {ordered:?}, all running {running:?}, {} a shim",
        settled_memory()
    );
    let from = Instant::now();
    for uid in &uids {
        machine.carry_out(Time::now(), &Effect::Remove { pod_uid: uid.as_str().into() });
    }
    wait(&reports, pods, |report| matches!(report, Report::Removed { .. }));
    println!("{pods} pods: all removed {:?}", from.elapsed());
}

/// Returns [`memory`] once it stays the same, since shims release pages after a start, or at last after [`MAX_LOOKS`].
fn settled_memory() -> String {
    let mut last = memory();
    for _ in 0..MAX_LOOKS {
        std::thread::sleep(Duration::from_millis(50));
        let now = memory();
        if now == last {
            break;
        }
        last = now;
    }
    last
}

/// Mean Pss and private memory of the shims of this process.
fn memory() -> String {
    let zygotes = kloop::runtime::process::children(std::process::id() as i32);
    let shims: Vec<i32> = zygotes.into_iter().flat_map(kloop::runtime::process::children).collect();
    let (mut pss, mut private) = (0, 0);
    for shim in &shims {
        let rollup = std::fs::read_to_string(format!("/proc/{shim}/smaps_rollup")).unwrap_or_default();
        let sum = |name: &str| -> usize {
            let lines = rollup.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok()).sum()
        };
        pss += sum("Pss:");
        private += sum("Private_Dirty:");
    }
    let shims = shims.len().max(1);
    format!("Pss {} kB, private dirty {} kB", pss / shims, private / shims)
}

fn restarts(view: &FilesystemView) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut machine, reports) = open(folder.path());
    machine.carry_out(Time::now(), &start("restart", 0, &["true"], view));
    wait(&reports, 1, ended);
    let mut times = Vec::new();
    for attempt in 1..200 {
        let from = Instant::now();
        machine.carry_out(Time::now(), &start("restart", attempt, &["true"], view));
        wait(&reports, 1, ended);
        times.push(from.elapsed());
    }
    times.sort();
    println!(
        "start to end of /bin/true with {view:?}: median {:?}, worst {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    machine.carry_out(Time::now(), &start("killed", 0, &["sleep", "1000"], view));
    let mut times = Vec::new();
    for attempt in 0..100 {
        let pid = loop {
            if let Report::Container { state: ContainerState::Running { pid, .. }, .. } =
                reports.recv().expect("a report")
            {
                break pid;
            }
        };
        std::thread::sleep(Duration::from_millis(2));
        let from = Instant::now();
        kloop::runtime::process::ProcessIdentity::from_pid(pid as i32).expect("it runs").kill();
        wait(&reports, 1, ended);
        times.push(from.elapsed());
        machine.carry_out(Time::now(), &start("killed", attempt + 1, &["sleep", "1000"], view));
    }
    times.sort();
    println!("kill to report with {view:?}: median {:?}, worst {:?}", times[times.len() / 2], times[times.len() - 1]);
    for uid in ["restart", "killed"] {
        machine.carry_out(Time::now(), &Effect::Remove { pod_uid: uid.into() });
        wait(&reports, 1, |report| matches!(report, Report::Removed { .. }));
    }
}

fn flood(line: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut machine, reports) = open(folder.path());
    let text = format!("yes {} | head -c 2000000000", "x".repeat(line - 1));
    let from = Instant::now();
    machine.carry_out(Time::now(), &start("flood", 0, &["sh", "-c", &text], &FilesystemView::Host));
    wait(&reports, 1, ended);
    println!("log of {line}-byte lines: {:.0} MB/s", 2000.0 / from.elapsed().as_secs_f64());
    machine.carry_out(Time::now(), &Effect::Remove { pod_uid: "flood".into() });
    wait(&reports, 1, |report| matches!(report, Report::Removed { .. }));
}
