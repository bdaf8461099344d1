//! Pods that have ended and are made again: when, and what is remembered of it.
//!
//! Kubernetes keeps the pauses in memory (`failedPodsBackoff`); here they are read off the pods, so that a new leader knows them too.

use crate::controllers::revisions::REVISION_HASH;
use crate::object::Time;
use crate::object::time::Shift;
use crate::world::Row;
use jiff::SignedDuration;

/// On a pod: how many before it have ended on its node, one after the other, with the same template.
pub const ANNOTATION: &str = "kloop.dev/daemon-pods-ended";
/// The first pause in seconds, and the longest.
const PAUSE: i64 = 1;
const LONGEST: i64 = 15 * 60;

/// Returns how many pods failed before this one; a new template starts at zero.
pub fn failed_before(pod: &Row, hash: &str) -> u32 {
    let same = pod.label(REVISION_HASH) == Some(hash) && pod.mentions(ANNOTATION);
    let written = || pod.body().annotation(ANNOTATION).and_then(|text| text.parse().ok());
    same.then(written).flatten().unwrap_or(0)
}

/// When a pod that has ended may be replaced: at once the first time, then 1, 2, 4 ... seconds after it was made.
pub fn until(pod: &Row, before: u32, now: Time) -> Time {
    let Some(doublings) = before.checked_sub(1) else { return now };
    let pause = PAUSE.checked_shl(doublings.min(30)).unwrap_or(LONGEST).min(LONGEST);
    pod.created.unwrap_or(now).later(SignedDuration::from_secs(pause))
}

/// Returns the failure count for the successor: zero after a run twice as long as the longest backoff.
pub fn failures_for_successor(pod: &Row, before: u32, now: Time) -> u32 {
    let age = pod.created.map_or(0, |created| now.duration_since(created).as_secs());
    if age > 2 * LONGEST { 1 } else { before.saturating_add(1) }
}
