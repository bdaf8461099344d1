//! KYAML, the flow style of YAML that Kubernetes recommends (KEP-5295): braces, quoted text, trailing commas.

use crate::go::fmt::is_printable;
use serde_json::Value;

/// Formats one document, starting with `---`.
pub fn to_kyaml(value: &Value) -> String {
    let mut out = String::from("---\n");
    write(&mut out, value, 0);
    out.push('\n');
    out
}

fn write(out: &mut String, value: &Value, level: usize) {
    match value {
        Value::Object(map) if map.is_empty() => out.push_str("{}"),
        Value::Object(map) => {
            out.push_str("{\n");
            for (key, value) in map {
                indent(out, level + 1);
                write_key(out, key);
                out.push_str(": ");
                write(out, value, level + 1);
                out.push_str(",\n");
            }
            indent(out, level);
            out.push('}');
        }
        Value::Array(items) if items.is_empty() => out.push_str("[]"),
        Value::Array(items) if items.iter().all(|item| item.is_object() || item.is_array()) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write(out, item, level);
            }
            out.push(']');
        }
        Value::Array(items) => {
            out.push_str("[\n");
            for item in items {
                indent(out, level + 1);
                write(out, item, level + 1);
                out.push_str(",\n");
            }
            indent(out, level);
            out.push(']');
        }
        Value::String(text) => write_text(out, text, level),
        other => out.push_str(&other.to_string()),
    }
}

fn indent(out: &mut String, level: usize) {
    out.extend(std::iter::repeat_n("  ", level));
}

/// Writes a key. Keys that every YAML parser reads as text have no quotes.
fn write_key(out: &mut String, key: &str) {
    if needs_quotes(key) { write_quoted(out, key) } else { out.push_str(key) }
}

/// Whether a parser may take a key for something else than text (`sigs.k8s.io/yaml/kyaml`).
fn needs_quotes(key: &str) -> bool {
    let is_inner = |letter: char| matches!(letter, '-' | '.' | '/');
    let is_plain = key.chars().all(|letter| letter.is_alphanumeric() || letter == '_' || is_inner(letter));
    !is_plain || key.is_empty() || key.starts_with(is_inner) || key.ends_with(is_inner) || is_taken_for_a_value(key)
}

/// Whether a text looks like a null, a boolean, a number or a date.
fn is_taken_for_a_value(text: &str) -> bool {
    const WORDS: [&str; 11] = ["null", "true", "t", "y", "yes", "on", "false", "f", "n", "no", "off"];
    let number = text.replace('_', "").to_ascii_lowercase();
    let digits = number.get(2..).unwrap_or_default();
    let is_in_base = |prefix: &str, base: u32| number.starts_with(prefix) && i64::from_str_radix(digits, base).is_ok();
    let is_date = || {
        let parts: Vec<&str> = text.split('-').collect();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        parts.len() == 3 && parts[0].len() == 4 && parts.iter().all(is_number)
    };
    WORDS.contains(&text.to_ascii_lowercase().as_str())
        || number.parse::<f64>().is_ok()
        || [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().any(|(prefix, base)| is_in_base(prefix, base))
        || is_date()
}

/// Writes text in double quotes. Several lines are written on separate lines, with explicit
/// newlines.
fn write_text(out: &mut String, text: &str, level: usize) {
    if !text.contains('\n') {
        return write_quoted(out, text);
    }
    out.push_str("\"\\\n");
    let mut lines = text.split('\n').peekable();
    while let Some(line) = lines.next() {
        let is_last = lines.peek().is_none();
        if !(is_last && line.is_empty()) {
            indent(out, level + 1);
            // YAML removes leading blanks unless the first one is escaped.
            out.push(if line.starts_with([' ', '\t']) { '\\' } else { ' ' });
            escape(out, line);
            out.push_str(if is_last { "\\\n" } else { "\\n\\\n" });
        }
    }
    indent(out, level + 1);
    out.push('"');
}

fn write_quoted(out: &mut String, text: &str) {
    out.push('"');
    escape(out, text);
    out.push('"');
}

/// Escapes letters as Go's encoder of KYAML does.
fn escape(out: &mut String, text: &str) {
    for letter in text.chars() {
        let short = match letter {
            '"' => '"',
            '\\' => '\\',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\u{c}' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\u{b}' => 'v',
            '\0' => '0',
            '\u{1b}' => 'e',
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            letter if is_printable(letter) => {
                out.push(letter);
                continue;
            }
            letter => {
                let code = u32::from(letter);
                out.push_str(&match code {
                    0..0x20 | 0x7f => format!("\\x{code:02x}"),
                    ..0x10000 => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
                continue;
            }
        };
        out.extend(['\\', short]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_have_kyaml_layout() {
        let value = json!({"a": {"x/y": "1", "no": 2, "m": "l1\n  l2\n"}, "list": [{"b": true}, {"c": null}], "empty": [], "words": ["p", "q"]});
        let expected = concat!(
            "---\n{\n  a: {\n    m: \"\\\n       l1\\n\\\n      \\  l2\\n\\\n      \",\n    \"no\": 2,\n    x/y: \"1\",\n  },\n",
            "  empty: [],\n  list: [{\n    b: true,\n  }, {\n    c: null,\n  }],\n  words: [\n    \"p\",\n    \"q\",\n  ],\n}\n",
        );
        assert_eq!(to_kyaml(&value), expected);
        let read: Value = serde_yaml::from_str(&to_kyaml(&value)).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn letters_are_escaped_as_in_go() {
        let mut out = String::new();
        escape(&mut out, "a\"\\\t\u{1}\u{7f}\u{80}\u{2028}\u{a0}\u{200b}\u{e000}é☃\u{1f600}\u{10ffff}");
        assert_eq!(out, "a\\\"\\\\\\t\\x01\\x7f\\u0080\\L\\_\\u200b\\ue000é☃\u{1f600}\\U0010ffff");
    }

    #[test]
    fn keys_that_look_like_values_have_quotes() {
        for key in ["t", "Yes", "null", "1", "1e5", "0x1f", "1_000", "inf", "2026-01-02", "a b", "-a", "a/", ""] {
            assert!(needs_quotes(key), "{key}");
        }
        for key in ["a", "_a", "a.b/c-d", "é", "1a", "tt", "x-2026-01"] {
            assert!(!needs_quotes(key), "{key}");
        }
    }
}
