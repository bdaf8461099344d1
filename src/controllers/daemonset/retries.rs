//! Backoff before an ended daemon pod is recreated.
//!
//! Kubernetes keeps the backoff in memory (`failedPodsBackoff`). kloop derives it from the pods, so that a new leader
//! knows it too.

use crate::controllers::revisions::REVISION_HASH;
use crate::object::Time;
use crate::object::time::Shift;
use crate::world::Row;
use jiff::SignedDuration;

/// Annotation on a pod: the number of consecutive pods of the same template that ended on its node before it.
pub const ANNOTATION: &str = "kloop.dev/daemon-pods-ended";
/// The first and the longest backoff, in seconds.
const FIRST_BACKOFF: i64 = 1;
const MAX_BACKOFF: i64 = 15 * 60;

/// Returns how many pods failed before this one; a new template starts at zero.
pub fn failed_before(pod: &Row, hash: &str) -> u32 {
    let same = pod.label(REVISION_HASH) == Some(hash) && pod.mentions(ANNOTATION);
    let written = || pod.body().annotation(ANNOTATION).and_then(|text| text.parse().ok());
    same.then(written).flatten().unwrap_or(0)
}

/// The earliest time to replace an ended pod: at once the first time, then 1, 2, 4 ... seconds after its creation.
pub fn replacement_time(pod: &Row, before: u32, now: Time) -> Time {
    let Some(doublings) = before.checked_sub(1) else { return now };
    let pause = FIRST_BACKOFF.checked_shl(doublings.min(30)).unwrap_or(MAX_BACKOFF).min(MAX_BACKOFF);
    pod.created.unwrap_or(now).later(SignedDuration::from_secs(pause))
}

/// Returns the failure count for the successor: zero after a run twice as long as the longest backoff.
pub fn failures_for_successor(pod: &Row, before: u32, now: Time) -> u32 {
    let age = pod.created.map_or(0, |created| now.duration_since(created).as_secs());
    if age > 2 * MAX_BACKOFF { 1 } else { before.saturating_add(1) }
}
