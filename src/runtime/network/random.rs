//! Random numbers, for choosing endpoints and for marking a table as changed.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    /// Source of randomness, seeded once by the system, and the number of uses.
    static CHANCE: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
}

/// Returns a random number for load balancing; not for secrets.
pub fn random_number() -> u64 {
    CHANCE.with(|(chance, count)| {
        count.set(count.get().wrapping_add(1));
        chance.hash_one(count.get())
    })
}
