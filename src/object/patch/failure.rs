//! The error texts of JSON patches, in the words of the API server's library (`evanphx/json-patch`).
//!
//! Never: applies an operation. Start reading at [`describe`].

use json_patch::PatchOperation;
use serde_json::Value;

/// The end of the text for a `test` whose value is another one.
pub const TEST_FAILED: &str = "test failed";
const MISSING: &str = "missing value";
const INVALID_INDEX: &str = "invalid index referenced";

/// Says why an operation cannot be applied to a value.
pub fn describe(operation: &PatchOperation, value: &Value) -> String {
    match operation {
        PatchOperation::Add(add) => {
            let path = add.path.as_str();
            match find_parent(value, path) {
                None => format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}"),
                Some(parent) => format!("error in add for path: '{path}': {}", parent.refusal_of_insertion()),
            }
        }
        PatchOperation::Remove(remove) => {
            let path = remove.path.as_str();
            match find_parent(value, path) {
                None => format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}"),
                Some(parent) => format!("error in remove for path: '{path}': {}", parent.refusal_of_removal()),
            }
        }
        PatchOperation::Replace(replace) => {
            let path = replace.path.as_str();
            let what = find_parent(value, path).map_or("path", |_| "key");
            format!("replace operation does not apply: doc is missing {what}: {path}: {MISSING}")
        }
        PatchOperation::Test(test) => {
            let path = test.path.as_str();
            match find_parent(value, path) {
                None => format!("test operation does not apply: is missing path: {path}: {MISSING}"),
                Some(parent) if parent.list.is_some() && value.pointer(path).is_none() => {
                    format!("error in test for path: '{path}': {}", parent.refusal_of_removal())
                }
                Some(_) => format!("testing value {path} failed: {TEST_FAILED}"),
            }
        }
        PatchOperation::Move(step) => describe_transfer("move", step.from.as_str(), step.path.as_str(), value),
        PatchOperation::Copy(step) => describe_transfer("copy", step.from.as_str(), step.path.as_str(), value),
    }
}

fn describe_transfer(word: &str, from: &str, path: &str, value: &Value) -> String {
    let Some(source) = find_parent(value, from) else {
        return format!("{word} operation does not apply: doc is missing from path: {from}: {MISSING}");
    };
    if value.pointer(from).is_none() {
        return format!("error in {word} for path: '{}': {}", source.key, source.refusal_of_removal());
    }
    match find_parent(value, path) {
        Some(parent) if parent.list.is_some() => {
            format!("error in {word} for path: '{path}': {}", parent.refusal_of_insertion())
        }
        // A value that would move into itself is gone when its place is looked for.
        _ => format!("{word} operation does not apply: doc is missing destination path: {path}: {MISSING}"),
    }
}

/// The list or map that has or gets a value.
struct Parent {
    /// The number of items of a list.
    list: Option<usize>,
    key: String,
}

fn find_parent(value: &Value, path: &str) -> Option<Parent> {
    let (parent, key) = path.rsplit_once('/')?;
    let key = key.replace("~1", "/").replace("~0", "~");
    match value.pointer(parent)? {
        Value::Array(list) => Some(Parent { list: Some(list.len()), key }),
        Value::Object(_) => Some(Parent { list: None, key }),
        _ => None,
    }
}

impl Parent {
    fn refusal_of_insertion(&self) -> String {
        let key = &self.key;
        match key.parse::<i64>() {
            Ok(index) => format!("Unable to access invalid index: {index}: {INVALID_INDEX}"),
            Err(_) => format!("value was not a proper array index: '{key}': {}", not_a_number(key)),
        }
    }

    fn refusal_of_removal(&self) -> String {
        let key = &self.key;
        match (self.list, key.parse::<i64>()) {
            (None, _) => format!("Unable to remove nonexistent key: {key}: {MISSING}"),
            (Some(_), Ok(index)) => format!("Unable to access invalid index: {index}: {INVALID_INDEX}"),
            (Some(_), Err(_)) => not_a_number(key),
        }
    }
}

fn not_a_number(key: &str) -> String {
    format!("strconv.Atoi: parsing {key:?}: invalid syntax")
}
