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
        Value::String(text) => out.push_str(&quote(text)),
        Value::Array(items) => {
            let each = |out: &mut String, item| add_literal(out, item);
            write_bracketed(out, ["[]interface {}{", ", ", "}"], items, each);
        }
        Value::Object(map) => {
            let each = |out: &mut String, (key, value): (&String, &Value)| {
                out.extend([&quote(key), ":"]);
                add_literal(out, value);
            };
            write_bracketed(out, ["map[string]interface {}{", ", ", "}"], map, each);
        }
        other => out.push_str(&other.to_string()),
    }
}

/// Quotes a text like `%q` (`strconv.Quote`).
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..' ' | '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(letter))),
            _ if letter.is_ascii() || is_printable(letter) => out.push(letter),
            '\0'..='\u{ffff}' => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(letter))),
        }
    }
    out.push('"');
    out
}

/// Whether Go prints a character as it is (`unicode.IsPrint`): those that Rust does not escape after another one.
pub fn is_printable(letter: char) -> bool {
    String::from_iter(['a', letter]).escape_debug().nth(1) == Some(letter)
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

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn texts_are_quoted_as_go_quotes_them() {
        for (text, expected) in [
            ("it's \"a\" \\", r#""it's \"a\" \\""#),
            ("\u{7}\u{8}\t\n\u{b}\u{c}\r", r#""\a\b\t\n\v\f\r""#),
            ("\0\u{1b}\u{7f}\u{80}\u{ad}\u{a0}\u{200d}\u{2028}", r#""\x00\x1b\x7f\u0080\u00ad\u00a0\u200d\u2028""#),
            ("\u{e000}\u{e0001}\u{10ffff}", r#""\ue000\U000e0001\U0010ffff""#),
            (
                "\u{301} e\u{301} \u{2764}\u{fe0f} \u{1f600} \u{fffd}",
                "\"\u{301} e\u{301} \u{2764}\u{fe0f} \u{1f600} \u{fffd}\"",
            ),
        ] {
            assert_eq!(quote(text), expected);
        }
    }
}
