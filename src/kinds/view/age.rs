//! Times and spans as kubectl writes them.

use crate::object::Time;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A span in seconds, coarser the longer it is: `119s`, `3m20s`, `2h`, `47h`, `5d3h`, `2y20d`. Kubernetes: `duration.HumanDuration`.
pub fn human(seconds: i64) -> String {
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        ..0 => "0s".into(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// How long ago a moment was; `<unknown>` when there is none.
pub fn since(moment: Option<Time>, now: Time) -> String {
    moment.map_or_else(|| "<unknown>".into(), |moment| human(between(moment, now)))
}

/// Whole seconds from one moment to a later one, towards zero.
pub fn between(from: Time, to: Time) -> i64 {
    (to.as_millisecond() - from.as_millisecond()) / 1000
}

/// `Fri, 20 Nov 2026 00:00:00 +0000`; a missing moment is Go's zero time.
pub fn rfc1123(moment: Option<Time>) -> String {
    match moment {
        Some(moment) => moment.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string(),
        None => "Mon, 01 Jan 0001 00:00:00 +0000".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_400, "3h10m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR, "8y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn moments() {
        let moment = "2026-11-20T00:00:00Z".parse().ok();
        assert_eq!(rfc1123(moment), "Fri, 20 Nov 2026 00:00:00 +0000");
        assert_eq!(since(None, Time::UNIX_EPOCH), "<unknown>");
    }
}
