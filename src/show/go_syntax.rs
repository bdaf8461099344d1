//! Values as Go's `fmt` writes them.

use serde_json::Value;

/// `fmt.Sprint`: `map[a:b]`, `[a b]`.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

/// `%#v`: `map[string]interface {}{"a":"b"}`.
pub fn literal(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key:?}:{}", literal(value))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}
