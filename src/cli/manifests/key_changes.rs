//! Parses `KEY=VALUE` and `KEY-` arguments.

use crate::cli::{CliResult, Failure};
use serde_json::{Map, Value};

/// Splits words into resources and the changes that follow them.
pub fn divide(words: &[String], what: &str) -> CliResult<(Vec<String>, Vec<String>)> {
    let is_pair =
        |word: &String| (word.contains('=') && !word.starts_with('=')) || (word.ends_with('-') && word.as_str() != "-");
    let at = words.iter().position(is_pair).unwrap_or(words.len());
    let (resources, pairs) = words.split_at(at);
    match pairs.iter().find(|word| !is_pair(word)) {
        Some(word) => Err(Failure::plain(format!("all resources must be specified before {what} changes: {word}"))),
        None => Ok((resources.to_vec(), pairs.to_vec())),
    }
}

/// Keys to set and to remove.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// Keys and their new values, in order.
    pub set: Vec<(String, String)>,
    /// Keys to remove.
    pub remove: Vec<String>,
}

/// Parses `KEY=VALUE` and, if `may_remove` is set, `KEY-`.
pub fn parse(pairs: &[String], what: &str, may_remove: bool) -> CliResult<KeyChanges> {
    let mut parsed = KeyChanges::default();
    let mut invalid = Vec::new();
    for pair in pairs {
        match (pair.split_once('='), pair.strip_suffix('-')) {
            (Some((key, value)), _) if !key.is_empty() => parsed.set.push((key.into(), value.into())),
            (None, Some(key)) if may_remove && !key.is_empty() => parsed.remove.push(key.into()),
            _ => invalid.push(pair.as_str()),
        }
    }
    if invalid.is_empty() {
        Ok(parsed)
    } else {
        Err(Failure::plain(format!("invalid {what} pairs: {}", invalid.join(", "))))
    }
}

/// Parses the `KEY=VALUE` labels of a flag.
pub fn parse_labels(pairs: &[String]) -> CliResult<Map<String, Value>> {
    let parse = |pair: &String| match pair.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.into())),
        _ => Err(Failure::plain(format!("unexpected label spec: {pair}"))),
    };
    pairs.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn resources_come_before_changes() {
        assert_eq!(divide(&words("cm one a=b c-"), "label").unwrap(), (words("cm one"), words("a=b c-")));
        assert_eq!(divide(&words("a=1"), "label").unwrap(), (vec![], words("a=1")));
        assert_eq!(divide(&words("cm -"), "label").unwrap(), (words("cm -"), vec![]));
        let error = divide(&words("cm a=b one"), "label").unwrap_err();
        assert_eq!(error.to_string(), "error: all resources must be specified before label changes: one");
    }

    #[test]
    fn pairs_set_and_remove() {
        let parsed = parse(&words("a=b=c d- e="), "label", true).unwrap();
        assert_eq!(parsed.set, [("a".into(), "b=c".into()), ("e".into(), String::new())]);
        assert_eq!(parsed.remove, ["d"]);
        assert!(parse(&words("d-"), "image", false).is_err());
        assert_eq!(parse(&words("=x y"), "label", true).unwrap_err().to_string(), "error: invalid label pairs: =x, y");
    }
}
