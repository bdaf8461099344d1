//! Locks that stay usable after a panic.
//!
//! Knows: [`IgnorePoison`]. A thread that panics while it holds a lock poisons it. The values behind kloop's locks are consistent after
//! every statement (counts, caches, queues), so the next thread uses them instead of panicking as well.

use std::sync::{LockResult, PoisonError};

/// Takes the guard of a lock, whether or not a thread panicked while it held the lock.
pub trait IgnorePoison {
    /// The guard that the lock gives.
    type Guard;

    /// Returns the guard: `mutex.lock().ignore_poison()`.
    fn ignore_poison(self) -> Self::Guard;
}

impl<Guard> IgnorePoison for LockResult<Guard> {
    type Guard = Guard;

    fn ignore_poison(self) -> Guard {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::IgnorePoison;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    #[test]
    fn lock_of_a_thread_that_panicked_is_taken() {
        let mutex = Mutex::new(1);
        let held = AssertUnwindSafe(|| {
            let _guard = mutex.lock();
            panic!("a panic that the test provokes");
        });
        assert!(catch_unwind(held).is_err());
        assert!(mutex.is_poisoned());
        assert_eq!(*mutex.lock().ignore_poison(), 1);
    }
}
