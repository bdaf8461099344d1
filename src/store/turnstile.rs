//! Fair write queue: two lock files ahead of SQLite's own lock.
//!
//! A writer locks `queue`, then waits for the lock of `write`, and then releases `queue`. So a process that writes
//! repeatedly queues behind earlier waiters, which SQLite's own lock does not guarantee.
//!
//! Waiting means polling with short sleeps, because `flock` has no timeout without signals. The head of the queue polls
//! most often; the others poll more often the longer they have waited.

use super::state_path::StorePath;
use super::{StoreError, StoreResult};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Polling interval of the head of the queue.
const HEAD_STEP: Duration = Duration::from_micros(50);
/// First polling interval of the others.
const TAIL_STEP: Duration = Duration::from_millis(1);
/// After each such time, the others poll twice, three times ... as often as at the start.
const AGEING_INTERVAL: Duration = Duration::from_millis(20);

/// The two lock files, open.
pub(super) struct Turnstile {
    queue: File,
    write: File,
    path: PathBuf,
}

/// The right to write; released on drop.
pub(super) struct WriteTurn(Arc<Turnstile>);

impl Turnstile {
    /// Opens the lock files, and creates missing ones.
    pub fn open(place: &StorePath) -> StoreResult<Turnstile> {
        let (queue, write) = (place.open_sibling(".queue")?, place.open_sibling(".write")?);
        Ok(Turnstile { queue, write, path: place.neighbour(".write") })
    }

    /// Waits for the right to write, at most for `patience`.
    pub fn acquire(self: &Arc<Turnstile>, patience: Duration) -> StoreResult<WriteTurn> {
        let start = Instant::now();
        self.wait(&self.queue, start, patience, |waited| {
            TAIL_STEP / (1 + waited.as_micros() / AGEING_INTERVAL.as_micros()).min(10) as u32
        })?;
        let turn = self.wait(&self.write, start, patience, |_| HEAD_STEP);
        release(&self.queue);
        turn?;
        // The pid is only for messages, so a failure to write it must not stop a writer.
        let _ = self.write.write_all_at(format!("{:<10}\n", std::process::id()).as_bytes(), 0);
        Ok(WriteTurn(self.clone()))
    }

    fn wait(
        &self,
        file: &File,
        start: Instant,
        patience: Duration,
        step: impl Fn(Duration) -> Duration,
    ) -> StoreResult<()> {
        loop {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(Errno::WOULDBLOCK) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(StoreError::io(&self.path, error)),
            }
            let waited = start.elapsed();
            if waited >= patience {
                return Err(StoreError::Busy { holder_pid: self.holder(), waited });
            }
            std::thread::sleep(step(waited).min(patience - waited));
        }
    }

    /// Returns the last written pid, that of the holder unless the lock is just passing to another process.
    fn holder(&self) -> Option<u32> {
        let mut text = [0; 10];
        self.write.read_exact_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text).ok()?.trim().parse().ok()
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        release(&self.0.write);
    }
}

fn release(file: &File) {
    // Unlocks explicitly, since a child process between fork and exec still has the descriptor.
    let _ = flock(file, FlockOperation::Unlock);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn turnstile(dir: &tempfile::TempDir) -> Arc<Turnstile> {
        Arc::new(Turnstile::open(&StorePath::from_path(&dir.path().join("state.db")).unwrap()).unwrap())
    }

    #[test]
    fn timeout_error_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let turn = turnstile(&dir).acquire(Duration::ZERO).unwrap();
        let second = turnstile(&dir).acquire(Duration::from_millis(3)).err().unwrap();
        let StoreError::Busy { holder_pid, waited } = second else { panic!("{second}") };
        assert_eq!(holder_pid, Some(std::process::id()));
        assert!(waited >= Duration::from_millis(3));
        drop(turn);
        turnstile(&dir).acquire(Duration::ZERO).unwrap();
    }

    #[test]
    fn waiter_with_the_turn_is_not_reported_as_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let mut store = crate::store::Store::open(&path, crate::store::OpenMode::Create).unwrap();
        let writer = rusqlite::Connection::open(&path).unwrap();
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        // Simulates another process that has the turn and waits for the writer.
        let turn = turnstile(&dir).acquire(Duration::ZERO).unwrap();
        turn.0.write.write_all_at(format!("{:<10}\n", u32::MAX).as_bytes(), 0).unwrap();
        let error = store.write(Duration::from_millis(3)).err().unwrap();
        let StoreError::Busy { holder_pid, .. } = error else { panic!("{error}") };
        assert_eq!(holder_pid, Some(std::process::id()));
    }

    #[test]
    fn repeated_writer_queues_behind_a_waiting_one() {
        let dir = tempfile::tempdir().unwrap();
        let (repeated, waiting, observer) = (turnstile(&dir), turnstile(&dir), turnstile(&dir));
        let (order, patience) = (Mutex::new(Vec::new()), Duration::from_secs(60));
        let first = repeated.acquire(patience).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _turn = waiting.acquire(patience).unwrap();
                order.lock().unwrap().push("waiting");
            });
            // The waiting writer is the head of the queue once it holds the queue's lock.
            let start = Instant::now();
            while flock(&observer.queue, FlockOperation::NonBlockingLockExclusive).is_ok() {
                release(&observer.queue);
                assert!(start.elapsed() < patience, "nobody queues");
                std::thread::yield_now();
            }
            drop(first);
            let _turn = repeated.acquire(patience).unwrap();
            order.lock().unwrap().push("repeated");
        });
        assert_eq!(order.into_inner().unwrap(), ["waiting", "repeated"]);
    }
}
