//! Values for tests.

use super::Time;

/// Returns the time at a second since 1970.
pub fn time_at(second: i64) -> Time {
    Time::from_second(second).unwrap()
}
