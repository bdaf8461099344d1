//! JSON patch (RFC 6902) and JSON merge patch (RFC 7386).
//!
//! Applies patches within Kubernetes' limits. Never: depends on a kind; [`super::merge`] merges lists by key. Start
//! reading at [`json_patch()`].

mod failure;

use super::yaml::MAX_DEPTH;
use json_patch::{AddOperation, PatchOperation};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt;

/// Maximum number of operations in one JSON patch (`maxJSONPatchOperations` of the API server).
const MAX_OPERATIONS: usize = 10_000;
/// Maximum bytes of JSON that the `copy` operations of one patch may add, since copies of copies grow exponentially.
const COPY_BUDGET: usize = 3 * 1024 * 1024;
/// Maximum number of values that the operations of one patch may visit or move, since each insertion into a list moves those after it, and
/// each value that moves is measured. A patch is applied while the cluster's file is locked: this takes about a tenth of a second.
const STEP_BUDGET: usize = 10_000_000;

/// Error of a JSON patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// The patch is not a list of operations.
    Decode(String),
    /// The result is too large.
    TooLarge(String),
    /// An operation cannot be applied to the object, or a `test` fails.
    Apply(String),
}

impl PatchError {
    /// Whether the value that a `test` compares is another one.
    pub fn is_failed_test(&self) -> bool {
        matches!(self, PatchError::Apply(text) if text.ends_with(failure::TEST_FAILED))
    }
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatchError::Decode(text) | PatchError::TooLarge(text) | PatchError::Apply(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for PatchError {}

/// Applies a JSON patch, either all operations or none.
pub fn json_patch(value: &Value, operations: &Value) -> Result<Value, PatchError> {
    let count = operations.as_array().map_or(0, Vec::len);
    if count > MAX_OPERATIONS {
        let text = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(PatchError::TooLarge(text));
    }
    let decode = |error: serde_json::Error| PatchError::Decode(error.to_string());
    let operations = Vec::<Value>::deserialize(operations).map_err(decode)?;
    let mut patched = value.clone();
    let mut copied = 0;
    let mut steps = STEP_BUDGET;
    for mut operation in operations {
        check_pointers(&operation)?;
        complete_value(&mut operation);
        resolve_negative_indexes(&mut operation, &patched);
        if is_test_of_absent_key(&operation, &patched) {
            continue;
        }
        let operation = PatchOperation::deserialize(operation).map_err(decode)?;
        check_costs(&operation, &patched, &mut steps)?;
        if let PatchOperation::Copy(copy) = &operation {
            copied += patched.pointer(copy.from.as_str()).map_or(0, |value| value.to_string().len());
            if copied > COPY_BUDGET {
                let what = "the accumulated size increase of copy operation";
                let text = format!("Unable to copy, {what} is {copied}, exceeding the limit {COPY_BUDGET}");
                return Err(PatchError::TooLarge(text));
            }
        }
        let operation = with_missing_key(operation, &patched);
        // A step that fails leaves the value as it was.
        json_patch::patch(&mut patched, std::slice::from_ref(&operation))
            .map_err(|_| PatchError::Apply(failure::describe(&operation, &patched)))?;
    }
    Ok(patched)
}

fn too_deep() -> PatchError {
    PatchError::TooLarge(format!("the patched object exceeds the max depth of {MAX_DEPTH}"))
}

/// Returns the number of keys and indexes of a JSON pointer.
fn pointer_depth(pointer: &str) -> usize {
    pointer.bytes().filter(|byte| *byte == b'/').count()
}

/// Refuses pointers that lead deeper than any object.
fn check_pointers(operation: &Value) -> Result<(), PatchError> {
    let pointers = ["path", "from"].into_iter().filter_map(|field| operation[field].as_str());
    pointers.map(pointer_depth).all(|depth| depth <= MAX_DEPTH).then_some(()).ok_or_else(too_deep)
}

/// Adds `null` as the value of an operation that has none, as the library of the API server does.
fn complete_value(operation: &mut Value) {
    let takes_value = matches!(operation["op"].as_str(), Some("add" | "replace" | "test"));
    if let Some(fields) = operation.as_object_mut().filter(|_| takes_value) {
        fields.entry("value").or_insert(Value::Null);
    }
}

/// Refuses an operation that would nest the object too deeply, also for a moment, or that takes too many steps.
fn check_costs(operation: &PatchOperation, value: &Value, steps: &mut usize) -> Result<(), PatchError> {
    let (path, source, placed) = match operation {
        PatchOperation::Add(add) => (add.path.as_str(), None, Some(&add.value)),
        PatchOperation::Replace(replace) => (replace.path.as_str(), None, Some(&replace.value)),
        PatchOperation::Copy(copy) => (copy.path.as_str(), None, value.pointer(copy.from.as_str())),
        PatchOperation::Move(from) => (from.path.as_str(), Some(from.from.as_str()), value.pointer(from.from.as_str())),
        PatchOperation::Remove(remove) => (remove.path.as_str(), None, None),
        PatchOperation::Test(_) => return Ok(()),
    };
    for pointer in std::iter::once(path).chain(source) {
        let list = pointer.rsplit_once('/').and_then(|(parent, _)| value.pointer(parent)?.as_array());
        spend(steps, list.map_or(0, Vec::len))?;
    }
    let Some(placed) = placed else { return Ok(()) };
    spend(steps, count_values(placed, *steps))?;
    if is_deeper_than(placed, MAX_DEPTH - pointer_depth(path)) { Err(too_deep()) } else { Ok(()) }
}

fn spend(steps: &mut usize, count: usize) -> Result<(), PatchError> {
    *steps = steps.checked_sub(count).ok_or_else(|| {
        PatchError::TooLarge(format!("the operations of the JSON patch move more than {STEP_BUDGET} values"))
    })?;
    Ok(())
}

/// Counts the values within a value, itself included, up to more than `limit`.
pub fn count_values(value: &Value, limit: usize) -> usize {
    let add = |count: usize, inner: &Value| match count > limit {
        true => count,
        false => count + count_values(inner, limit - count),
    };
    match value {
        Value::Array(list) => list.iter().fold(1, add),
        Value::Object(fields) => fields.values().fold(1, add),
        _ => 1,
    }
}

/// Replaces negative indexes in the pointers of an operation: they count from the end of a list, as in the library of the API server.
fn resolve_negative_indexes(operation: &mut Value, value: &Value) {
    let is_insertion = matches!(operation["op"].as_str(), Some("add" | "copy" | "move"));
    for (field, is_insertion) in [("path", is_insertion), ("from", false)] {
        if let Some(pointer) = operation[field].as_str().filter(|pointer| pointer.contains("/-")) {
            operation[field] = with_positive_indexes(pointer, value, is_insertion).into();
        }
    }
}

fn with_positive_indexes(pointer: &str, value: &Value, is_insertion: bool) -> String {
    let mut resolved = String::new();
    let mut tokens = pointer.split('/').skip(1).peekable();
    while let Some(token) = tokens.next() {
        let list = value.pointer(&resolved).and_then(Value::as_array);
        // An insertion at -1 appends.
        let end = list.map_or(0, Vec::len) + usize::from(is_insertion && tokens.peek().is_none());
        let from_end = token.strip_prefix('-').and_then(|number| number.parse::<usize>().ok());
        let index = list.and(from_end).filter(|from_end| *from_end > 0).and_then(|from_end| end.checked_sub(from_end));
        resolved.push('/');
        resolved.push_str(&index.map_or(token.to_owned(), |index| index.to_string()));
    }
    resolved
}

/// Whether an operation tests that a map does not have a key: the API server takes null as the value of a missing key.
fn is_test_of_absent_key(operation: &Value, value: &Value) -> bool {
    let path = operation["path"].as_str().unwrap_or_default();
    let is_absent = || is_in_map(value, path) && value.pointer(path).is_none_or(Value::is_null);
    operation["op"] == "test" && operation["value"].is_null() && is_absent()
}

/// Converts `replace` of a missing key to `add`, since the library of the API server and kustomize allows it.
fn with_missing_key(operation: PatchOperation, value: &Value) -> PatchOperation {
    match operation {
        PatchOperation::Replace(replace) if is_in_map(value, replace.path.as_str()) => {
            PatchOperation::Add(AddOperation { path: replace.path, value: replace.value })
        }
        operation => operation,
    }
}

fn is_in_map(value: &Value, path: &str) -> bool {
    path.rsplit_once('/').and_then(|(parent, _)| value.pointer(parent)).is_some_and(Value::is_object)
}

/// Whether lists and maps are nested deeper than `limit` levels.
pub fn is_deeper_than(value: &Value, limit: usize) -> bool {
    let deeper = |inner: &Value| limit == 0 || is_deeper_than(inner, limit - 1);
    match value {
        Value::Array(list) => list.iter().any(deeper),
        Value::Object(fields) => fields.values().any(deeper),
        _ => false,
    }
}

/// Applies a merge patch: maps merge, `null` deletes, everything else replaces.
pub fn json_merge(value: &Value, patch: &Value) -> Value {
    let mut merged = value.clone();
    json_patch::merge(&mut merged, patch);
    merged
}

/// Creates the merge patch from one value to another.
pub fn create_json_merge(original: &Value, modified: &Value) -> Value {
    match (original, modified) {
        (Value::Object(original), Value::Object(modified)) => Value::Object(map_difference(original, modified)),
        _ => modified.clone(),
    }
}

fn map_difference(original: &Map<String, Value>, modified: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, new) in modified {
        match (original.get(key), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                patch.insert(key.clone(), map_difference(old, new).into());
            }
            _ => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    for key in original.keys().filter(|key| !modified.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_apply_in_order() {
        let value = json!({"a": {"b": [1, 2]}, "x/y": 0});
        for (operations, wanted) in [
            (json!([]), value.clone()),
            (json!([{"op": "add", "path": "/a/b/-", "value": 3}]), json!({"a": {"b": [1, 2, 3]}, "x/y": 0})),
            (json!([{"op": "add", "path": "/a/b/0", "value": 0}]), json!({"a": {"b": [0, 1, 2]}, "x/y": 0})),
            (json!([{"op": "replace", "path": "/x~1y", "value": 1}]), json!({"a": {"b": [1, 2]}, "x/y": 1})),
            (json!([{"op": "replace", "path": "/a/c", "value": 1}]), json!({"a": {"b": [1, 2], "c": 1}, "x/y": 0})),
            (json!([{"op": "test", "path": "/x~1y", "value": 0}, {"op": "remove", "path": "/a"}]), json!({"x/y": 0})),
            (json!([{"op": "test", "path": "/none", "value": null}]), value.clone()),
            (json!([{"op": "add", "path": "/a/c"}]), json!({"a": {"b": [1, 2], "c": null}, "x/y": 0})),
            (json!([{"op": "replace", "path": "/a"}]), json!({"a": null, "x/y": 0})),
            (json!([{"op": "test", "path": "/a/none"}]), value.clone()),
            (json!([{"op": "add", "path": "/a/b/-1", "value": 3}]), json!({"a": {"b": [1, 2, 3]}, "x/y": 0})),
            (json!([{"op": "remove", "path": "/a/b/-2"}]), json!({"a": {"b": [2]}, "x/y": 0})),
            (json!([{"op": "test", "path": "/a/b/-1", "value": 2}]), value.clone()),
            (json!([{"op": "copy", "from": "/a/b/-1", "path": "/c"}]), json!({"a": {"b": [1, 2]}, "c": 2, "x/y": 0})),
            (json!([{"op": "move", "from": "/a/b", "path": "/c"}]), json!({"a": {}, "c": [1, 2], "x/y": 0})),
            (json!([{"op": "copy", "from": "/a/b/1", "path": "/a/c"}]), json!({"a": {"b": [1, 2], "c": 2}, "x/y": 0})),
        ] {
            assert_eq!(json_patch(&value, &operations), Ok(wanted), "{operations}");
        }
    }

    #[test]
    fn patch_that_cannot_be_applied_is_refused() {
        let value = json!({"a": {"b": 1}, "l": [0]});
        let missing = |text: &str| format!("{text}: missing value");
        let index = |text: &str, index: i64| {
            format!("{text}: Unable to access invalid index: {index}: invalid index referenced")
        };
        let not_a_number = "strconv.Atoi: parsing \"x\": invalid syntax";
        for (operation, why) in [
            (json!({"op": "test", "path": "/a/b", "value": 2}), "testing value /a/b failed: test failed".to_owned()),
            (
                json!({"op": "test", "path": "/a/none", "value": 1}),
                "testing value /a/none failed: test failed".to_owned(),
            ),
            (
                json!({"op": "test", "path": "/none/x", "value": null}),
                missing("test operation does not apply: is missing path: /none/x"),
            ),
            (json!({"op": "test", "path": "/l/1", "value": null}), index("error in test for path: '/l/1'", 1)),
            (
                json!({"op": "add", "path": "/none/x", "value": 1}),
                missing("add operation does not apply: doc is missing path: \"/none/x\""),
            ),
            (json!({"op": "add", "path": "/l/3", "value": 1}), index("error in add for path: '/l/3'", 3)),
            (
                json!({"op": "add", "path": "/l/x", "value": 1}),
                format!("error in add for path: '/l/x': value was not a proper array index: 'x': {not_a_number}"),
            ),
            (
                json!({"op": "remove", "path": "/a/~1x"}),
                missing("error in remove for path: '/a/~1x': Unable to remove nonexistent key: /x"),
            ),
            (
                json!({"op": "remove", "path": "/a/b/c"}),
                missing("remove operation does not apply: doc is missing path: \"/a/b/c\""),
            ),
            (json!({"op": "remove", "path": "/l/-2"}), index("error in remove for path: '/l/-2'", -2)),
            (json!({"op": "remove", "path": "/l/x"}), format!("error in remove for path: '/l/x': {not_a_number}")),
            (
                json!({"op": "replace", "path": "/none/x", "value": 1}),
                missing("replace operation does not apply: doc is missing path: /none/x"),
            ),
            (
                json!({"op": "replace", "path": "/l/1", "value": 1}),
                missing("replace operation does not apply: doc is missing key: /l/1"),
            ),
            (
                json!({"op": "move", "from": "/a", "path": "/a/b"}),
                missing("move operation does not apply: doc is missing destination path: /a/b"),
            ),
            (
                json!({"op": "move", "from": "/a/c", "path": "/d"}),
                missing("error in move for path: 'c': Unable to remove nonexistent key: c"),
            ),
            (
                json!({"op": "copy", "from": "/x/c", "path": "/d"}),
                missing("copy operation does not apply: doc is missing from path: /x/c"),
            ),
            (json!({"op": "copy", "from": "/a", "path": "/l/5"}), index("error in copy for path: '/l/5'", 5)),
        ] {
            let failed = PatchError::Apply(why.clone());
            assert_eq!(failed.is_failed_test(), why.ends_with(": test failed"));
            assert_eq!(json_patch(&value, &json!([operation])), Err(failed), "{operation}");
        }
        for operations in [json!([{"op": "fly", "path": "/a"}]), json!({"a": 1}), json!([{"op": "add", "path": "a"}])] {
            assert!(matches!(json_patch(&value, &operations), Err(PatchError::Decode(_))), "{operations}");
        }
    }

    #[test]
    fn patches_have_limits() {
        let test = json!({"op": "test", "path": "/a", "value": "x"});
        let value = json!({"a": "x"});
        assert!(json_patch(&value, &vec![test.clone(); 10_000].into()).is_ok());
        assert!(matches!(json_patch(&value, &vec![test; 10_001].into()), Err(PatchError::TooLarge(_))));
        let long = json!({"a": "x".repeat(100_000)});
        let copy = json!({"op": "copy", "from": "/a", "path": "/b"});
        assert!(json_patch(&long, &vec![copy.clone(); 30].into()).is_ok());
        assert!(matches!(json_patch(&long, &vec![copy; 40].into()), Err(PatchError::TooLarge(_))));
        let nest = json!({"op": "copy", "from": "", "path": "/b"});
        assert!(json_patch(&value, &vec![nest.clone(); 50].into()).is_ok());
        assert!(matches!(json_patch(&value, &vec![nest; 300].into()), Err(PatchError::TooLarge(_))));
    }

    #[test]
    fn patch_never_nests_deeply_even_for_a_moment() {
        let long = "/x".repeat(90);
        let nested = (0..90).fold(json!({}), |inner, _| json!({ "x": inner }));
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": {}})];
        for _ in 0..333 {
            operations.push(json!({"op": "add", "path": "/b", "value": nested}));
            operations.push(json!({"op": "move", "from": "/a", "path": format!("/b{long}/a")}));
            operations.push(json!({"op": "move", "from": "/b", "path": "/a"}));
        }
        operations.push(json!({"op": "remove", "path": "/a"}));
        assert_eq!(json_patch(&json!({}), &operations.into()), Err(too_deep()));
        let pointer = json!([{"op": "test", "path": "/-".repeat(100_000), "value": 1}]);
        assert_eq!(json_patch(&json!({}), &pointer), Err(too_deep()));
    }

    #[test]
    fn operations_take_a_bounded_number_of_steps() {
        let list = json!({"l": vec![0; 100_000]});
        let insert = json!({"op": "add", "path": "/l/0", "value": 1});
        assert!(json_patch(&list, &vec![insert.clone(); 90].into()).is_ok());
        assert!(matches!(json_patch(&list, &vec![insert; 110].into()), Err(PatchError::TooLarge(_))));
        let there = json!({"op": "move", "from": "/l", "path": "/m"});
        let back = json!({"op": "move", "from": "/m", "path": "/l"});
        let moves: Vec<Value> = std::iter::repeat_n([there, back], 60).flatten().collect();
        assert!(json_patch(&list, &moves[..90].to_vec().into()).is_ok());
        assert!(matches!(json_patch(&list, &moves.into()), Err(PatchError::TooLarge(_))));
    }

    #[test]
    fn created_merge_patch_turns_one_value_into_the_other() {
        for (original, modified, patch) in [
            (json!({"a": 1}), json!({"a": 1}), json!({})),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1, "d": 3}}), json!({"a": {"c": null, "d": 3}})),
            (json!({"l": [1, 2]}), json!({"l": [1]}), json!({"l": [1]})),
            (json!({"a": 1}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
        ] {
            assert_eq!(create_json_merge(&original, &modified), patch);
            assert_eq!(json_merge(&original, &patch), modified);
        }
    }
}
