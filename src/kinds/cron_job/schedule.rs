//! Cron schedules: five fields, descriptors such as `@daily`, and `@every 1h`, as Kubernetes' `robfig/cron` library
//! parses them.
//!
//! Parses schedules and computes their next times. Start reading at [`Schedule::parse`].

use crate::object::Time;
use jiff::civil::{Date, DateTime, DateTimeRound};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{RoundMode, SignedDuration, Unit};
use std::iter::successors;

/// A parsed schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At the minutes that match five fields.
    Fields(ScheduleFields),
    /// At this interval.
    Every(SignedDuration),
}

/// The minutes, hours, days, months and weekdays, as bit sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleFields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the field of days was `*`; then only weekdays select days, and vice versa.
    any_day: bool,
    any_weekday: bool,
    zone: Option<String>,
}

/// The range of a field's numbers, and their names.
struct FieldBounds {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MINUTES: FieldBounds = FieldBounds { low: 0, high: 59, names: &[] };
const HOURS: FieldBounds = FieldBounds { low: 0, high: 23, names: &[] };
const DAYS: FieldBounds = FieldBounds { low: 1, high: 31, names: &[] };
const MONTHS: FieldBounds = FieldBounds {
    low: 1,
    high: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: FieldBounds =
    FieldBounds { low: 0, high: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// Descriptors of common schedules.
const DESCRIPTORS: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Returns a time zone by its IANA name, from the bundled database.
pub fn zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}

impl Schedule {
    /// Parses a schedule; the error has the wording of `robfig/cron`.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let (named, rest) = split_zone(text)?;
        if rest.is_empty() {
            return Err("empty spec string".into());
        }
        if let Some(duration) = rest.strip_prefix("@every ") {
            let every = read_duration(duration)
                .ok_or_else(|| format!("failed to parse duration {rest}: time: invalid duration {duration:?}"))?;
            return Ok(Schedule::Every(every));
        }
        let fields = match DESCRIPTORS.iter().find(|(word, _)| *word == rest) {
            Some((_, fields)) => *fields,
            None if rest.starts_with('@') => return Err(format!("unrecognized descriptor: {rest}")),
            None => rest,
        };
        read_fields(fields, named).map(Schedule::Fields)
    }

    /// The first scheduled time after this one; `zone` applies when the schedule itself has no time zone.
    pub fn next_after(&self, after: Time, zone: &TimeZone) -> Option<Time> {
        match self {
            Schedule::Every(every) => {
                let next = after.checked_add(*every).ok()?;
                Time::from_second(next.as_second()).ok()
            }
            Schedule::Fields(fields) => fields.next_after(after, fields.own_zone().as_ref().unwrap_or(zone)),
        }
    }

    /// The last scheduled time after the first and not after the second time. An interval counts from the first one.
    pub fn last_between(&self, after: Time, until: Time, zone: &TimeZone) -> Option<Time> {
        match self {
            Schedule::Every(every) => {
                let every = every.as_secs().max(1);
                let rounds = until.as_second().saturating_sub(after.as_second()) / every;
                (rounds > 0).then(|| Time::from_second(after.as_second() + rounds * every).ok()).flatten()
            }
            Schedule::Fields(fields) => fields.last_between(after, until, fields.own_zone().as_ref().unwrap_or(zone)),
        }
    }
}

/// Splits the time zone from a schedule such as `TZ=Asia/Tokyo 0 5 * * *`.
fn split_zone(text: &str) -> Result<(Option<String>, &str), String> {
    let Some(rest) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else {
        return Ok((None, text.trim()));
    };
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    match zone(name) {
        Some(_) => Ok((Some(name.to_owned()), rest.trim())),
        None => Err(format!("provided bad location {name}: unknown time zone {name}")),
    }
}

fn read_fields(text: &str, zone: Option<String>) -> Result<ScheduleFields, String> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = parts[..] else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")));
    };
    let (minutes, _) = read_field(minutes, &MINUTES)?;
    let (hours, _) = read_field(hours, &HOURS)?;
    let (days, any_day) = read_field(days, &DAYS)?;
    let (months, _) = read_field(months, &MONTHS)?;
    let (weekdays, any_weekday) = read_field(weekdays, &WEEKDAYS)?;
    Ok(ScheduleFields { minutes, hours, days, months, weekdays, any_day, any_weekday, zone })
}

/// Parses a field to its bits, and whether it was `*`.
fn read_field(text: &str, bounds: &FieldBounds) -> Result<(u64, bool), String> {
    let mut all = (0, false);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (bits, any) = read_range(part, bounds)?;
        all = (all.0 | bits, all.1 | any);
    }
    Ok(all)
}

/// Parses a part of a field: `5`, `1-5`, `*/15`, `10-30/5`, `mon-fri`.
fn read_range(text: &str, bounds: &FieldBounds) -> Result<(u64, bool), String> {
    let mut parts = text.split('/');
    let range = parts.next().unwrap_or_default();
    let step_text = parts.next();
    let ends: Vec<&str> = range.split('-').collect();
    let star = matches!(ends[0], "*" | "?");
    let (start, mut end) = match (star, &ends[..]) {
        (true, _) => (bounds.low, bounds.high),
        (false, [only]) => (read_number(only, bounds)?, read_number(only, bounds)?),
        (false, [low, high]) => (read_number(low, bounds)?, read_number(high, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = step_text.map_or(Ok(1), |step| read_number(step, &MINUTES))?;
    if parts.next().is_some() {
        return Err(format!("too many slashes: {text}"));
    }
    if step_text.is_some() && ends.len() == 1 {
        end = bounds.high;
    }
    if start < bounds.low {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", bounds.low));
    }
    if end > bounds.high {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", bounds.high));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let bits = (start..=end).step_by(step as usize).fold(0, |bits, number| bits | 1 << number);
    Ok((bits, star && step == 1))
}

fn read_number(text: &str, bounds: &FieldBounds) -> Result<u32, String> {
    if let Some(index) = bounds.names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
        return Ok(bounds.low + index as u32);
    }
    let syntax = || format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax");
    let number: i64 = text.parse().map_err(|_| syntax())?;
    if number < 0 {
        return Err(format!("negative number ({number}) not allowed: {text}"));
    }
    u32::try_from(number).map_err(|_| format!("end of range ({number}) above maximum ({}): {text}", bounds.high))
}

/// Parses a duration in Go's notation, such as `1h30m`, of at least one second.
fn read_duration(text: &str) -> Option<SignedDuration> {
    let mut rest = text.trim();
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, unit) = rest.split_at(digits);
        let letters = unit.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(unit.len());
        let (unit, more) = unit.split_at(letters);
        let scale = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
        rest = more;
    }
    (seconds > 0.0 || !text.is_empty()).then(|| SignedDuration::from_secs((seconds as i64).max(1)))
}

/// The longest search for a scheduled time: as robfig/cron, which gives up after five years.
const SEARCHED: SignedDuration = SignedDuration::from_hours(24 * 5 * 366);
const INSTANT: SignedDuration = SignedDuration::from_nanos(1);

/// The searches go through the periods in which the time zone keeps one offset. An hour that daylight saving time skips
/// is in none of them, so it is not due; an hour that it repeats is in two, so it is due twice.
impl ScheduleFields {
    /// The time zone in the schedule itself.
    fn own_zone(&self) -> Option<TimeZone> {
        self.zone.as_deref().and_then(zone)
    }

    fn next_after(&self, after: Time, zone: &TimeZone) -> Option<Time> {
        let limit = after.checked_add(SEARCHED).unwrap_or(Time::MAX);
        let mut from = after.checked_add(INSTANT).ok()?;
        while from < limit {
            let offset = zone.to_offset(from);
            let end = zone.following(from).next().map_or(limit, |change| change.timestamp().min(limit));
            let earliest = to_minute(offset.to_datetime(from), RoundMode::Ceil)?;
            let last_day = offset.to_datetime(end).date();
            let days = successors(Some(earliest.date()), |day| day.tomorrow().ok()).take_while(|day| *day <= last_day);
            let found = self.first_in(days, earliest).and_then(|moment| offset.to_timestamp(moment).ok());
            if found.is_some_and(|found| found < end) {
                return found;
            }
            from = end;
        }
        None
    }

    fn last_between(&self, after: Time, until: Time, zone: &TimeZone) -> Option<Time> {
        let limit = until.checked_sub(SEARCHED).map_or(after, |limit| limit.max(after));
        let mut until = until;
        while until > limit {
            let offset = zone.to_offset(until);
            // A change of the offset at this very time begins the period.
            let change = zone.preceding(until.checked_add(INSTANT).unwrap_or(until)).next();
            let start = change.map_or(limit, |change| change.timestamp().max(limit));
            let latest = to_minute(offset.to_datetime(until), RoundMode::Floor)?;
            let first_day = offset.to_datetime(start).date();
            let days = successors(Some(latest.date()), |day| day.yesterday().ok()).take_while(|day| *day >= first_day);
            let found = self.last_in(days, latest).and_then(|moment| offset.to_timestamp(moment).ok());
            if found.is_some_and(|found| found >= start && found > after) {
                return found;
            }
            until = start.checked_sub(INSTANT).ok()?;
        }
        None
    }

    /// The first scheduled moment in ascending days that is not before this one.
    fn first_in(&self, days: impl Iterator<Item = Date>, earliest: DateTime) -> Option<DateTime> {
        let is_first = |day: Date| day == earliest.date();
        days.filter(|day| self.has_day(*day)).find_map(|day| {
            let (hour, minute) = if is_first(day) { (earliest.hour(), earliest.minute()) } else { (0, 0) };
            let in_hour = first_bit(self.minutes, minute).filter(|_| has_bit(self.hours, hour));
            let (hour, minute) = match in_hour {
                Some(minute) => (hour, minute),
                None => (first_bit(self.hours, hour + 1)?, first_bit(self.minutes, 0)?),
            };
            Some(day.at(hour, minute, 0, 0))
        })
    }

    /// The last scheduled moment in descending days that is not after this one.
    fn last_in(&self, days: impl Iterator<Item = Date>, latest: DateTime) -> Option<DateTime> {
        let is_last = |day: Date| day == latest.date();
        days.filter(|day| self.has_day(*day)).find_map(|day| {
            let (hour, minute) = if is_last(day) { (latest.hour(), latest.minute()) } else { (23, 59) };
            let in_hour = last_bit(self.minutes, minute).filter(|_| has_bit(self.hours, hour));
            let (hour, minute) = match in_hour {
                Some(minute) => (hour, minute),
                None => (last_bit(self.hours, hour - 1)?, last_bit(self.minutes, 59)?),
            };
            Some(day.at(hour, minute, 0, 0))
        })
    }

    /// Whether a date matches. Days of the month and weekdays are alternatives when both are set.
    fn has_day(&self, date: Date) -> bool {
        let day = has_bit(self.days, date.day());
        let weekday = has_bit(self.weekdays, date.weekday().to_sunday_zero_offset());
        let either = if self.any_day || self.any_weekday { day && weekday } else { day || weekday };
        has_bit(self.months, date.month()) && either
    }
}

fn to_minute(moment: DateTime, mode: RoundMode) -> Option<DateTime> {
    moment.round(DateTimeRound::new().smallest(Unit::Minute).mode(mode)).ok()
}

fn has_bit(bits: u64, number: i8) -> bool {
    bits & 1 << number != 0
}

fn first_bit(bits: u64, from: i8) -> Option<i8> {
    (from..60).find(|number| has_bit(bits, *number))
}

fn last_bit(bits: u64, until: i8) -> Option<i8> {
    (0..=until).rev().find(|number| has_bit(bits, *number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(schedule: &str, after: &str, zone: &str) -> String {
        let zone = super::zone(zone).unwrap();
        let next = Schedule::parse(schedule).unwrap().next_after(after.parse().unwrap(), &zone);
        next.map_or("never".into(), |next| next.to_string())
    }

    #[test]
    fn schedules_have_their_next_times() {
        let table = [
            ("* * * * *", "2024-01-01T00:00:00Z", "UTC", "2024-01-01T00:01:00Z"),
            ("*/15 * * * *", "2024-01-01T00:01:00Z", "UTC", "2024-01-01T00:15:00Z"),
            ("0 5 * * mon-fri", "2024-01-05T05:00:00Z", "UTC", "2024-01-08T05:00:00Z"),
            ("0 0 13 * 5", "2024-01-01T00:00:00Z", "UTC", "2024-01-05T00:00:00Z"),
            ("0 0 29 2 *", "2024-03-01T00:00:00Z", "UTC", "2028-02-29T00:00:00Z"),
            ("0 0 31 2 *", "2024-03-01T00:00:00Z", "UTC", "never"),
            ("@daily", "2024-01-01T12:00:00Z", "Europe/Berlin", "2024-01-01T23:00:00Z"),
            ("30 2 * * *", "2024-03-30T12:00:00Z", "Europe/Berlin", "2024-04-01T00:30:00Z"),
            ("30 2 * * *", "2024-10-27T00:30:00Z", "Europe/Berlin", "2024-10-27T01:30:00Z"),
            ("@every 90s", "2024-01-01T00:00:00Z", "UTC", "2024-01-01T00:01:30Z"),
            ("CRON_TZ=Asia/Tokyo 0 0 * * *", "2024-01-01T00:00:00Z", "UTC", "2024-01-01T15:00:00Z"),
        ];
        for (schedule, after, zone, expected) in table {
            assert_eq!(due(schedule, after, zone), expected, "{schedule}");
        }
    }

    #[test]
    fn schedule_errors_have_the_wording_of_robfig_cron() {
        let table = [
            ("every day", "expected exactly 5 fields, found 2: [every day]"),
            ("61 * * * *", "end of range (61) above maximum (59): 61"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("", "empty spec string"),
        ];
        for (schedule, expected) in table {
            assert_eq!(Schedule::parse(schedule), Err(expected.to_owned()));
        }
    }

    const ZONES: [&str; 5] = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"];

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn last_time_is_that_which_no_other_time_follows() {
        let schedules =
            ["*/30 * * * *", "30 2 * * *", "*/20 1-3 * * 0", "59 23 31 * *", "0 0 29 2 *", "0 0 31 2 *", "5 0 1 */2 *"];
        for zone in ZONES.map(|name| super::zone(name).unwrap()) {
            for schedule in schedules.map(|text| Schedule::parse(text).unwrap()) {
                // The nights in which clocks change, and others.
                for day in ["2024-02-29", "2024-03-10", "2024-03-31", "2024-04-06", "2024-10-26", "2024-11-03"] {
                    let after = time(&format!("{day}T12:34:56Z")) - SignedDuration::from_hours(24);
                    for hours in 0..48 {
                        let until = after + SignedDuration::from_hours(hours);
                        let next = |time: &Time| schedule.next_after(*time, &zone).filter(|next| *next <= until);
                        let expected = successors(next(&after), next).last();
                        assert_eq!(schedule.last_between(after, until, &zone), expected, "{schedule:?} {until}");
                    }
                }
            }
        }
    }

    #[test]
    fn last_time_of_a_past_season_is_found_day_by_day() {
        let Ok(Schedule::Fields(fields)) = Schedule::parse("* * * 1-5 *") else { panic!() };
        let (mut seen, latest) = (0, jiff::civil::date(2026, 11, 30).at(12, 0, 0, 0));
        let days = successors(Some(latest.date()), |day| day.yesterday().ok()).inspect(|_| seen += 1);
        let found = fields.last_in(days, latest).map(|moment| moment.to_string());
        assert_eq!((found.as_deref(), seen), (Some("2026-05-31T23:59:00"), 184));
    }

    #[test]
    fn repeated_hour_is_due_twice_and_skipped_hour_never() {
        let zone = super::zone("Europe/Berlin").unwrap();
        let schedule = Schedule::parse("30 2 * * *").unwrap();
        let last = |until| schedule.last_between(time("2024-01-01T00:00:00Z"), time(until), &zone).unwrap().to_string();
        assert_eq!(last("2024-10-27T01:29:00Z"), "2024-10-27T00:30:00Z");
        assert_eq!(last("2024-10-27T01:30:00Z"), "2024-10-27T01:30:00Z");
        assert_eq!(last("2024-03-31T12:00:00Z"), "2024-03-30T01:30:00Z");
    }
}
