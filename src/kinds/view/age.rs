//! Formats ages and optional times.

use crate::object::{Time, time};

/// Formats the time since a moment; `<unknown>` without one.
pub fn age_since(moment: Option<Time>, now: Time) -> String {
    moment.map_or_else(|| "<unknown>".into(), |moment| time::age(seconds_between(moment, now)))
}

/// Seconds between two moments, rounded towards zero.
pub fn seconds_between(from: Time, to: Time) -> i64 {
    (to.as_millisecond() - from.as_millisecond()) / 1000
}

/// Formats a moment like `Fri, 20 Nov 2026 00:00:00 +0000`; Go's zero time for `None`, as kubectl does.
pub fn rfc1123(moment: Option<Time>) -> String {
    moment.map_or_else(|| "Mon, 01 Jan 0001 00:00:00 +0000".into(), time::rfc1123z)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_moments_have_placeholders() {
        assert_eq!(age_since(None, Time::UNIX_EPOCH), "<unknown>");
        assert_eq!(rfc1123(None), "Mon, 01 Jan 0001 00:00:00 +0000");
        let minute = Time::from_second(60).ok();
        assert_eq!(age_since(Some(Time::UNIX_EPOCH), minute.unwrap()), "60s");
        assert_eq!(rfc1123(minute), "Thu, 01 Jan 1970 00:01:00 +0000");
    }
}
