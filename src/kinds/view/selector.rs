//! Label selectors as people read them, and whether one selects an object.

use super::body::Body;
use crate::object::Object;
use serde_json::Value;

/// `a=b,c in (d,e),!f`, sorted by key; empty for the empty one.
pub fn text(selector: &Value) -> String {
    let mut terms: Vec<(String, String)> =
        selector.pairs("matchLabels").into_iter().map(|(key, value)| (key.to_owned(), format!("{key}={value}"))).collect();
    terms.extend(selector.list("matchExpressions").iter().map(|term| (term.text("key").to_owned(), expression(term))));
    terms.sort_by(|left, right| left.0.cmp(&right.0));
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

/// The same, `<none>` for the empty one.
pub fn text_or_none(selector: &Value) -> String {
    let text = text(selector);
    if text.is_empty() { "<none>".into() } else { text }
}

fn expression(term: &Value) -> String {
    let key = term.text("key");
    let mut values = term.texts("values");
    values.sort_unstable();
    let values = values.join(",");
    match term.text("operator") {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "DoesNotExist" => format!("!{key}"),
        _ => key.to_owned(),
    }
}

/// Whether a `LabelSelector` selects an object by its labels.
pub fn matches(selector: &Value, object: &Object) -> bool {
    let equal = |(key, value): &(&str, String)| object.label(key) == Some(value);
    selector.pairs("matchLabels").iter().all(equal)
        && selector.list("matchExpressions").iter().all(|term| {
            let label = object.label(term.text("key"));
            let among = || label.is_some_and(|label| term.texts("values").contains(&label));
            match term.text("operator") {
                "In" => among(),
                "NotIn" => !among(),
                "Exists" => label.is_some(),
                "DoesNotExist" => label.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_and_matches() {
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "DoesNotExist"},
            {"key": "d", "operator": "NotIn", "values": ["z"]},
        ]});
        assert_eq!(text(&selector), "a in (x,y),b=1,!c,d notin (z)");
        let labelled = |labels: Value| Object(json!({"metadata": {"labels": labels}}));
        assert!(matches(&selector, &labelled(json!({"a": "x", "b": "1"}))));
        assert!(!matches(&selector, &labelled(json!({"a": "x", "b": "1", "c": ""}))));
        assert!(!matches(&selector, &labelled(json!({"b": "1"}))));
    }
}
