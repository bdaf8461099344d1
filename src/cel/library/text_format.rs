//! `'%s and %d'.format([a, b])` (`cel-go/ext/formatting.go`).
//!
//! Never: makes a text before its bytes are counted, because a list can contain one long text many times.
//! Start reading at [`format()`].

use crate::cel::limits::{ITEM_BYTES, WorkLimits};
use crate::cel::show::{format_seconds, format_value};
use crate::cel::value::{EvalError, List, Value, fail};
use crate::object::format_hex;

/// Maximum number of decimals.
const MAX_DECIMALS: usize = 100;

/// Writes a list into the places of a text.
pub fn format(context: &WorkLimits, pattern: &str, list: &List) -> Result<String, EvalError> {
    context.reserve_bytes(pattern.len())?;
    let mut out = String::new();
    let mut rest = pattern;
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        if next >= list.count() {
            return fail(format!("index {next} out of range"));
        }
        let value = list.get(next)?;
        next += 1;
        let (text, after) = format_clause(context, rest, &value)?;
        out.push_str(&text);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Formats a value by the clause at the start of a text, and returns the text after it.
fn format_clause<'t>(context: &WorkLimits, rest: &'t str, value: &Value) -> Result<(String, &'t str), EvalError> {
    let wrong = |why: &str| fail(format!("could not parse formatting clause: {why}"));
    let (decimals, rest) = match rest.strip_prefix('.') {
        None => (6, rest),
        Some(rest) => {
            let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            match rest[..end].parse::<usize>() {
                Ok(decimals) if decimals <= MAX_DECIMALS => (decimals, &rest[end..]),
                _ => return wrong("error while parsing precision: error while converting precision to integer"),
            }
        }
    };
    let Some(kind) = rest.chars().next() else { return fail("unexpected end of string") };
    let bad = |what: &str| {
        fail(format!(
            "error during formatting: {what} clause can only be used on {}, was given {}",
            allowed(kind),
            value.type_name()
        ))
    };
    let text = match (kind, value) {
        ('s', value) => plain_text(context, value)?,
        ('d', Value::Int(_) | Value::Uint(_) | Value::Double(_)) => plain_text(context, value)?,
        ('d', _) => return bad("decimal"),
        ('f' | 'e', Value::Int(_) | Value::Uint(_) | Value::Double(_)) => float(kind, decimals, value),
        ('f', _) => return bad("fixed-point"),
        ('e', _) => return bad("scientific"),
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('b', Value::Int(value)) => signed(*value, |size| format!("{size:b}")),
        ('b', Value::Uint(value)) => format!("{value:b}"),
        ('b', _) => return bad("binary"),
        ('o', Value::Int(value)) => signed(*value, |size| format!("{size:o}")),
        ('o', Value::Uint(value)) => format!("{value:o}"),
        ('o', _) => return bad("octal"),
        ('x' | 'X', _) => {
            let text = match value {
                Value::Int(value) => signed(*value, |size| format!("{size:x}")),
                Value::Uint(value) => format!("{value:x}"),
                Value::String(text) => hex(context, text.as_bytes())?,
                Value::Bytes(bytes) => hex(context, bytes)?,
                _ => return bad("hex"),
            };
            if kind == 'X' { text.to_uppercase() } else { text }
        }
        (other, _) => return wrong(&format!("unrecognized formatting clause \"{other}\"")),
    };
    Ok((text, &rest[kind.len_utf8()..]))
}

fn allowed(kind: char) -> &'static str {
    match kind {
        'd' | 'f' | 'e' => "integers and doubles",
        'b' => "integers and bools",
        'x' | 'X' => "integers, byte buffers, and strings",
        _ => "integers",
    }
}

fn hex(context: &WorkLimits, bytes: &[u8]) -> Result<String, EvalError> {
    context.reserve_bytes(2 * bytes.len())?;
    Ok(format_hex(bytes))
}

fn signed(value: i64, print: fn(u64) -> String) -> String {
    format!("{}{}", if value < 0 { "-" } else { "" }, print(value.unsigned_abs()))
}

fn float(kind: char, decimals: usize, value: &Value) -> String {
    let value = match value {
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::Double(value) => *value,
        _ => 0.0,
    };
    if value.is_nan() || value.is_infinite() {
        return if value.is_nan() { "NaN".into() } else { if value > 0.0 { "∞".into() } else { "-∞".into() } };
    }
    if kind == 'f' {
        return format!("{value:.decimals$}");
    }
    let text = format!("{value:.decimals$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let exponent = format!("{exponent:0>2}");
    let raised: String = exponent.bytes().map(|digit| RAISED[usize::from(digit.saturating_sub(b'0')) % 10]).collect();
    format!("{digits}×10{sign}{raised}")
}

/// Returns the bytes that a value takes at least, without those of its items.
fn value_bytes(value: &Value) -> usize {
    ITEM_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        }
}

/// Formats a value as `%s` does.
fn plain_text(context: &WorkLimits, value: &Value) -> Result<String, EvalError> {
    context.reserve_bytes(value_bytes(value))?;
    Ok(match value {
        Value::List(list) => {
            let items: Result<Vec<String>, EvalError> = list.iter().map(|item| quoted_text(context, &item?)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for key in map.keys() {
                if let Some(value) = map.get(&key)? {
                    entries.push((
                        plain_text(context, &key)?,
                        quoted_text(context, &key)?,
                        quoted_text(context, &value)?,
                    ));
                }
            }
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            let entries: Vec<String> = entries.into_iter().map(|(_, key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Duration(nanos) => format!("{}s", format_seconds(*nanos)),
        Value::Optional(_) | Value::Authorizer(_) => {
            return fail(format!("error during formatting: no formatting function for {}", value.type_name()));
        }
        other => format_value(other),
    })
}

/// Formats a value inside a list or map, where texts are quoted.
fn quoted_text(context: &WorkLimits, value: &Value) -> Result<String, EvalError> {
    context.reserve_bytes(value_bytes(value))?;
    Ok(match value {
        Value::String(text) => format!("\"{}\"", &**text),
        Value::Timestamp(_) => format!("timestamp(\"{}\")", plain_text(context, value)?),
        Value::Duration(_) => format!("duration(\"{}\")", plain_text(context, value)?),
        Value::Double(number) if number.is_finite() => format!("{number:.6}"),
        other => plain_text(context, other)?,
    })
}
