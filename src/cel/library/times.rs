//! Parts of times and durations. Time zones are those that are compiled in.

use super::{Function, Overload, Sig, function, member, text};
use crate::cel::value::{EvalError, Evaluated, Value, fail};
use jiff::Zoned;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

const OF_TIME: &[Overload] = &[member(&[Sig::Timestamp], Sig::Int), member(&[Sig::Timestamp, Sig::String], Sig::Int)];
const OF_BOTH: &[Overload] = &[
    member(&[Sig::Timestamp], Sig::Int),
    member(&[Sig::Timestamp, Sig::String], Sig::Int),
    member(&[Sig::Duration], Sig::Int),
];

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("getFullYear", OF_TIME, |_, args| part(args, |time| i64::from(time.year()))),
    function("getMonth", OF_TIME, |_, args| part(args, |time| i64::from(time.month()) - 1)),
    function("getDayOfYear", OF_TIME, |_, args| part(args, |time| i64::from(time.day_of_year()) - 1)),
    function("getDayOfMonth", OF_TIME, |_, args| part(args, |time| i64::from(time.day()) - 1)),
    function("getDate", OF_TIME, |_, args| part(args, |time| i64::from(time.day()))),
    function("getDayOfWeek", OF_TIME, |_, args| part(args, |time| i64::from(time.weekday().to_sunday_zero_offset()))),
    function("getHours", OF_BOTH, |_, args| duration_or(args, 3_600_000_000_000, |time| i64::from(time.hour()))),
    function("getMinutes", OF_BOTH, |_, args| duration_or(args, 60_000_000_000, |time| i64::from(time.minute()))),
    function("getSeconds", OF_BOTH, |_, args| duration_or(args, 1_000_000_000, |time| i64::from(time.second()))),
    function("getMilliseconds", OF_BOTH, |_, args| duration_or(args, 1_000_000, |time| i64::from(time.millisecond()))),
];

fn duration_or<'v>(args: &[Value<'v>], unit: i64, of: fn(&Zoned) -> i64) -> Evaluated<'v> {
    match &args[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / unit)),
        _ => part(args, of),
    }
}

fn part<'v>(args: &[Value<'v>], of: fn(&Zoned) -> i64) -> Evaluated<'v> {
    let Value::Timestamp(time) = &args[0] else { return Err(EvalError::no_overload()) };
    let zone = match args.get(1) {
        None => TimeZone::UTC,
        Some(name) => match zone(text(name)?) {
            Some(zone) => zone,
            None => return fail(format!("unknown time zone {}", text(name)?)),
        },
    };
    Ok(Value::Int(of(&time.to_zoned(zone))))
}

/// A time zone by its name or as an offset such as `-08:00`.
fn zone(name: &str) -> Option<TimeZone> {
    let Some((hours, minutes)) = name.split_once(':') else {
        return TimeZoneDatabase::bundled().get(name).ok();
    };
    let (sign, hours) = hours.strip_prefix('-').map_or((1, hours.trim_start_matches('+')), |hours| (-1, hours));
    let seconds =
        hours.parse::<i32>().ok()?.checked_mul(3600)?.checked_add(minutes.parse::<i32>().ok()?.checked_mul(60)?)?;
    Offset::from_seconds(sign * seconds).ok().map(Offset::to_time_zone)
}
