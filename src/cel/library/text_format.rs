//! `'%s and %d'.format([a, b])` (`cel-go/ext/formatting.go`).

use crate::cel::show::{decimal, shown};
use crate::cel::value::{EvalError, List, Value, fail};

/// Maximum number of decimals.
const MOST_DECIMALS: usize = 100;

/// Writes a list into the places of a text.
pub fn format(pattern: &str, list: &List) -> Result<String, EvalError> {
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
        let (text, after) = clause(rest, &value)?;
        out.push_str(&text);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Formats a value by the clause at the start of a text, and returns the text after it.
fn clause<'t>(rest: &'t str, value: &Value) -> Result<(String, &'t str), EvalError> {
    let wrong = |why: &str| fail(format!("could not parse formatting clause: {why}"));
    let (decimals, rest) = match rest.strip_prefix('.') {
        None => (6, rest),
        Some(rest) => {
            let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            match rest[..end].parse::<usize>() {
                Ok(decimals) if decimals <= MOST_DECIMALS => (decimals, &rest[end..]),
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
        ('s', value) => text(value)?,
        ('d', Value::Int(_) | Value::Uint(_) | Value::Double(_)) => text(value)?,
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
                Value::String(text) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
                Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
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

/// A value as `%s` prints it.
fn text(value: &Value) -> Result<String, EvalError> {
    Ok(match value {
        Value::List(list) => {
            let items: Result<Vec<String>, EvalError> = list.iter().map(|item| quoted(&item?)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for key in map.keys() {
                if let Some(value) = map.get(&key)? {
                    entries.push((text(&key)?, quoted(&key)?, quoted(&value)?));
                }
            }
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            let entries: Vec<String> = entries.into_iter().map(|(_, key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Duration(nanos) => format!("{}s", decimal(*nanos)),
        Value::Optional(_) | Value::Authorizer(_) => {
            return fail(format!("error during formatting: no formatting function for {}", value.type_name()));
        }
        other => shown(other),
    })
}

/// A value inside a list or map, where texts are quoted.
fn quoted(value: &Value) -> Result<String, EvalError> {
    Ok(match value {
        Value::String(text) => format!("\"{}\"", &**text),
        Value::Timestamp(_) => format!("timestamp(\"{}\")", text(value)?),
        Value::Duration(_) => format!("duration(\"{}\")", text(value)?),
        Value::Double(number) if number.is_finite() => format!("{number:.6}"),
        other => text(other)?,
    })
}
