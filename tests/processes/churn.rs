//! Many pods, one batch after the other, which leave nothing behind. `KLOOP_LIVES` sets the number.

use super::pod;
use crate::cluster::{Cluster, signal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Number of pods per batch.
const BATCH: usize = 50;

/// Counts of everything that a pod could leave behind.
#[derive(Debug, PartialEq)]
struct Left {
    processes: usize,
    descriptors: usize,
    folders: usize,
    files: Vec<String>,
    mounts: usize,
    objects: BTreeMap<String, usize>,
}

impl Left {
    fn of(cluster: &Cluster, plane: u32) -> Left {
        let count = |path: String| fs::read_dir(path).map_or(0, Iterator::count);
        let home = cluster.home();
        let mut files: Vec<String> = fs::read_dir(&home)
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let list = cluster.ok("get pods,configmaps,secrets,endpointslices,leases,persistentvolumes -A -o json");
        let list: serde_json::Value = serde_json::from_str(&list).expect("a list");
        let mut objects = BTreeMap::new();
        for object in list["items"].as_array().expect("items") {
            *objects.entry(object["kind"].to_string()).or_default() += 1;
        }
        Left {
            processes: cluster.processes().len(),
            descriptors: count(format!("/proc/{plane}/fd")),
            folders: fs::read_dir(cluster.pods_folder()).map_or(0, Iterator::count),
            files,
            mounts: fs::read_to_string("/proc/self/mountinfo")
                .expect("mounts")
                .matches(home.to_str().expect("text"))
                .count(),
            objects,
        }
    }
}

/// Returns the number of control groups with the name of one of these pods.
fn groups(folder: &Path, uids: &[String], depth: usize) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let is_of_pod = |path: &Path| uids.iter().any(|uid| path.to_string_lossy().contains(uid));
    folders.map(|entry| usize::from(is_of_pod(&entry.path())) + groups(&entry.path(), uids, depth - 1)).sum()
}

/// Pods with features that could leave traces: a limit, their own files, a volume, a daemon, an exec command.
fn batch(number: usize) -> String {
    let script = "(setsid sleep 1000 &) ; echo hello; exit 0";
    let one = |at| {
        let manifest = pod(&format!("p{number}-{at}"), "Never", 1, script);
        let mut manifest: Value = serde_yaml::from_str(&manifest).expect("a pod");
        manifest["metadata"]["labels"]["batch"] = "b".into();
        let container = &mut manifest["spec"]["containers"][0];
        container["resources"] = json!({"limits": {"memory": "64Mi"}});
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/kloop-churn"}]);
        manifest["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        manifest.to_string()
    };
    (0..BATCH).map(one).collect::<Vec<_>>().join("\n---\n")
}

/// Runs one batch from apply to deletion; returns its uids.
fn live(cluster: &Cluster, number: usize) -> Vec<String> {
    cluster.apply(&batch(number));
    cluster.until("all have succeeded", || {
        let phases = cluster.read("pods -l batch=b", "{.items[*].status.phase}");
        phases.split(' ').filter(|phase| *phase == "Succeeded").count() == BATCH
    });
    let uids = cluster.read("pods -l batch=b", "{.items[*].metadata.uid}");
    cluster.ok("delete pods -l batch=b");
    uids.split(' ').map(str::to_owned).collect()
}

#[test]
fn deleted_pods_leave_nothing_behind() {
    let wanted = std::env::var("KLOOP_LIVES").map_or(4 * BATCH, |text| text.parse().expect("a number"));
    let cluster = Cluster::new();
    let plane = cluster.watch();
    let mut uids = live(&cluster, 0);
    cluster.nothing_is_left();
    let before = Left::of(&cluster, plane.pid());
    for number in 1..=wanted.div_ceil(BATCH) {
        uids.extend(live(&cluster, number));
    }
    cluster.wait_for(&format!("nothing is left beyond {before:?}"), || {
        let after = Left::of(&cluster, plane.pid());
        (after == before).then_some(()).ok_or_else(|| eprintln!("{after:?}")).ok()
    });
    assert_eq!(groups(Path::new("/sys/fs/cgroup"), &uids, 8), 0, "control groups are left");
}

#[test]
fn suspended_cluster_continues() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.apply(&super::deployment("web", 3, 1000));
    let pods = cluster.ready_pods("app=web", 3);
    let everybody: Vec<u32> = cluster.processes().into_iter().chain([plane.pid()]).collect();
    everybody.iter().for_each(|pid| signal(*pid, "STOP"));
    // Requests during the suspension are kept.
    cluster.ok("scale deploy/web --replicas=4");
    everybody.iter().for_each(|pid| signal(*pid, "CONT"));
    let after = cluster.ready_pods("app=web", 4);
    assert!(pods.iter().all(|pod| after.contains(pod)));
    assert_eq!(cluster.read("pods -l app=web", "{.items[*].status.containerStatuses[*].restartCount}"), "0 0 0 0");
}
