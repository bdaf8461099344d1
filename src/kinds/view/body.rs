//! Lenient reading of a body: what is missing, or of another type than expected, reads as empty.

use crate::object::Time;
use serde_json::Value;

static NULL: Value = Value::Null;

/// Reads at a path of field names joined by dots, `spec.nodeName`.
pub trait BodyRead {
    /// The value, null when there is none.
    fn value_at(&self, path: &str) -> &Value;

    /// The text, empty when there is none.
    fn text(&self, path: &str) -> &str {
        self.value_at(path).as_str().unwrap_or_default()
    }

    /// The number, 0 when there is none.
    fn int(&self, path: &str) -> i64 {
        self.value_at(path).as_i64().unwrap_or_default()
    }

    /// The truth, false when there is none.
    fn flag(&self, path: &str) -> bool {
        self.value_at(path).as_bool().unwrap_or_default()
    }

    /// The items, none when there is no list.
    fn list(&self, path: &str) -> &[Value] {
        self.value_at(path).as_array().map_or(&[], Vec::as_slice)
    }

    /// The items that are text.
    fn texts(&self, path: &str) -> Vec<&str> {
        self.list(path).iter().filter_map(Value::as_str).collect()
    }

    /// The entries of a map in order of their keys, values that are not text in JSON.
    fn pairs(&self, path: &str) -> Vec<(&str, String)> {
        let map = self.value_at(path).as_object().into_iter().flatten();
        map.map(|(key, value)| (key.as_str(), plain(value))).collect()
    }

    /// Whether there is a value other than null.
    fn has(&self, path: &str) -> bool {
        !self.value_at(path).is_null()
    }

    /// The value as a person writes it: text without quotes, the rest as JSON; empty when there is none.
    fn plain(&self, path: &str) -> String {
        plain(self.value_at(path))
    }

    /// The moment, if there is one.
    fn time(&self, path: &str) -> Option<Time> {
        self.text(path).parse().ok()
    }
}

impl BodyRead for Value {
    fn value_at(&self, path: &str) -> &Value {
        path.split('.').try_fold(self, |value, name| value.get(name)).unwrap_or(&NULL)
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The text, or what stands for its absence.
pub fn or<'a>(text: &'a str, absent: &'a str) -> &'a str {
    if text.is_empty() { absent } else { text }
}

/// Key and value of each entry, `a=b,c=d`, `<none>` for none.
pub fn joined_pairs(pairs: &[(&str, String)]) -> String {
    if pairs.is_empty() {
        return "<none>".into();
    }
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// A list as Go prints it: `[a b]`.
pub fn go_list(items: &[&str]) -> String {
    format!("[{}]", items.join(" "))
}

/// `True` or `False`, `<unset>` when there is neither.
pub fn truth_or_unset(value: &Value) -> &'static str {
    match value.as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}
