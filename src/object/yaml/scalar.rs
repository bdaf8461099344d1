//! Meaning of a plain scalar in YAML 1.1, by the rules of go-yaml v2, or in 1.2, by those of v3.

use super::BooleanWords;
use crate::object::whole_number;
use granit_parser::{ScalarStyle, Span};
use serde_json::{Number, Value};

/// The value of an unquoted scalar.
pub(super) enum PlainScalar {
    /// Null, a boolean or a number.
    Value(Value),
    /// A number without JSON form: infinity or not a number.
    NoJson(&'static str),
    /// A date, which go-yaml reads as text, but quotes on output.
    Timestamp,
    /// Text.
    Text,
}

/// Resolves an unquoted scalar.
pub(super) fn resolve(text: &str, words: BooleanWords) -> PlainScalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => PlainScalar::Value(Value::Null),
        "true" | "True" | "TRUE" => PlainScalar::Value(true.into()),
        "false" | "False" | "FALSE" => PlainScalar::Value(false.into()),
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" if words == BooleanWords::Many => {
            PlainScalar::Value(true.into())
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" if words == BooleanWords::Many => {
            PlainScalar::Value(false.into())
        }
        ".nan" | ".NaN" | ".NAN" => PlainScalar::NoJson("NaN"),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => PlainScalar::NoJson("+Inf"),
        "-.inf" | "-.Inf" | "-.INF" => PlainScalar::NoJson("-Inf"),
        _ => number_or_text(text),
    }
}

fn number_or_text(text: &str) -> PlainScalar {
    match text.as_bytes().first() {
        Some(b'.') => float(text).map_or(PlainScalar::Text, PlainScalar::Value),
        Some(b'0'..=b'9' | b'+' | b'-') if is_timestamp(text) => PlainScalar::Timestamp,
        Some(b'0'..=b'9' | b'+' | b'-') => {
            let bare = if text.contains('_') { &text.replace('_', "") } else { text };
            integer(bare).or_else(|| float(bare)).map_or(PlainScalar::Text, PlainScalar::Value)
        }
        _ => PlainScalar::Text,
    }
}

/// Parses an integer like Go's `ParseInt(s, 0, 64)`, then `ParseUint`: a leading zero means octal.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let prefixed = |lower: &str, upper: &str| digits.strip_prefix(lower).or_else(|| digits.strip_prefix(upper));
    let (digits, radix) = match digits {
        _ if prefixed("0x", "0X").is_some() => (&digits[2..], 16),
        _ if prefixed("0o", "0O").is_some() => (&digits[2..], 8),
        _ if prefixed("0b", "0B").is_some() => (&digits[2..], 2),
        _ if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        _ => (digits, 10),
    };
    if digits.is_empty() || !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match negative {
        false => Some(magnitude.into()),
        true => 0_i64.checked_sub_unsigned(magnitude).map(Value::from),
    }
}

/// Parses `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`; whole numbers become integers, as in JSON output.
fn float(text: &str) -> Option<Value> {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.map(|text| text.strip_prefix(['-', '+']).unwrap_or(text));
    let good = is_digits(whole)
        && is_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|digits| !digits.is_empty() && is_digits(digits));
    let number: f64 = good.then(|| text.parse().ok())??;
    if let Some(whole) = whole_number::from_float(number) {
        return Some(whole.into());
    }
    // Go reads a number beyond 64 bits as text.
    Number::from_f64(number).map(Value::Number)
}

/// Whether a text is a date like `2006-1-2`, optionally with a time of day (go-yaml's four layouts).
pub(super) fn is_timestamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || bytes[4] != b'-' || !bytes[..4].iter().all(u8::is_ascii_digit) || !text.is_ascii() {
        return false;
    }
    let (date, time) = text[5..].split_at(text[5..].find(['T', 't', ' ']).unwrap_or(text.len() - 5));
    let Some((month, day)) = date.split_once('-') else { return false };
    let year: i16 = text[..4].parse().unwrap_or(0);
    let valid = match (small(month, 12), small(day, 31)) {
        (Some(month), Some(day)) => jiff::civil::Date::new(year, month, day).is_ok(),
        _ => false,
    };
    valid && (time.is_empty() || is_time_of_day(&time[1..], !time.starts_with(' ')))
}

fn is_time_of_day(text: &str, zoned: bool) -> bool {
    let clock = match (zoned, text.find(['Z', '+', '-'])) {
        (true, Some(at)) if is_zone(&text[at..]) => &text[..at],
        (false, None) => text,
        _ => return false,
    };
    let mut parts = clock.splitn(3, ':');
    let (hour, minute, second) = (parts.next(), parts.next(), parts.next());
    let (Some(hour), Some(minute), Some(second)) = (hour, minute, second) else { return false };
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let below = |text: &str, limit| text == "0" || text == "00" || small(text, limit).is_some();
    below(hour, 23)
        && below(minute, 59)
        && below(second, 59)
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_zone(text: &str) -> bool {
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text == "Z" || text[1..].split_once(':').is_some_and(|(hours, minutes)| digits(hours) && digits(minutes))
}

/// Parses a number of one or two digits from 1 to a limit.
fn small(text: &str, limit: i8) -> Option<i8> {
    let good = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let number: i8 = good.then(|| text.parse().ok())??;
    (1..=limit).contains(&number).then_some(number)
}
/// Removes the line break that the parser, unlike go-yaml, adds to a block scalar at the end of a source without a
/// final line break.
pub(super) fn without_added_break<'t>(source: &str, text: &'t str, style: ScalarStyle, span: Span) -> &'t str {
    let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    if !is_block || source.ends_with(['\n', '\r']) || span.end.byte_offset().is_none_or(|end| end < source.len()) {
        return text;
    }
    let last = source.rsplit(['\n', '\r']).next().unwrap_or_default().trim_start();
    let Some(shorter) = text.strip_suffix('\n') else { return text };
    if !last.is_empty() && shorter.ends_with(last) { shorter } else { text }
}
