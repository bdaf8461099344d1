//! Time and chance: from the system, or in rehearsals from a clock that is set and a seed.

use crate::object::Time;

/// Where time and chance come from.
#[derive(Clone, Debug)]
pub enum Outside {
    /// The system's clock and its randomness.
    System,
    /// A clock that is set, and numbers that follow from a seed.
    Rehearsed {
        /// The time.
        now: Time,
        /// Where the sequence of numbers stands.
        seed: u64,
    },
}

impl Outside {
    /// The time.
    pub fn now(&self) -> Time {
        match self {
            Outside::System => Time::now(),
            Outside::Rehearsed { now, .. } => *now,
        }
    }

    /// Sets the pretended clock; the system's stays as it is.
    pub fn set(&mut self, to: Time) {
        if let Outside::Rehearsed { now, .. } = self {
            *now = to;
        }
    }

    /// Chance. Without the system's nothing safe can be named, so zero is never answered twice in practice: the caller
    /// retries on a taken name.
    pub fn random(&mut self) -> u64 {
        match self {
            Outside::System => getrandom::u64().unwrap_or_else(|_| Time::now().as_nanosecond() as u64),
            Outside::Rehearsed { seed, .. } => scatter(seed),
        }
    }
}

/// The next number of a sequence (splitmix64).
fn scatter(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
