//! Variables of Compose files: `$NAME`, `${NAME:-default}`, and env files.
//!
//! Never: reads a file or the environment. Start reading at [`fill_in`].

use serde_json::Value;
use std::collections::BTreeMap;

/// Fills variables in, in all texts of a file. Adds the names that have no value and no default to `missing`.
pub fn fill_in(value: &Value, variables: &BTreeMap<String, String>, missing: &mut Vec<String>) -> Value {
    match value {
        Value::String(text) => Value::String(fill_in_text(text, variables, missing)),
        Value::Array(items) => items.iter().map(|item| fill_in(item, variables, missing)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), fill_in(value, variables, missing))).collect()
        }
        other => other.clone(),
    }
}

fn fill_in_text(text: &str, variables: &BTreeMap<String, String>, missing: &mut Vec<String>) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            filled.push('$');
            rest = after;
        } else if let Some((inside, after)) = after.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
            filled.push_str(&resolve(inside, variables, missing));
            rest = after;
        } else {
            let length = after.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
            if length == 0 {
                filled.push('$');
            } else {
                filled.push_str(&resolve(&after[..length], variables, missing));
            }
            rest = &after[length..];
        }
    }
    filled + rest
}

/// Returns the value of `NAME`, `NAME:-default`, `NAME-default`, `NAME:+other`, `NAME+other` or `NAME:?message`.
fn resolve(expression: &str, variables: &BTreeMap<String, String>, missing: &mut Vec<String>) -> String {
    let end = expression.bytes().position(|byte| !(byte.is_ascii_alphanumeric() || byte == b'_'));
    let (name, operator) = expression.split_at(end.unwrap_or(expression.len()));
    let set = variables.get(name);
    let filled = set.filter(|value| !value.is_empty());
    for (sign, value) in [(":-", filled), ("-", set)] {
        if let Some(default) = operator.strip_prefix(sign) {
            return value.cloned().unwrap_or_else(|| default.to_owned());
        }
    }
    for (sign, value) in [(":+", filled), ("+", set)] {
        if let Some(other) = operator.strip_prefix(sign) {
            return value.map(|_| other.to_owned()).unwrap_or_default();
        }
    }
    if set.is_none() && !missing.iter().any(|other| other == name) {
        missing.push(name.to_owned());
    }
    set.cloned().unwrap_or_default()
}

/// Parses an env file: `NAME=value` lines, with comments and quotes.
pub fn parse_env_file(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.strip_prefix("export ").unwrap_or(line).split_once('='));
    let unquoted = |value: &str| {
        let value = value.trim();
        for quote in ['"', '\''] {
            if let Some(inside) = value.strip_prefix(quote).and_then(|inside| inside.strip_suffix(quote)) {
                return inside.to_owned();
            }
        }
        value.split(" #").next().unwrap_or_default().trim_end().to_owned()
    };
    pairs.map(|(name, value)| (name.trim().to_owned(), unquoted(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_with_their_defaults() {
        let variables = [("A", "1"), ("EMPTY", "")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        for (text, expected) in [
            ("$A ${A}x", "1 1x"),
            ("${B:-two} ${B-two} ${EMPTY:-three} ${EMPTY-three}", "two two three "),
            ("${A:+set} ${B:+set}", "set "),
            ("$$A costs 5$", "$A costs 5$"),
            ("[$B]", "[]"),
        ] {
            let mut missing = Vec::new();
            assert_eq!(fill_in_text(text, &variables, &mut missing), expected);
            assert_eq!(missing, if text == "[$B]" { vec!["B"] } else { vec![] });
        }
    }

    #[test]
    fn env_files_have_comments_and_quotes() {
        let found = parse_env_file("# a\nA=1 # one\nexport B=\"x # y\"\nC='z'\n\nD=\n");
        let expected = [("A", "1"), ("B", "x # y"), ("C", "z"), ("D", "")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
