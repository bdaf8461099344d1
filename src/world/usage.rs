//! What containers use: cumulative samples, and the rates that two of them make.

use crate::object::Time;
use serde::{Deserialize, Serialize};

/// What was used up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// CPU time so far, in nanoseconds.
    pub cpu_nanos: u64,
    /// Bytes of memory at the moment.
    pub memory: u64,
}

/// What something uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Bytes of memory.
    pub memory: i64,
}

impl Usage {
    /// What was used between two samples. A counter that has gone back belongs to somebody new: nothing is known of it yet.
    pub fn between(earlier: (Time, Sample), later: (Time, Sample)) -> Option<Usage> {
        let nanos = later.0.duration_since(earlier.0).as_nanos();
        let used = later.1.cpu_nanos.checked_sub(earlier.1.cpu_nanos)?;
        if nanos <= 0 {
            return None;
        }
        // Rounded up, as metrics are served: what works at all uses a thousandth.
        let cpu_milli = (i128::from(used) * 1000 + nanos - 1) / nanos;
        Some(Usage { cpu_milli: cpu_milli as i64, memory: later.1.memory as i64 })
    }

    /// Adds another's.
    pub fn add(&mut self, other: Usage) {
        self.cpu_milli += other.cpu_milli;
        self.memory += other.memory;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_samples_make_a_rate() {
        let at = |second| Time::from_second(second).unwrap();
        let sample = |cpu_nanos, memory| Sample { cpu_nanos, memory };
        let table = [
            ((0, sample(0, 1)), (10, sample(5_000_000_000, 7)), Some(Usage { cpu_milli: 500, memory: 7 })),
            ((0, sample(0, 1)), (1, sample(1, 7)), Some(Usage { cpu_milli: 1, memory: 7 })),
            ((0, sample(9, 1)), (1, sample(3, 7)), None),
            ((5, sample(0, 1)), (5, sample(3, 7)), None),
        ];
        for (earlier, later, expected) in table {
            let found = Usage::between((at(earlier.0), earlier.1), (at(later.0), later.1));
            assert_eq!(found, expected, "{earlier:?} {later:?}");
        }
    }
}
