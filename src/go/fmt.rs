//! Formats values like Go's `fmt`.

use serde_json::Value;

/// Formats like `fmt.Sprint`: `map[a:b]`, `[a b]`.
pub fn plain(value: &Value) -> String {
    let mut text = String::new();
    add_plain(&mut text, value);
    text
}

fn add_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            let each = |out: &mut String, item| add_plain(out, item);
            write_bracketed(out, ["[", " ", "]"], items, each);
        }
        Value::Object(map) => {
            let each = |out: &mut String, (key, value): (&String, &Value)| {
                out.extend([key, ":"]);
                add_plain(out, value);
            };
            write_bracketed(out, ["map[", " ", "]"], map, each);
        }
        other => out.push_str(&other.to_string()),
    }
}

/// Formats like `%#v`: `map[string]interface {}{"a":"b"}`.
pub fn literal(value: &Value) -> String {
    let mut text = String::new();
    add_literal(&mut text, value);
    text
}

fn add_literal(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(text) => out.push_str(&format!("{text:?}")),
        Value::Array(items) => {
            let each = |out: &mut String, item| add_literal(out, item);
            write_bracketed(out, ["[]interface {}{", ", ", "}"], items, each);
        }
        Value::Object(map) => {
            let each = |out: &mut String, (key, value): (&String, &Value)| {
                out.push_str(&format!("{key:?}:"));
                add_literal(out, value);
            };
            write_bracketed(out, ["map[string]interface {}{", ", ", "}"], map, each);
        }
        other => out.push_str(&other.to_string()),
    }
}

/// Appends items in brackets to one text, since there may be a million of them.
fn write_bracketed<T>(
    out: &mut String,
    [open, between, close]: [&str; 3],
    items: impl IntoIterator<Item = T>,
    each: impl Fn(&mut String, T),
) {
    out.push_str(open);
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push_str(between);
        }
        each(out, item);
    }
    out.push_str(close);
}

/// Returns the name of the Go type that decoded JSON has.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
