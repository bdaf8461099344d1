//! The workloads' own records of their processes: an oracle that is independent of kloop.
//!
//! Each pod has one file, named by its uid, that kloop does not write. A process locks it while it runs and appends a line at its start and
//! at an end of its own. A second running process of the same container finds the lock taken and records that.

use crate::cluster::{Cluster, is_alive};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The start of every workload. Descriptor 9 has the lock and is not inherited. The pid is that of its PID namespace, so the next process
/// may have it again; the start time makes it unique.
const OPENING: &str = r#"
exec 9>>"/truth/$POD"
flock -n 9 || echo "double $$" >&9
read -r stat < /proc/$$/stat; set -- $stat
echo "start $$ ${22}" >&9
"#;

/// The init container that has to run before every server: it appends its run to a file.
const BEFORE: &str = r#"echo "init $$" >> "/order/$POD""#;

/// The script of a server: counts into its log until SIGTERM.
pub fn server() -> String {
    format!(
        r#"{OPENING}
grep -q init "/order/$POD" || echo "early $$" >&9
trap 'echo "end $$ 0" >&9; exit 0' TERM
i=0
while :; do i=$((i+1)); echo "line $i"; sleep 0.1 9>&- & wait $!; done"#
    )
}

/// The script of a program that works for a moment and exits with this code.
pub fn once(code: u8) -> String {
    format!("{OPENING}\nsleep 0.02 9>&-\necho \"end $$ {code}\" >&9\nexit {code}")
}

/// A pod template's spec that runs this script.
pub fn spec(cluster: &Cluster, script: &str, restart: &str, round: usize) -> serde_json::Value {
    let container = |name: &str, script: &str| {
        // `$$` in a command of a pod means one dollar sign.
        let script = script.replace("$$", "$$$$");
        serde_json::json!({
            "name": name, "image": "busybox", "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "truth", "mountPath": "/truth"}, {"name": "order", "mountPath": "/order"}],
            "env": [
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                {"name": "ROUND", "value": round.to_string()},
            ],
        })
    };
    let before = if restart == "Always" { vec![container("before", BEFORE)] } else { Vec::new() };
    serde_json::json!({
        "restartPolicy": restart, "terminationGracePeriodSeconds": 5, "initContainers": before,
        "volumes": [
            {"name": "truth", "hostPath": {"path": folder(cluster)}},
            {"name": "order", "hostPath": {"path": cluster.home().join("order")}},
        ],
        "containers": [container("main", script)],
    })
}

/// Returns the number of runs of a pod's init container.
pub fn beginnings(cluster: &Cluster, uid: &str) -> usize {
    fs::read_to_string(cluster.home().join("order").join(uid)).map_or(0, |text| text.lines().count())
}

/// One process of a container, from its own record.
#[derive(Debug, Default)]
pub struct Life {
    /// Pid in its namespace.
    pub pid: u32,
    /// Start time in kernel ticks.
    pub born: u32,
    pub end: Option<i32>,
}

fn folder(cluster: &Cluster) -> PathBuf {
    cluster.home().join("truth")
}

/// Creates the folder for the files.
pub fn prepare(cluster: &Cluster) {
    fs::create_dir(folder(cluster)).expect("a folder");
    fs::create_dir(cluster.home().join("order")).expect("a folder");
}

/// Returns the processes of every pod by uid; panics if two of one container ran at once.
#[track_caller]
pub fn lives(cluster: &Cluster) -> BTreeMap<String, Vec<Life>> {
    let files = fs::read_dir(folder(cluster)).expect("the folder").map(|entry| entry.expect("an entry").path());
    files
        .map(|path| {
            let mut lives: Vec<Life> = Vec::new();
            let text = fs::read_to_string(&path).expect("a truth file");
            for line in text.lines() {
                let words: Vec<&str> = line.split(' ').collect();
                let number = |at: usize| words[at].parse::<u32>().expect("a number");
                match words[0] {
                    "start" => lives.push(Life { pid: number(1), born: number(2), end: None }),
                    "end" => lives.last_mut().expect("it began").end = Some(number(2) as i32),
                    "early" => panic!("a server began before its init container: {}", path.display()),
                    _ => panic!("two processes of one container ran at once: {}\n{text}", path.display()),
                }
            }
            (path.file_name().expect("a name").to_string_lossy().into_owned(), lives)
        })
        .collect()
}

/// Whether this process still runs.
pub fn still_lives(uid: &str, life: &Life) -> bool {
    let read = |pid: u32, file: &str| {
        String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default()).into_owned()
    };
    let is_it = |pid: &u32| {
        let status = read(*pid, "status");
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let stat = read(*pid, "stat");
        let born = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(19)).unwrap_or_default();
        numbers.split_whitespace().next_back() == Some(&*life.pid.to_string()) && born == life.born.to_string()
    };
    let everybody = fs::read_dir("/proc").expect("/proc").flatten();
    let mut pids = everybody.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.any(|pid| is_it(&pid) && is_alive(pid) && read(pid, "environ").contains(uid))
}
