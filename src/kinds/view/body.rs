//! Lenient reading of a body: missing fields and fields of unexpected types read as empty.

use crate::object::{Time, scalar_text_or_empty};
use serde_json::Value;

static NULL: Value = Value::Null;

/// Reads values by a path of field names joined by dots, such as `spec.nodeName`.
pub trait BodyRead {
    /// The value; null when absent.
    fn value_at(&self, path: &str) -> &Value;

    /// The text; empty when absent.
    fn text(&self, path: &str) -> &str {
        self.value_at(path).as_str().unwrap_or_default()
    }

    /// The number; 0 when absent.
    fn int(&self, path: &str) -> i64 {
        self.value_at(path).as_i64().unwrap_or_default()
    }

    /// The boolean; false when absent.
    fn flag(&self, path: &str) -> bool {
        self.value_at(path).as_bool().unwrap_or_default()
    }

    /// The items of a list; empty when absent.
    fn list(&self, path: &str) -> &[Value] {
        self.value_at(path).as_array().map_or(&[], Vec::as_slice)
    }

    /// The text items of a list.
    fn texts(&self, path: &str) -> Vec<&str> {
        self.list(path).iter().filter_map(Value::as_str).collect()
    }

    /// The entries of a map sorted by key; values that are not text are printed as JSON.
    fn pairs(&self, path: &str) -> Vec<(&str, String)> {
        let map = self.value_at(path).as_object().into_iter().flatten();
        map.map(|(key, value)| (key.as_str(), scalar_text_or_empty(value))).collect()
    }

    /// Whether there is a value other than null.
    fn has(&self, path: &str) -> bool {
        !self.value_at(path).is_null()
    }

    /// The value for output: text without quotes, other types as JSON; empty when absent.
    fn plain(&self, path: &str) -> String {
        scalar_text_or_empty(self.value_at(path))
    }

    /// The time, if present and valid.
    fn time(&self, path: &str) -> Option<Time> {
        self.text(path).parse().ok()
    }
}

impl BodyRead for Value {
    fn value_at(&self, path: &str) -> &Value {
        path.split('.').try_fold(self, |value, name| value.get(name)).unwrap_or(&NULL)
    }
}

/// The text, or a placeholder when it is empty.
pub fn text_or<'a>(text: &'a str, absent: &'a str) -> &'a str {
    if text.is_empty() { absent } else { text }
}

/// The entries as `a=b,c=d`; `<none>` when empty.
pub fn joined_pairs(pairs: &[(&str, String)]) -> String {
    if pairs.is_empty() {
        return "<none>".into();
    }
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Prints a list as Go does: `[a b]`.
pub fn go_list(items: &[&str]) -> String {
    format!("[{}]", items.join(" "))
}

/// Prints a boolean as `True` or `False`; `<unset>` when absent.
pub fn truth_or_unset(value: &Value) -> &'static str {
    match value.as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}
