//! Several writing processes that are killed.
//!
//! The children are this test binary again: [`child`] does nothing without its environment variables.

use super::*;
use kloop::store::{StoreError, StoreRead};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// `who:how many` for a child; it writes to the store in [`FILE`].
pub const ROLE: &str = "KLOOP_TEST_STORE_CHILD";
pub const FILE: &str = "KLOOP_TEST_STORE_FILE";

/// Work of a child: increments the shared count, writes its own object, and acknowledges the commit.
#[test]
fn child() {
    let (Ok(role), Some(path)) = (std::env::var(ROLE), std::env::var_os(FILE)) else { return };
    let (who, rounds) = role.split_once(':').unwrap();
    let mut store = Store::open(Path::new(&path), OpenMode::Create).unwrap();
    let mut out = std::io::stdout();
    for round in 0..rounds.parse().unwrap() {
        let mut txn = store.write(WAIT_TIMEOUT).unwrap();
        let count = count(&txn) + 1;
        txn.put(&pod("shared"), "uid-shared", move |_| count.to_string(), who, at(1)).unwrap();
        let own = pod(&format!("{who}-{round}"));
        txn.put(&own, "uid", body(who), who, at(1)).unwrap();
        let revision = txn.commit().unwrap();
        writeln!(out, "ack {revision} {count} {}", own.name).unwrap();
    }
}

fn count(found: &impl StoreRead) -> u64 {
    found.get(&pod("shared")).unwrap().map_or(0, |shared| shared.body.parse().unwrap())
}

struct Writer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Kills the writers of a failing test.
impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Ack {
    revision: u64,
    count: u64,
    name: String,
}

impl Writer {
    fn start(path: &Path, who: &str, rounds: usize) -> Writer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["store::crash::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{who}:{rounds}"))
            .env(FILE, path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Writer { child, lines }
    }

    /// Returns the next acknowledgement; `None` when the child has finished or was killed.
    fn ack(&mut self) -> Option<Ack> {
        loop {
            let line = self.lines.next()?.ok()?;
            // Output of the test harness may precede it on the line.
            let Some((_, words)) = line.split_once("ack ") else { continue };
            let words: Vec<_> = words.split(' ').collect();
            // A line that was cut by the kill does not count.
            let [revision, count, name] = words[..] else { continue };
            return Some(Ack { revision: revision.parse().ok()?, count: count.parse().ok()?, name: name.into() });
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_writers_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/state.db");
    let mut acks = Vec::new();
    for round in 0..15 {
        let mut writers: Vec<_> =
            (0..3).map(|writer| Writer::start(&path, &format!("r{round}w{writer}"), 1_000_000)).collect();
        // The first writer is killed during its work, the others while they compete for the lock.
        for (place, writer) in writers.iter_mut().enumerate() {
            for _ in 0..(round * 5 + place) % 13 {
                acks.push(writer.ack().unwrap());
            }
            writer.child.kill().unwrap();
        }
        for writer in &mut writers {
            writer.child.wait().unwrap();
            while let Some(ack) = writer.ack() {
                acks.push(ack);
            }
        }
        let store = match Store::open(&path, OpenMode::Existing) {
            Ok(store) => store,
            Err(error) => {
                assert!(acks.is_empty(), "{error}");
                continue;
            }
        };
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
        let snapshot = store.read().unwrap();
        for ack in &acks {
            let own = snapshot.get(&pod(&ack.name)).unwrap();
            assert_eq!(own.map(|own| own.revision), Some(ack.revision), "{} was acknowledged", ack.name);
        }
    }
    let revisions: BTreeSet<_> = acks.iter().map(|ack| ack.revision).collect();
    assert_eq!(revisions.len(), acks.len(), "no revision was used twice");
    assert!(acks.len() > 100);
}

#[test]
fn no_update_is_lost_and_no_writer_starves() {
    let (dir, store) = scratch();
    let path = dir.path().join("state.db");
    let mut writers: Vec<_> = (0..4).map(|writer| Writer::start(&path, &format!("w{writer}"), 50)).collect();
    let mut counts = BTreeSet::new();
    for writer in &mut writers {
        let mut last = 0;
        for _ in 0..50 {
            let ack = writer.ack().expect("every writer finishes");
            assert!(ack.revision > last, "revisions rise");
            last = ack.revision;
            assert!(counts.insert(ack.count), "two writers saw the same count");
        }
        assert!(writer.child.wait().unwrap().success());
    }
    let snapshot = store.read().unwrap();
    assert_eq!(count(&snapshot), 200);
    assert_eq!(snapshot.revision().unwrap(), 400);
    drop(snapshot);
    assert!(store.check().unwrap().is_empty());
}

#[test]
fn concurrent_creators_open_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = &dir.path().join("new/folder/state.db");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            scope.spawn(move || {
                let mut store = Store::open(path, OpenMode::Create).unwrap();
                put(&mut store, &writer.to_string(), "mine");
            });
        }
    });
    let store = Store::open(path, OpenMode::Existing).unwrap();
    assert_eq!(store.read().unwrap().list_all().unwrap().len(), 8);
}

#[test]
fn stopped_writer_is_named_after_the_deadline() {
    let (_dir, mut store) = scratch();
    let mut other = Store::open(store.path(), OpenMode::Existing).unwrap();
    let txn = other.write(WAIT_TIMEOUT).unwrap();
    let busy = store.write(Duration::from_millis(5)).err().unwrap();
    let StoreError::Busy { holder_pid, .. } = busy else { panic!("{busy}") };
    assert_eq!(holder_pid, Some(std::process::id()));
    assert!(busy.to_string().contains(&std::process::id().to_string()));
    assert!(store.read().is_ok(), "readers do not wait");
    drop(txn);
    put(&mut store, "a", "one");
}

#[test]
fn foreign_writer_is_waited_for_too() {
    let (_dir, mut store) = scratch();
    let foreign = rusqlite::Connection::open(store.path()).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy = store.write(Duration::from_millis(5)).err().unwrap();
    assert!(matches!(busy, StoreError::Busy { holder_pid: Some(pid), .. } if pid == std::process::id()), "{busy}");
    foreign.execute_batch("ROLLBACK").unwrap();
    put(&mut store, "a", "one");
}
