//! Formats values as text, as `string` and messages show them.
//!
//! Never: quotes a text or formats a list. Start reading at [`format_value`].

use super::value::Value;

/// Formats a value.
pub fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => format_float(*value),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(nanos) => format!("{}s", format_seconds(*nanos)),
        Value::Timestamp(time) => time.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(address, length) => format!("{address}/{length}"),
        Value::Type(name) => name.to_string(),
        other => other.type_name().to_owned(),
    }
}

/// Formats a number in Go's shortest form (`%g`).
fn format_float(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    value.to_string()
}

/// Formats nanoseconds as seconds with a fraction, as short as possible.
pub fn format_seconds(nanos: i64) -> String {
    let (sign, size) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let fraction = format!("{:09}", size % 1_000_000_000);
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{}", size / 1_000_000_000),
        fraction => format!("{sign}{}.{fraction}", size / 1_000_000_000),
    }
}
