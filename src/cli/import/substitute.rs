//! Variables of Compose files: `$NAME`, `${NAME:-default}`, and env files.
//!
//! Never: reads a file or the environment. Start reading at [`fill_in`].

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Fills variables in, in all texts of a file. Adds the names that have no value and no default to `missing`. Fails if a variable is
/// missing that the file requires.
pub fn fill_in(
    value: &Value,
    variables: &BTreeMap<String, String>,
    missing: &mut Vec<String>,
) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(fill_in_text(text, variables, missing)?),
        Value::Array(items) => {
            items.iter().map(|item| fill_in(item, variables, missing)).collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::Object(fields) => {
            let mut filled = Map::new();
            for (name, value) in fields {
                filled.insert(name.clone(), fill_in(value, variables, missing)?);
            }
            filled.into()
        }
        other => other.clone(),
    })
}

fn fill_in_text(text: &str, variables: &BTreeMap<String, String>, missing: &mut Vec<String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            filled.push('$');
            rest = after;
        } else if let Some((inside, after)) = after.strip_prefix('{').and_then(split_at_brace) {
            filled.push_str(&resolve(inside, variables, missing)?);
            rest = after;
        } else {
            let length = after.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
            if length == 0 {
                filled.push('$');
            } else {
                filled.push_str(&resolve(&after[..length], variables, missing)?);
            }
            rest = &after[length..];
        }
    }
    Ok(filled + rest)
}

/// Splits at the brace that closes an expression; a default may contain expressions.
fn split_at_brace(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    for (place, letter) in text.char_indices() {
        match letter {
            '{' if text[..place].ends_with('$') => depth += 1,
            '}' if depth == 0 => return Some((&text[..place], &text[place + 1..])),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the value of `NAME`, `NAME:-default`, `NAME-default`, `NAME:+other`, `NAME+other`, `NAME:?message` or `NAME?message`.
fn resolve(
    expression: &str,
    variables: &BTreeMap<String, String>,
    missing: &mut Vec<String>,
) -> Result<String, String> {
    let end = expression.bytes().position(|byte| !(byte.is_ascii_alphanumeric() || byte == b'_'));
    let (name, operator) = expression.split_at(end.unwrap_or(expression.len()));
    let set = variables.get(name);
    let filled = set.filter(|value| !value.is_empty());
    for (sign, value) in [(":-", filled), ("-", set)] {
        if let Some(default) = operator.strip_prefix(sign) {
            return value.map_or_else(|| fill_in_text(default, variables, missing), |value| Ok(value.clone()));
        }
    }
    for (sign, value) in [(":+", filled), ("+", set)] {
        if let Some(other) = operator.strip_prefix(sign) {
            return value.map_or_else(|| Ok(String::new()), |_| fill_in_text(other, variables, missing));
        }
    }
    for (sign, value) in [(":?", filled), ("?", set)] {
        if let Some(message) = operator.strip_prefix(sign) {
            let colon = if message.is_empty() { "" } else { ": " };
            let refusal = || format!("required variable {name} is missing a value{colon}{message}");
            return value.cloned().ok_or_else(refusal);
        }
    }
    if set.is_none() && !missing.iter().any(|other| other == name) {
        missing.push(name.to_owned());
    }
    Ok(set.cloned().unwrap_or_default())
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
            ("${B:-${A}}} ${A:?needed} ${EMPTY?}", "1} 1 "),
            ("$$A costs 5$", "$A costs 5$"),
            ("[$B]", "[]"),
        ] {
            let mut missing = Vec::new();
            assert_eq!(fill_in_text(text, &variables, &mut missing).as_deref(), Ok(expected));
            assert_eq!(missing, if text == "[$B]" { vec!["B"] } else { vec![] });
        }
        for (text, expected) in [
            ("${B:?}", "required variable B is missing a value"),
            ("${B?set B}", "required variable B is missing a value: set B"),
            ("${EMPTY:?no}", "required variable EMPTY is missing a value: no"),
        ] {
            assert_eq!(fill_in_text(text, &variables, &mut Vec::new()).unwrap_err(), expected);
        }
    }

    #[test]
    fn env_files_have_comments_and_quotes() {
        let found = parse_env_file("# a\nA=1 # one\nexport B=\"x # y\"\nC='z'\n\nD=\n");
        let expected = [("A", "1"), ("B", "x # y"), ("C", "z"), ("D", "")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
