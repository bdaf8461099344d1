//! The text of a JSON scalar.

use serde_json::Value;

/// Returns a text as it is, and any other value as JSON.
pub fn scalar_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Like [`scalar_text`]; empty for null.
pub fn scalar_text_or_empty(value: &Value) -> String {
    if value.is_null() { String::new() } else { scalar_text(value) }
}
