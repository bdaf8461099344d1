//! Differences between two versions of an object, field by field.
//!
//! Lists of maps are compared by the field that names their items, so that `containers[web].image` stays the same field when
//! an item before it is removed. Start reading at [`field_changes`].

use crate::kinds::shared::manifest_folder;
use crate::object::{LAST_APPLIED, scalar_text};
use serde_json::{Map, Value};

/// Fields that name the items of a list, in the order in which they are tried.
const ITEM_NAMES: [&str; 7] = ["name", "type", "key", "containerPort", "port", "mountPath", "uid"];

/// Maximum number of changes that are returned; the rest is counted.
const MAX_CHANGES: usize = 200;

/// Longest value, in characters.
const MAX_VALUE_CHARACTERS: usize = 60;

/// Deepest field that is compared by itself.
const MAX_DEPTH: usize = 32;

/// Metadata that every write changes, or that repeats other fields.
const BOOKKEEPING: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];

/// Annotations that repeat other fields.
const REPEATING: [&str; 2] = [LAST_APPLIED, manifest_folder::ANNOTATION];

/// The change of one field; a missing value means that there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChange {
    /// The path, such as `spec.template.spec.containers[web].image`.
    pub path: String,
    /// The value before.
    pub before: Option<String>,
    /// The value after.
    pub after: Option<String>,
}

/// Returns the changes from one version to another, without bookkeeping; `with_status` includes the status. The values of a
/// Secret are hidden.
pub fn field_changes(before: &Value, after: &Value, with_status: bool) -> Vec<FieldChange> {
    let (mut before, mut after) = (cleaned(before, with_status), cleaned(after, with_status));
    if after["kind"] == "Secret" {
        hide_values(&mut before, &mut after);
    }
    let mut changes = Vec::new();
    compare("", Some(&before), Some(&after), 0, &mut changes);
    changes
}

/// Returns a version without bookkeeping, and without status on request.
fn cleaned(object: &Value, with_status: bool) -> Value {
    let mut object = object.clone();
    if !with_status && let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !BOOKKEEPING.contains(&field.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| !REPEATING.contains(&name.as_str()));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

/// Replaces the values of a Secret by stars; different ones stay different.
fn hide_values(before: &mut Value, after: &mut Value) {
    for part in ["data", "stringData"] {
        let old = before[part].as_object().cloned().unwrap_or_default();
        for (name, value) in after[part].as_object_mut().into_iter().flatten() {
            let is_changed = old.get(name).is_some_and(|old| old != value);
            *value = Value::from(if is_changed { "*** (after)" } else { "***" });
        }
        let new = after[part].as_object().cloned().unwrap_or_default();
        for (name, value) in before[part].as_object_mut().into_iter().flatten() {
            let is_changed = new.get(name).is_some_and(|new| new == "*** (after)");
            *value = Value::from(if is_changed { "*** (before)" } else { "***" });
        }
    }
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, depth: usize, changes: &mut Vec<FieldChange>) {
    if before == after || changes.len() >= MAX_CHANGES {
        return;
    }
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) if depth < MAX_DEPTH => {
            compare_maps(path, before, after, depth, changes);
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) if depth < MAX_DEPTH => {
            compare_lists(path, before, after, changes, depth);
        }
        _ => changes.push(FieldChange { path: path.to_owned(), before: before.map(shown), after: after.map(shown) }),
    }
}

fn compare_maps(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    depth: usize,
    changes: &mut Vec<FieldChange>,
) {
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let path = match (path.is_empty(), name.contains(['.', '/'])) {
            (true, _) => name.clone(),
            (false, false) => format!("{path}.{name}"),
            (false, true) => format!("{path}[{name}]"),
        };
        compare(&path, before.get(name), after.get(name), depth + 1, changes);
    }
}

fn compare_lists(path: &str, before: &[Value], after: &[Value], changes: &mut Vec<FieldChange>, depth: usize) {
    let Some(name) = ITEM_NAMES.iter().find(|name| names_all_items(before, name) && names_all_items(after, name))
    else {
        let change = |list: &[Value]| Some(shown(&Value::from(list.to_vec())));
        changes.push(FieldChange { path: path.to_owned(), before: change(before), after: change(after) });
        return;
    };
    let find = |list: &'_ [Value], wanted: &Value| list.iter().position(|item| item[name] == *wanted);
    for item in before {
        let other = find(after, &item[name]).map(|at| &after[at]);
        compare(&format!("{path}[{}]", scalar_text(&item[name])), Some(item), other, depth + 1, changes);
    }
    for item in after.iter().filter(|item| find(before, &item[name]).is_none()) {
        compare(&format!("{path}[{}]", scalar_text(&item[name])), None, Some(item), depth + 1, changes);
    }
}

/// Whether a field names each item of a list, and each differently.
fn names_all_items(list: &[Value], name: &str) -> bool {
    let mut names: Vec<String> =
        list.iter().filter(|item| !item[name].is_null()).map(|item| scalar_text(&item[name])).collect();
    names.sort();
    names.dedup();
    names.len() == list.len()
}

/// A value in one line, shortened.
fn shown(value: &Value) -> String {
    let text = scalar_text(value).split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= MAX_VALUE_CHARACTERS {
        return text;
    }
    let kept: String = text.chars().take(MAX_VALUE_CHARACTERS - 3).collect();
    format!("{kept}...")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(before: Value, after: Value, with_status: bool) -> Vec<String> {
        let changes = field_changes(&before, &after, with_status);
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        changes
            .iter()
            .map(|change| format!("{}: {} -> {}", change.path, text(&change.before), text(&change.after)))
            .collect()
    }

    #[test]
    fn items_of_lists_are_compared_by_their_names() {
        let containers = |list: Value| json!({"spec": {"containers": list}});
        let before = containers(json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]));
        let after = containers(json!([{"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"}]));
        let expected = [
            r#"spec.containers[a]: {"image":"a:1","name":"a"} -> none"#,
            "spec.containers[b].image: b:1 -> b:2",
            r#"spec.containers[c]: none -> {"image":"c:1","name":"c"}"#,
        ];
        assert_eq!(lines(before, after, false), expected);
        let args = |list: Value| json!({"args": list});
        assert_eq!(lines(args(json!(["a"])), args(json!(["a", "b"])), false), [r#"args: ["a"] -> ["a","b"]"#]);
    }

    #[test]
    fn bookkeeping_and_status_are_left_out() {
        let object = |replicas: i64, ready: i64| {
            let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": replicas.to_string()});
            let metadata = json!({"generation": replicas, "resourceVersion": "1", "annotations": annotations});
            json!({"metadata": metadata, "spec": {"replicas": replicas}, "status": {"ready": ready}})
        };
        assert_eq!(lines(object(1, 0), object(3, 1), false), ["spec.replicas: 1 -> 3"]);
        assert_eq!(lines(object(1, 0), object(1, 1), false), [""; 0]);
        assert_eq!(lines(object(1, 0), object(1, 1), true), ["status.ready: 0 -> 1"]);
    }

    #[test]
    fn values_of_secrets_are_hidden() {
        let secret = |value: &str| json!({"kind": "Secret", "data": {"password": value, "user": "bWU="}});
        assert_eq!(lines(secret("b25l"), secret("dHdv"), false), ["data.password: *** (before) -> *** (after)"]);
    }

    #[test]
    fn names_with_dots_stand_in_brackets_and_long_values_are_shortened() {
        let labels = |value: &str| json!({"metadata": {"labels": {"app.kubernetes.io/name": value}}});
        let long = "x".repeat(100);
        let expected = format!("metadata.labels[app.kubernetes.io/name]: a -> {}...", "x".repeat(57));
        assert_eq!(lines(labels("a"), labels(&long), false), [expected]);
    }
}
