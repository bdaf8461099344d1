//! Values of Compose files, which have a short and a long form: commands, pairs, ports, volumes, durations and sizes.
//!
//! Start reading at [`words`].

use crate::object::{scalar_text_or_empty, time};
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComposePort {
    /// The port in the container.
    pub target: u64,
    /// The port of this machine.
    pub published: Option<u64>,
    /// `TCP` or `UDP`.
    pub protocol: String,
}

/// Returns the words of a command: a list, or a text that is split as a shell splits it.
pub fn words(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(words) => Some(words.iter().map(scalar_text_or_empty).collect()),
        Value::String(text) => Some(split_words(text)),
        _ => None,
    }
}

/// Splits at blanks outside quotes.
fn split_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_open) = (Vec::new(), String::new(), None, false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '\'' | '"') => (quote, is_open) = (Some(letter), true),
            (None | Some('"'), '\\') => word.extend(letters.next()),
            (None, _) if letter.is_whitespace() => {
                if is_open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                is_open = false;
            }
            _ => word.push(letter),
        }
    }
    if is_open || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Returns the pairs of a map, or of a list of texts that are split at one of two signs.
pub fn pairs(value: &Value, signs: [char; 2]) -> Vec<(String, String)> {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), scalar_text_or_empty(value))).collect()
        }
        Value::Array(items) => {
            let split = |item: &Value| {
                let text = scalar_text_or_empty(item);
                let (name, value) = text.split_once(signs).unwrap_or((&text, ""));
                (name.to_owned(), value.to_owned())
            };
            items.iter().map(split).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the settings of a map, or of a list of texts `NAME=VALUE`; `None` for a name without a value.
pub fn settings(value: &Value) -> Vec<(String, Option<String>)> {
    let given = |value: &Value| (!value.is_null()).then(|| scalar_text_or_empty(value));
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), given(value))).collect(),
        Value::Array(items) => {
            let split = |item: &Value| {
                let text = scalar_text_or_empty(item);
                match text.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (text, None),
                }
            };
            items.iter().map(split).collect()
        }
        _ => Vec::new(),
    }
}

/// Refuses a number that is not a port. A published port may be 0, for any free one.
pub fn check_port(value: &Value) -> Result<(), String> {
    let Some(port) = parse_port(value) else { return Ok(()) };
    let is_wrong = |number: u64, least: u64| !(least..=u64::from(u16::MAX)).contains(&number);
    let wrong = Some(port.target).filter(|target| is_wrong(*target, 1));
    match wrong.or(port.published.filter(|published| is_wrong(*published, 0))) {
        Some(number) => Err(format!("{number} is not a port: write a number from 1 to 65535")),
        None => Ok(()),
    }
}

/// Parses a port: a number, `8080:80/udp`, `127.0.0.1:8080:80`, or a map. `None` for ranges.
pub fn parse_port(value: &Value) -> Option<ComposePort> {
    if value.is_object() {
        let target = value["target"].as_u64()?;
        let published = scalar_text_or_empty(&value["published"]);
        let published = if published.is_empty() { None } else { Some(published.parse().ok()?) };
        let protocol = value["protocol"].as_str().unwrap_or("tcp").to_uppercase();
        return Some(ComposePort { target, published, protocol });
    }
    let text = scalar_text_or_empty(value);
    let (ports, protocol) = text.split_once('/').unwrap_or((&text, "tcp"));
    let mut parts = ports.rsplit(':');
    let target = parts.next()?.parse().ok()?;
    let published = parts.next().filter(|part| !part.is_empty()).map(str::parse).transpose().ok()?;
    Some(ComposePort { target, published, protocol: protocol.to_uppercase() })
}

/// Parses a volume: its type, source, path in the container, and whether it is read only.
pub fn parse_volume(value: &Value) -> Option<(&'static str, String, String, bool)> {
    if value.is_object() {
        let kind = match value["type"].as_str()? {
            "bind" => "bind",
            "tmpfs" => "tmpfs",
            "volume" => "volume",
            _ => return None,
        };
        return Some((
            kind,
            scalar_text_or_empty(&value["source"]),
            value["target"].as_str()?.to_owned(),
            value["read_only"] == true,
        ));
    }
    let text = value.as_str()?;
    let parts: Vec<&str> = text.split(':').collect();
    let is_path = |source: &str| source.starts_with(['.', '/', '~']);
    match parts[..] {
        [path] => Some(("volume", String::new(), path.to_owned(), false)),
        [source, path, ref rest @ ..] => {
            let kind = if is_path(source) { "bind" } else { "volume" };
            let is_read_only = rest.iter().any(|options| options.split(',').any(|option| option == "ro"));
            Some((kind, source.to_owned(), path.to_owned(), is_read_only))
        }
        [] => None,
    }
}

/// Returns the absolute path of a bind mount.
pub fn host_path(source: &str, folder: &Path) -> String {
    let path = folder.join(source);
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = clean.pop(),
            part => clean.push(part),
        }
    }
    clean.display().to_string()
}

/// Returns whole seconds of a duration such as `1m30s`; a part of a second counts as one.
pub fn seconds(value: &Value) -> Option<i64> {
    let text = scalar_text_or_empty(value);
    let parsed = time::parse_duration(&text).ok().or_else(|| time::parse_duration(&format!("{text}s")).ok())?;
    (!text.is_empty()).then(|| parsed.as_secs() + i64::from(parsed.subsec_nanos() > 0))
}

/// Returns a size of Compose (`512M`, `1g`, `64kb`) as a quantity. Compose counts in 1024.
pub fn quantity(text: &str) -> String {
    let lower = text.to_lowercase();
    let number = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    match lower[number.len()..].trim_end_matches('b') {
        "k" => format!("{number}Ki"),
        "m" => format!("{number}Mi"),
        "g" => format!("{number}Gi"),
        _ => number.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_have_several_forms() {
        let port = |target, published, protocol: &str| ComposePort { target, published, protocol: protocol.to_owned() };
        for (value, expected) in [
            (json!("80"), Some(port(80, None, "TCP"))),
            (json!(80), Some(port(80, None, "TCP"))),
            (json!("127.0.0.1:8080:80/udp"), Some(port(80, Some(8080), "UDP"))),
            (json!({"target": 80, "published": "8080"}), Some(port(80, Some(8080), "TCP"))),
            (json!("3000-3001:3000-3001"), None),
        ] {
            assert_eq!(parse_port(&value), expected, "{value}");
        }
    }

    #[test]
    fn sizes_count_in_1024() {
        for (text, expected) in [("512M", "512Mi"), ("1gb", "1Gi"), ("64kb", "64Ki"), ("1000", "1000"), ("10b", "10")] {
            assert_eq!(quantity(text), expected);
        }
    }
}
