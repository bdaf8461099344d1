//! Resource usage and CPU throttling of containers: cumulative samples, and rates between two samples.

use crate::object::Time;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Cumulative usage at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSample {
    /// CPU time so far, in nanoseconds.
    pub cpu_nanos: u64,
    /// Bytes of memory at the moment.
    pub memory: u64,
    /// Swapped-out bytes of the memory.
    #[serde(default)]
    pub swap: u64,
    /// Cumulative throttling.
    #[serde(default)]
    pub throttling: Throttling,
}

/// CPU throttling, counted in the kernel's periods of 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Number of periods in which the container ran.
    pub periods: u64,
    /// Number of periods in which the container used up its CPU quota.
    pub throttled: u64,
    /// Total time for which the container's threads were throttled, in nanoseconds.
    pub nanos: u64,
}

/// Share of throttled periods from which on kloop reports throttling, as the alert CPUThrottlingHigh of kubernetes-mixin does.
const HEAVY_PERCENT: u64 = 25;
/// Fewer periods say nothing.
const ENOUGH_PERIODS: u64 = 5;

impl Throttling {
    /// Difference from an earlier count; a smaller counter means that it was reset.
    pub fn difference_from(self, earlier: Throttling) -> Throttling {
        let difference = || {
            Some(Throttling {
                periods: self.periods.checked_sub(earlier.periods)?,
                throttled: self.throttled.checked_sub(earlier.throttled)?,
                nanos: self.nanos.checked_sub(earlier.nanos)?,
            })
        };
        difference().unwrap_or(self)
    }

    /// The share of periods in which it was held back.
    pub fn percent(self) -> u64 {
        self.throttled * 100 / self.periods.max(1)
    }

    /// Whether throttling is heavy enough to explain a slow program.
    pub fn is_heavy(self) -> bool {
        self.periods >= ENOUGH_PERIODS && self.percent() >= HEAVY_PERCENT
    }
}

impl fmt::Display for Throttling {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let seconds = self.nanos as f64 / 1e9;
        write!(out, "in {}% of {} periods, {seconds:.1}s in all", self.percent(), self.periods)
    }
}

impl UsageSample {
    /// Returns this sample, with a CPU counter no lower than that of an earlier sample of the same attempt. `/proc` forgets the time of
    /// ended processes that no parent waited for, and rounds down.
    pub fn not_before(self, earlier: UsageSample) -> UsageSample {
        UsageSample { cpu_nanos: self.cpu_nanos.max(earlier.cpu_nanos), ..self }
    }
}

/// Usage rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes that are swapped out.
    pub swap: i64,
}

impl Usage {
    /// Computes the usage between two samples. A counter that went back belongs to a new process: returns `None`.
    pub fn from_samples(earlier: (Time, UsageSample), later: (Time, UsageSample)) -> Option<Usage> {
        let nanos = later.0.duration_since(earlier.0).as_nanos();
        let used = later.1.cpu_nanos.checked_sub(earlier.1.cpu_nanos)?;
        if nanos <= 0 {
            return None;
        }
        // Rounded up, as metrics are served: a process that does any work uses at least a thousandth.
        let cpu_milli = (i128::from(used) * 1000 + nanos - 1) / nanos;
        Some(Usage { cpu_milli: cpu_milli as i64, memory: later.1.memory as i64, swap: later.1.swap as i64 })
    }

    /// Adds another's.
    pub fn add(&mut self, other: Usage) {
        self.cpu_milli += other.cpu_milli;
        self.memory += other.memory;
        self.swap += other.swap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_samples_make_a_rate() {
        let at = |second| Time::from_second(second).unwrap();
        let sample = |cpu_nanos, memory| UsageSample { cpu_nanos, memory, ..UsageSample::default() };
        let table = [
            ((0, sample(0, 1)), (10, sample(5_000_000_000, 7)), Some(Usage { cpu_milli: 500, memory: 7, swap: 0 })),
            ((0, sample(0, 1)), (1, sample(1, 7)), Some(Usage { cpu_milli: 1, memory: 7, swap: 0 })),
            ((0, sample(9, 1)), (1, sample(3, 7)), None),
            ((5, sample(0, 1)), (5, sample(3, 7)), None),
        ];
        for (earlier, later, expected) in table {
            let found = Usage::from_samples((at(earlier.0), earlier.1), (at(later.0), later.1));
            assert_eq!(found, expected, "{earlier:?} {later:?}");
        }
    }

    #[test]
    fn counter_of_an_attempt_does_not_go_back() {
        let sample = |cpu_nanos, memory| UsageSample { cpu_nanos, memory, ..UsageSample::default() };
        assert_eq!(sample(3, 7).not_before(sample(9, 1)), sample(9, 7));
        assert_eq!(sample(12, 7).not_before(sample(9, 1)), sample(12, 7));
    }

    #[test]
    fn throttling_is_heavy_when_a_quarter_of_the_periods_are_cut() {
        let count = |periods, throttled| Throttling { periods, throttled, nanos: throttled * 50_000_000 };
        for (periods, throttled, heavy) in
            [(0, 0, false), (4, 4, false), (5, 5, true), (100, 24, false), (100, 25, true)]
        {
            assert_eq!(count(periods, throttled).is_heavy(), heavy, "{throttled} of {periods}");
        }
        assert_eq!(count(100, 90).difference_from(count(90, 85)), count(10, 5));
        assert_eq!(count(3, 1).difference_from(count(90, 85)), count(3, 1), "it has begun anew");
        assert_eq!(count(120, 90).to_string(), "in 75% of 120 periods, 4.5s in all");
    }
}
