//! Parses and formats times and durations.
//!
//! Supports Kubernetes' times, Go's durations, and kubectl's ages. Never: reads the clock.
//! Start reading at [`age`].

use super::Time;
use jiff::SignedDuration;
use serde_json::Value;
use std::fmt;

/// The error of a malformed time or duration, with Go's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeError(pub String);

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TimeError {}

/// Saturating addition of durations to times. Both can come from a user's object and be as large as 9223372036854775807
/// seconds. The result stays between [`EARLIEST`] and the end of year 9999. The operators `+` and `-` of [`Time`] panic
/// instead.
pub trait Shift {
    /// The time that is `by` later.
    fn later(self, by: SignedDuration) -> Time;
    /// The time that is `by` earlier.
    fn earlier(self, by: SignedDuration) -> Time;
}

/// The earliest time: the beginning of year 1, Go's zero time.
pub const EARLIEST: Time = Time::constant(-62_135_596_800, 0);

impl Shift for Time {
    fn later(self, by: SignedDuration) -> Time {
        let end = if by.is_negative() { EARLIEST } else { Time::MAX };
        self.checked_add(by).unwrap_or(end).max(EARLIEST)
    }

    fn earlier(self, by: SignedDuration) -> Time {
        let end = if by.is_negative() { Time::MAX } else { EARLIEST };
        self.checked_sub(by).unwrap_or(end).max(EARLIEST)
    }
}

/// Whether a text is a date such as `2026-01-31`.
pub fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Formats an age like kubectl: at most two units, coarser as it grows (apimachinery `duration.HumanDuration`).
pub fn age(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |large: i64, unit: char, small: i64, sub: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{sub}"),
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if hours < 3 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, 'd', hours % 24, 'h'),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => two(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

/// Formats a time like `2026-01-02T03:04:05Z`, as in most fields of Kubernetes.
pub fn rfc3339(time: Time) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time like `2026-01-02T03:04:05.000006Z`: `MicroTime` of leases and events.
pub fn micro(time: Time) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Formats a time like `Fri, 02 Jan 2026 03:04:05 +0000`, as in `describe`.
pub fn rfc1123z(time: Time) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
}

/// Reads a time of JSON; `None` for null and for any other text.
pub fn from_json(value: &Value) -> Option<Time> {
    value.as_str()?.parse().ok()
}

/// The layout of a time, as Go writes it.
const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
/// The layout of a `MicroTime`.
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Parses a time in the only form that the API accepts: date, `T`, time, an optional fraction, `Z` or an offset. Times of the last day of
/// the year 9999 become [`Time::MAX`].
pub fn parse_rfc3339(text: &str) -> Result<Time, TimeError> {
    parse_layout(text, LAYOUT)
}

/// Parses the time of a `MicroTime`, whose fraction has six digits.
pub fn parse_micro(text: &str) -> Result<Time, TimeError> {
    parse_layout(text, MICRO_LAYOUT)
}

/// Parses a time as Go's `time.Parse` does, with its messages.
fn parse_layout(text: &str, layout: &str) -> Result<Time, TimeError> {
    let fail = |value: &str, element: &str| {
        let why = format!("cannot parse {value:?} as {element:?}");
        TimeError(format!("parsing time {text:?} as {layout:?}: {why}"))
    };
    let out_of_range = |name: &str| TimeError(format!("parsing time {text:?}: {name} out of range"));
    let mut rest = text;
    let mut numbers = [0; 6];
    let elements = [("", "2006"), ("-", "01"), ("-", "02"), ("T", "15"), (":", "04"), (":", "05")];
    let checks =
        [("", 0..=9999), ("month", 1..=12), ("", 0..=99), ("hour", 0..=23), ("minute", 0..=59), ("second", 0..=59)];
    for (index, ((separator, element), (name, range))) in elements.into_iter().zip(checks).enumerate() {
        rest = rest.strip_prefix(separator).ok_or_else(|| fail(rest, separator))?;
        // Go reads an hour of one digit, too.
        let digits = if element == "15" && digits(rest).len() == 1 { 1 } else { element.len() };
        let number = rest.get(..digits).filter(|part| is_digits(part)).ok_or_else(|| fail(rest, element))?;
        numbers[index] = number.parse().map_err(|_| fail(rest, element))?;
        if !range.contains(&numbers[index]) {
            return Err(out_of_range(name));
        }
        rest = &rest[digits..];
    }
    let mut nanos = 0;
    if layout == MICRO_LAYOUT {
        let fraction = rest.get(..7).and_then(|part| part.strip_prefix(['.', ',']));
        let micros = fraction.filter(|part| is_digits(part)).ok_or_else(|| fail(rest, ".000000"))?;
        nanos = nanoseconds(micros);
        rest = &rest[7..];
    } else if let Some(fraction) = rest.strip_prefix(['.', ',']).map(digits).filter(|digits| !digits.is_empty()) {
        nanos = nanoseconds(fraction);
        rest = &rest[1 + fraction.len()..];
    }
    let (offset, rest) = match zone(rest).ok_or_else(|| fail(rest, "Z07:00"))? {
        ((25.., _), _) => return Err(out_of_range("time zone offset hour")),
        ((_, 61..), _) => return Err(out_of_range("time zone offset minute")),
        ((hours, minutes), after) => ((i64::from(hours) * 60 + i64::from(minutes)) * 60, after),
    };
    if !rest.is_empty() {
        return Err(TimeError(format!("parsing time {text:?}: extra text: {rest:?}")));
    }
    let offset = if is_west(text) { -offset } else { offset };
    utc(numbers, nanos).map(|time| time.earlier(SignedDuration::from_secs(offset))).ok_or_else(|| out_of_range("day"))
}

/// The time with these parts of a date and a time of day, unless the month has no such day.
fn utc([year, month, day, hour, minute, second]: [i16; 6], nanos: i32) -> Option<Time> {
    let [month, day, hour, minute, second] = [month, day, hour, minute, second].map(|part| part as i8);
    let moment = jiff::civil::DateTime::new(year, month, day, hour, minute, second, nanos).ok()?;
    Some(moment.to_zoned(jiff::tz::TimeZone::UTC).map_or(Time::MAX, |zoned| zoned.timestamp()))
}

/// The leading digits of a text.
fn digits(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())]
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The nanoseconds of the digits of a fraction. Digits after the ninth do not count.
fn nanoseconds(digits: &str) -> i32 {
    format!("{:0<9.9}", digits).parse().unwrap_or_default()
}

/// The hours and minutes of an offset from UTC, and the text after the offset.
fn zone(text: &str) -> Option<((u8, u8), &str)> {
    if let Some(rest) = text.strip_prefix('Z') {
        return Some(((0, 0), rest));
    }
    let (zone, rest) = text.split_at_checked(6)?;
    let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
    let number = |part: &str| part.parse().ok().filter(|_| part.len() == 2 && is_digits(part));
    Some(((number(hours)?, number(minutes)?), rest))
}

/// Whether a time that was parsed has a negative offset from UTC.
fn is_west(text: &str) -> bool {
    text.len() > 6 && text.as_bytes()[text.len() - 6] == b'-'
}

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration of Go: `1m30s`, `100ms`, `-1.5h`, `0`.
pub fn parse_duration(text: &str) -> Result<SignedDuration, TimeError> {
    let invalid = || TimeError(format!("time: invalid duration {text:?}"));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 {
            return Err(invalid());
        }
        if unit.is_empty() {
            return Err(TimeError(format!("time: missing unit in duration {text:?}")));
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(TimeError(format!("time: unknown unit {unit:?} in duration {text:?}")));
        };
        let number = |digits: &str| if digits.is_empty() { Ok(0) } else { digits.parse::<i128>() };
        // Digits past the fifteenth are finer than a nanosecond, even of an hour.
        let fraction = &fraction[..fraction.len().min(15)];
        let part = number(fraction).map_err(|_| invalid())? * scale / 10_i128.pow(fraction.len() as u32);
        nanos += number(whole).map_err(|_| invalid())? * scale + part;
        rest = after;
    }
    let nanos = if text.starts_with('-') { -nanos } else { nanos };
    // Go stores nanoseconds in 64 bits and refuses larger values.
    i64::try_from(nanos).map(SignedDuration::from_nanos).map_err(|_| invalid())
}

/// Units of durations in words: the last name of each also matches longer words that begin with it.
const WORDS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// Parses a duration as schemas have them (kube-openapi/pkg/validation/strfmt/duration.go): as Go does, or else as in Scala, like `5 days`
/// and `1w 2h`. Numbers with a unit count, and everything else is passed over.
pub fn parse_duration_in_words(text: &str) -> Option<SignedDuration> {
    if let Ok(duration) = parse_duration(text) {
        return Some(duration);
    }
    let (mut nanos, mut rest) = (None, text);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = &rest[at..];
        let (number, after) = digits.split_at(digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()));
        let after = after.trim_start_matches([' ', '\t', '\n', '\x0C', '\r']);
        let end = after.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(after.len());
        let unit = after[..end].to_lowercase();
        rest = &after[end..];
        if unit.is_empty() {
            continue;
        }
        let number: i64 = number.parse().ok()?;
        for (names, scale) in WORDS {
            let is_long = names.last().is_some_and(|name| unit.starts_with(name));
            if is_long || names.contains(&unit.as_str()) {
                // Go's numbers wrap.
                nanos = Some(nanos.unwrap_or(0i64).wrapping_add(number.wrapping_mul(scale)));
            }
        }
    }
    nanos.map(SignedDuration::from_nanos)
}

/// Formats a duration as Go does: `1h0m0s`, `1m30s`, `1.5s`, `100ms`, `0s`.
pub fn format_duration(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    let (sign, nanos) = if nanos < 0 { ("-", -nanos) } else { ("", nanos) };
    let below_a_second = [(1_000_000, "ms"), (1_000, "µs"), (1, "ns")];
    if nanos == 0 {
        return "0s".into();
    }
    if let Some((scale, unit)) = below_a_second.iter().find(|(scale, _)| nanos < 1_000_000_000 && nanos >= *scale) {
        return format!("{sign}{}{unit}", decimal(nanos, *scale));
    }
    let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
    let seconds = decimal(rest, 1_000_000_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Formats `nanos / scale` with all significant decimals.
fn decimal(nanos: i128, scale: i128) -> String {
    let width = scale.to_string().len() - 1;
    let fraction = format!("{:0width$}", nanos % scale);
    match fraction.trim_end_matches('0') {
        "" => (nanos / scale).to_string(),
        fraction => format!("{}.{fraction}", nanos / scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_formatted_like_kubectls() {
        let (hour, day, year) = (3600, 86400, 31_536_000);
        for (seconds, wanted) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * hour - 1, "179m"),
            (3 * hour, "3h"),
            (3 * hour + 60, "3h1m"),
            (8 * hour, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (2 * day + hour, "2d1h"),
            (8 * day, "8d"),
            (729 * day, "729d"),
            (2 * year, "2y"),
            (2 * year + day, "2y1d"),
            (8 * year + day, "8y"),
        ] {
            assert_eq!(age(seconds), wanted, "{seconds}");
        }
    }

    #[test]
    fn times_of_the_last_day_become_the_greatest_time() {
        assert_eq!(parse_rfc3339("9999-12-31T23:59:59Z").ok(), Some(Time::MAX));
        assert_eq!(parse_rfc3339("9999-12-30T20:00:00-05:00").ok(), Some(Time::MAX));
        for text in ["9998-02-30T00:00:00Z", "9999-02-30T00:00:00Z", "9999-12-31T23:59:59+99:99"] {
            assert!(parse_rfc3339(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shifted_times_stay_within_their_range() {
        let (now, most) = (parse_rfc3339("2026-01-02T03:04:05Z").unwrap(), SignedDuration::from_secs(i64::MAX));
        let second = SignedDuration::from_secs(1);
        assert_eq!(rfc3339(now.later(second)), "2026-01-02T03:04:06Z");
        assert_eq!(rfc3339(now.earlier(second)), "2026-01-02T03:04:04Z");
        for (moment, end) in [
            (now.later(most), Time::MAX),
            (now.earlier(SignedDuration::MIN), Time::MAX),
            (Time::MAX.later(second), Time::MAX),
            (now.earlier(most), EARLIEST),
            (now.earlier(SignedDuration::from_hours(24 * 366 * 3000)), EARLIEST),
            (now.later(SignedDuration::MIN), EARLIEST),
            (EARLIEST.earlier(second), EARLIEST),
        ] {
            assert_eq!(moment, end);
            assert_eq!(parse_rfc3339(&rfc3339(moment)).map(|read| read.as_second()), Ok(end.as_second()));
        }
    }

    #[test]
    fn times_are_parsed_and_formatted() {
        let time = parse_rfc3339("2026-01-02T03:04:05.0000061Z").unwrap();
        assert_eq!(rfc3339(time), "2026-01-02T03:04:05Z");
        assert_eq!(micro(time), "2026-01-02T03:04:05.000006Z");
        assert_eq!(rfc1123z(time), "Fri, 02 Jan 2026 03:04:05 +0000");
        assert_eq!(rfc3339(parse_rfc3339("2026-01-02T03:04:05+01:00").unwrap()), "2026-01-02T02:04:05Z");
        for bad in [
            "",
            "yesterday",
            "2026-01-02",
            "2026-01-02 03:04:05Z",
            "2026-01-02t03:04:05z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:60Z",
            "2026-13-02T03:04:05Z",
            "2026-02-30T03:04:05Z",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05+0100",
            "2026-01-02T03:04:05Z ",
            "20é6-01-02T03:04:05Z",
            "2026-01-02T03:04:05.123456é+01:00",
            "2026-01-02T03:04:05+01:0é",
        ] {
            assert!(parse_rfc3339(bad).is_err(), "{bad}");
        }
        let error = parse_rfc3339("yesterday").unwrap_err().to_string();
        let wanted = r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#;
        assert_eq!(error, wanted);
    }

    #[test]
    fn malformed_times_are_refused_in_words_of_go() {
        let as_layout = "as \"2006-01-02T15:04:05Z07:00\": cannot parse";
        let micro_layout = "as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse";
        for (text, parse, why) in [
            ("2020-13-01T00:00:00Z", parse_rfc3339 as fn(&str) -> _, ": month out of range".to_owned()),
            ("2020-02-30T00:00:00Z", parse_rfc3339, ": day out of range".into()),
            ("2020-01-01T25:00:00Z", parse_rfc3339, ": hour out of range".into()),
            ("2020-01-01T00:00:00Zx", parse_rfc3339, ": extra text: \"x\"".into()),
            ("2020-01-01T00:00:00+25:00", parse_rfc3339, ": time zone offset hour out of range".into()),
            ("2020-1-1T00:00:00Z", parse_rfc3339, format!(" {as_layout} \"1-1T00:00:00Z\" as \"01\"")),
            ("2020-01-01", parse_rfc3339, format!(" {as_layout} \"\" as \"T\"")),
            ("2020-01-01T00:00:00", parse_rfc3339, format!(" {as_layout} \"\" as \"Z07:00\"")),
            ("2020-01-01T00:00:00Z", parse_micro, format!(" {micro_layout} \"Z\" as \".000000\"")),
            ("2020-01-01T00:00:00.123Z", parse_micro, format!(" {micro_layout} \".123Z\" as \".000000\"")),
        ] {
            let error = parse(text).map_err(|error: TimeError| error.to_string());
            assert_eq!(error, Err(format!("parsing time \"{text}\"{why}")));
        }
        assert_eq!(parse_rfc3339("2020-01-01T1:00:00,5-01:30").map(micro), Ok("2020-01-01T02:30:00.500000Z".into()));
        assert_eq!(
            parse_micro("2020-01-01T01:00:00.000006+01:00").map(micro),
            Ok("2020-01-01T00:00:00.000006Z".into())
        );
    }

    #[test]
    fn durations_are_parsed_and_formatted() {
        for (text, wanted) in [
            ("0", "0s"),
            ("1m30s", "1m30s"),
            ("90s", "1m30s"),
            ("100ms", "100ms"),
            ("1h", "1h0m0s"),
            ("1.5s", "1.5s"),
            ("-1.5h", "-1h30m0s"),
            ("1500us", "1.5ms"),
            ("2µs", "2µs"),
            ("3ns", "3ns"),
            (".5s", "500ms"),
            ("1h0m0.001s", "1h0m0.001s"),
        ] {
            assert_eq!(parse_duration(text).map(format_duration), Ok(wanted.to_owned()), "{text}");
        }
        for (text, wanted) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("abc", "time: invalid duration \"abc\""),
            ("10", "time: missing unit in duration \"10\""),
            ("10x", "time: unknown unit \"x\" in duration \"10x\""),
            ("99999999999h", "time: invalid duration \"99999999999h\""),
            ("1..5s", "time: invalid duration \"1..5s\""),
        ] {
            assert_eq!(parse_duration(text).map(format_duration), Err(TimeError(wanted.into())), "{text}");
        }
    }
}
