//! A state on etcd compared with a state file: commits, writes of many clients, and a rollout of simulated pods.
//!
//! `cargo bench --bench shared_state -- etcd://HOST,HOST,HOST/PREFIX`. The prefix gets clusters of its own below it. Run it on a quiet
//! machine; members on the same machine share its disk and its processors.

use kloop::apiserver::authorization::cache::AccessCache;
use kloop::apiserver::create::create;
use kloop::apiserver::{Api, SharedWriter, WriteOptions};
use kloop::kinds;
use kloop::object::{Key, Object, Resource, Time};
use kloop::store::{OpenMode, Store, prepare_replica};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of clients that write at the same time.
const CLIENTS: usize = 16;
/// Duration of each measurement of a rate.
const SPAN: Duration = Duration::from_secs(3);
const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(30);

fn main() {
    let Some(address) = std::env::args().skip(1).find(|word| word.starts_with("etcd://")) else {
        println!("shared_state: name a state on etcd, as in -- etcd://HOST,HOST,HOST/PREFIX");
        return;
    };
    let folder = std::env::temp_dir().join(format!("kloop-bench-shared-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("its mode");
    for round in 1..=3 {
        for (what, place) in [("file", None), ("etcd", Some(address.as_str()))] {
            let state = |name: &str| match place {
                None => folder.join(format!("{name}-{round}.db")),
                Some(address) => {
                    let prefix = format!("{address}-{}-{name}-{round}", std::process::id());
                    prepare_replica(&prefix).expect("an address")
                }
            };
            println!("{what}: {:.2} ms for a commit of one object", commits(&state("commits")));
            println!("{what}: {:.0} writes/s of {CLIENTS} clients", writes(&state("writes")));
            for pods in [100, 1000] {
                println!(
                    "{what}: {:.2} s until {pods} simulated pods run",
                    rollout(&state(&format!("pods{pods}")), pods)
                );
            }
        }
    }
    drop(std::fs::remove_dir_all(&folder));
}

/// Milliseconds for a commit, one after the other.
fn commits(state: &Path) -> f64 {
    let mut store = Store::open(state, OpenMode::Create).expect("a store");
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < SPAN {
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).expect("a transaction");
        let key = Key::new(Resource("configmaps"), "default", &format!("c{count}"));
        txn.put(&key, "u", |revision| format!("{{\"r\": {revision}}}"), "bench", Time::now()).expect("written");
        txn.commit().expect("committed");
        count += 1;
    }
    begun.elapsed().as_secs_f64() * 1000.0 / f64::from(count)
}

/// Writes a second of clients of one process.
fn writes(state: &Path) -> f64 {
    let api = Api::open(state, OpenMode::Create, "bench").expect("a cluster");
    let writer = Arc::new(SharedWriter::new(state, "bench", api.kinds(), &AccessCache::default()));
    let kind = kinds::by_name("configmaps").expect("a kind");
    let begun = Instant::now();
    let written: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let writer = &writer;
                scope.spawn(move || {
                    let mut api = Api::open(state, OpenMode::Existing, "bench").expect("a cluster").with_writer(writer);
                    let mut count = 0;
                    while begun.elapsed() < SPAN {
                        let name = format!("c{client}-{count}");
                        let map = Object(json!({"apiVersion": "v1", "kind": "ConfigMap",
                            "metadata": {"name": name, "namespace": "default"}, "data": {"a": "b"}}));
                        let options = WriteOptions::default();
                        api.write(false, |txn| create(txn, kind, &map, &options)).expect("created");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("it ends")).sum()
    });
    written as f64 / begun.elapsed().as_secs_f64()
}

/// Seconds until a Deployment's simulated pods run.
fn rollout(state: &Path, pods: usize) -> f64 {
    let kloop = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kloop"));
        command.arg("--state").arg(state).args(args).stdin(Stdio::null()).stdout(Stdio::null());
        assert!(command.status().expect("kloop runs").success(), "{args:?}");
    };
    for node in 0..10 {
        kloop(&["node", "add", &format!("n{node}"), "--simulated", "--cpu=64", "--memory=256Gi"]);
    }
    let replicas = format!("--replicas={pods}");
    kloop(&["create", "deployment", "web", "--image=busybox", &replicas]);
    let begun = Instant::now();
    kloop(&["reconcile", "--no-local-node", "-q", "--timeout=300s"]);
    begun.elapsed().as_secs_f64()
}
