//! Parts of times and durations.
//!
//! Never: reads the time zones of the machine; they are compiled in.

use super::{Function, Overload, Sig, function, member, text};
use crate::cel::value::{EvalError, Evaluated, Value, fail};
use jiff::Zoned;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

const TIME_SIGNATURES: &[Overload] =
    &[member(&[Sig::Timestamp], Sig::Int), member(&[Sig::Timestamp, Sig::String], Sig::Int)];
const TIME_AND_DURATION_SIGNATURES: &[Overload] = &[
    member(&[Sig::Timestamp], Sig::Int),
    member(&[Sig::Timestamp, Sig::String], Sig::Int),
    member(&[Sig::Duration], Sig::Int),
];

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("getFullYear", TIME_SIGNATURES, |_, args| time_part(args, |time| i64::from(time.year()))),
    function("getMonth", TIME_SIGNATURES, |_, args| time_part(args, |time| i64::from(time.month()) - 1)),
    function("getDayOfYear", TIME_SIGNATURES, |_, args| time_part(args, |time| i64::from(time.day_of_year()) - 1)),
    function("getDayOfMonth", TIME_SIGNATURES, |_, args| time_part(args, |time| i64::from(time.day()) - 1)),
    function("getDate", TIME_SIGNATURES, |_, args| time_part(args, |time| i64::from(time.day()))),
    function("getDayOfWeek", TIME_SIGNATURES, |_, args| {
        time_part(args, |time| i64::from(time.weekday().to_sunday_zero_offset()))
    }),
    function("getHours", TIME_AND_DURATION_SIGNATURES, |_, args| {
        duration_or_time_part(args, 3_600_000_000_000, |time| i64::from(time.hour()))
    }),
    function("getMinutes", TIME_AND_DURATION_SIGNATURES, |_, args| {
        duration_or_time_part(args, 60_000_000_000, |time| i64::from(time.minute()))
    }),
    function("getSeconds", TIME_AND_DURATION_SIGNATURES, |_, args| {
        duration_or_time_part(args, 1_000_000_000, |time| i64::from(time.second()))
    }),
    function("getMilliseconds", TIME_AND_DURATION_SIGNATURES, |_, args| {
        duration_or_time_part(args, 1_000_000, |time| i64::from(time.millisecond()))
    }),
];

fn duration_or_time_part<'v>(args: &[Value<'v>], unit: i64, read: fn(&Zoned) -> i64) -> Evaluated<'v> {
    match &args[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / unit)),
        _ => time_part(args, read),
    }
}

fn time_part<'v>(args: &[Value<'v>], read: fn(&Zoned) -> i64) -> Evaluated<'v> {
    let Value::Timestamp(time) = &args[0] else { return Err(EvalError::no_overload()) };
    let zone = match args.get(1) {
        None => TimeZone::UTC,
        Some(name) => match find_zone(text(name)?) {
            Some(zone) => zone,
            None => return fail(format!("unknown time zone {}", text(name)?)),
        },
    };
    Ok(Value::Int(read(&time.to_zoned(zone))))
}

/// Finds a time zone by its name or as an offset such as `-08:00`.
fn find_zone(name: &str) -> Option<TimeZone> {
    let Some((hours, minutes)) = name.split_once(':') else {
        return TimeZoneDatabase::bundled().get(name).ok();
    };
    let (sign, hours) = hours.strip_prefix('-').map_or((1, hours.trim_start_matches('+')), |hours| (-1, hours));
    let seconds =
        hours.parse::<i32>().ok()?.checked_mul(3600)?.checked_add(minutes.parse::<i32>().ok()?.checked_mul(60)?)?;
    Offset::from_seconds(sign * seconds).ok().map(Offset::to_time_zone)
}
