//! Restart backoff of containers, with Kubernetes' numbers, derived from status and never from memory.

use crate::object::Time;
use crate::world::{AttemptEnd, ClusterSettings};
use jiff::SignedDuration;

/// Time for which the status shows the error of a refused image, or the end of an attempt, before it shows the back-off.
const ERROR_SHOWS: SignedDuration = SignedDuration::from_secs(2);

/// An attempt that ran at least this long resets the back-off, for every maximum (KEP-4603).
const RESET_SECONDS: i64 = 600;

/// Seconds from the end of an attempt to the start of the next: none after the first attempt and after one that ran for 10 minutes,
/// then 10, 20, 40 ... 300.
///
/// The pause before this attempt shows how far the pauses have grown; the attempt's number bounds it, so that a
/// control plane that was away for an hour does not count as a long pause.
pub fn restart(settings: &ClusterSettings, attempt: u32, ended: &AttemptEnd, last: Option<&AttemptEnd>) -> i64 {
    let ran = ended.started.map_or(0, |started| ended.finished.duration_since(started).as_secs());
    if attempt == 0 || ran >= RESET_SECONDS {
        return 0;
    }
    let by_number = doubled(settings, attempt - 1);
    let pause = ended.started.zip(last).map(|(started, last)| started.duration_since(last.finished).as_secs());
    pause.map_or(by_number, |pause| by_number.min(next_pause(settings, pause)))
}

/// Seconds from the refusal of an image to the next try, by the number of refusals.
pub fn image(settings: &ClusterSettings, refusals: u32) -> i64 {
    doubled(settings, refusals.saturating_sub(1))
}

/// Time at which the status shows the back-off instead of an image error, or of the end of an attempt, at this time.
pub fn error_fades(at: Time) -> Option<Time> {
    at.checked_add(ERROR_SHOWS).ok()
}

/// Returns the backoff that follows a backoff of at least this many seconds.
fn next_pause(settings: &ClusterSettings, pause: i64) -> i64 {
    let steps = (0..63).map(|doublings| doubled(settings, doublings));
    steps
        .take_while(|step| *step < settings.backoff_cap_seconds)
        .find(|step| *step > pause)
        .map_or(settings.backoff_cap_seconds, |next| next)
}

fn doubled(settings: &ClusterSettings, doublings: u32) -> i64 {
    let factor = 1i64.checked_shl(doublings.min(40)).unwrap_or(i64::MAX);
    settings.backoff_seconds.saturating_mul(factor).min(settings.backoff_cap_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(started: i64, finished: i64) -> AttemptEnd {
        let at = |second| Time::from_second(second).unwrap();
        AttemptEnd {
            code: 1,
            signal: None,
            reason: None,
            message: String::new(),
            started: Some(at(started)),
            finished: at(finished),
        }
    }

    #[test]
    fn pauses_double_to_the_cap() {
        let settings = ClusterSettings::default();
        let (mut last, mut pauses, mut now) = (None, Vec::new(), 1000);
        for attempt in 0..9 {
            let end = ended(now, now + 1);
            let pause = restart(&settings, attempt, &end, last.as_ref());
            pauses.push(pause);
            now += 1 + pause;
            last = Some(end);
        }
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn ten_minutes_of_running_start_over() {
        let settings = ClusterSettings::default();
        let cases = [
            // (attempt, last end, started, ended, pause)
            (7, 1000, 1300, 1900, 0),
            (7, 1000, 1300, 1899, 300),
            // The attempt after the reset started at once, so the first pause follows.
            (8, 1900, 1900, 1901, 10),
            (9, 1901, 1911, 1912, 20),
            // The control plane was away: the number bounds the pause.
            (1, 1000, 9000, 9001, 10),
            (3, 1000, 9000, 9001, 40),
        ];
        for (attempt, last, started, finished, pause) in cases {
            let found = restart(&settings, attempt, &ended(started, finished), Some(&ended(0, last)));
            assert_eq!(found, pause, "attempt {attempt} from {started} to {finished}");
        }
    }

    #[test]
    fn backoff_cap_can_be_set() {
        let settings = ClusterSettings { backoff_seconds: 1, backoff_cap_seconds: 3, ..ClusterSettings::default() };
        let pauses: Vec<i64> = (0..5).map(|attempt| restart(&settings, attempt, &ended(100, 110), None)).collect();
        assert_eq!(pauses, [0, 1, 2, 3, 3], "and ten seconds of running start nothing over");
    }

    #[test]
    fn images_wait_by_their_refusals() {
        let pauses: Vec<i64> = (1..=7).map(|refusals| image(&ClusterSettings::default(), refusals)).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
    }
}
