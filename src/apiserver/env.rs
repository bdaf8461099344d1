//! Time, randomness and free networks: from the system, or in simulations from a clock that is set and a seed.

use crate::object::Time;
use crate::object::random::splitmix64;
use crate::runtime;
use std::cell::RefCell;

/// Source of time and randomness.
#[derive(Clone, Debug)]
pub enum Env {
    /// The system's clock and its randomness.
    System,
    /// A clock that is set, and numbers that follow from a seed.
    Simulated {
        /// The time.
        now: Time,
        /// State of the random sequence.
        seed: u64,
    },
}

impl Env {
    /// The time.
    pub fn now(&self) -> Time {
        match self {
            Env::System => Time::now(),
            Env::Simulated { now, .. } => *now,
        }
    }

    /// Whether no other cluster of this machine has the network 127.N.0.0/16. In a simulation every network is free.
    pub fn is_network_free(&self, number: u8) -> bool {
        match self {
            Env::System => runtime::is_network_free(number),
            Env::Simulated { .. } => true,
        }
    }

    /// Sets the simulated clock; the system's stays as it is.
    pub fn set(&mut self, to: Time) {
        if let Env::Simulated { now, .. } = self {
            *now = to;
        }
    }

    /// Returns a random number. Callers retry when a name that they made from it is taken.
    pub fn random(&mut self) -> u64 {
        match self {
            Env::System => system_random(),
            Env::Simulated { seed, .. } => splitmix64(seed),
        }
    }
}

/// Returns a random number of the system. Numbers are fetched in blocks, because each plan and each object takes some.
fn system_random() -> u64 {
    thread_local! {
        static STORE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }
    STORE.with_borrow_mut(|store| {
        if store.is_empty() {
            let mut bytes = [0; 512];
            if getrandom::fill(&mut bytes).is_ok() {
                store.extend(bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_ne_bytes(*chunk)));
            }
        }
        store.pop().unwrap_or_else(|| Time::now().as_nanosecond() as u64)
    })
}
