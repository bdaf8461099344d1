//! KYAML, the flow style of YAML that Kubernetes recommends (KEP-5295): braces, quoted text, trailing commas.

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
    const WORDS: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"];
    let starts_plain = key.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
    if starts_plain && is_plain && !WORDS.contains(&key.to_ascii_lowercase().as_str()) {
        out.push_str(key);
    } else {
        write_quoted(out, key);
    }
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

fn escape(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other if other.is_control() => out.push_str(&format!("\\u{:04x}", other as u32)),
            other => out.push(other),
        }
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
}
