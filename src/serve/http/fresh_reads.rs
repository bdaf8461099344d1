//! Fresh reads of a state that several machines share: requests that arrive at the same time ask etcd once.
//!
//! Never: gives a request an answer to a read that began before the request arrived. Start reading at [`FreshReads::wait`].

use crate::object::IgnorePoison;
use crate::store::{Store, StoreResult};
use std::sync::{Condvar, Mutex, MutexGuard};

/// The questions of a server to etcd, one at a time.
#[derive(Default)]
pub struct FreshReads {
    progress: Mutex<FollowProgress>,
    changed: Condvar,
}

#[derive(Default)]
struct FollowProgress {
    /// Number of questions that were begun.
    begun: u64,
    /// Number of the last question that was answered.
    answered: u64,
    is_running: bool,
}

impl FreshReads {
    /// Brings the file of a store to the head of its log as of this call, or waits until another request has done so.
    pub fn wait(&self, store: &mut Store) -> StoreResult<()> {
        if !store.is_replica() {
            return Ok(());
        }
        let mut progress = self.lock();
        // A read in progress may have begun before the last write.
        let wanted = progress.begun + 1;
        while progress.answered < wanted {
            if progress.is_running {
                progress = self.changed.wait(progress).ignore_poison();
                continue;
            }
            progress.is_running = true;
            progress.begun += 1;
            let number = progress.begun;
            drop(progress);
            let followed = store.follow();
            progress = self.lock();
            progress.is_running = false;
            if followed.is_ok() {
                progress.answered = number;
            }
            self.changed.notify_all();
            followed?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, FollowProgress> {
        self.progress.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_no_replica_is_always_fresh() {
        let reads = FreshReads::default();
        reads.wait(&mut Store::in_memory().unwrap()).unwrap();
        assert_eq!(reads.lock().begun, 0);
    }
}
