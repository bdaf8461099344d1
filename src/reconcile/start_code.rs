//! Releases memory that only the start of a control plane needs.
//!
//! After a hundred pods have started, two thirds of a control plane's memory are pages of its own program, and half of them are not needed
//! again. The allocator keeps a third of the remaining memory for later allocations. Both are released once, when the machine has been idle
//! for a while. The kernel maps a page again if its code runs after all.
//!
//! Never: releases pages a second time. By then the code of restarts is mapped again, and restarts should not wait for it.

use crate::runtime::{allocator, release_program_pages};
use std::time::{Duration, Instant};

/// Time without work for the machine after which the start is over.
const QUIET_TIME: Duration = Duration::from_secs(5);

/// State of the start.
pub(super) enum StartCode {
    /// The start is not over; the time of the last work for the machine.
    Runs(Instant),
    /// The start is over, and its pages were released.
    Released,
}

impl StartCode {
    /// The start begins.
    pub(super) fn new() -> StartCode {
        StartCode::Runs(Instant::now())
    }

    /// Notes that there was work for the machine.
    pub(super) fn note_work(&mut self, now: Instant) {
        if let StartCode::Runs(last) = self {
            *last = now;
        }
    }

    /// Gives the pages back if the start is over.
    pub(super) fn release_when_quiet(&mut self, now: Instant) {
        if let StartCode::Runs(last) = self
            && now.saturating_duration_since(*last) >= QUIET_TIME
        {
            release_program_pages();
            allocator::release_unused();
            *self = StartCode::Released;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_back_once_the_machine_has_had_no_work_for_a_while() {
        let begin = Instant::now();
        let mut start = StartCode::Runs(begin);
        start.release_when_quiet(begin + QUIET_TIME / 2);
        start.note_work(begin + QUIET_TIME / 2);
        start.release_when_quiet(begin + QUIET_TIME);
        assert!(matches!(start, StartCode::Runs(_)), "work came in between");
        start.release_when_quiet(begin + QUIET_TIME * 3 / 2);
        start.note_work(begin + QUIET_TIME * 2);
        assert!(matches!(start, StartCode::Released));
    }
}
