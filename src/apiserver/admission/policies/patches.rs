//! Applies the value of a mutation's expression: an apply configuration or a JSON patch (`plugin/policy/mutating/patch`).

use crate::cel::value::{List, Map, MapKey};
use crate::cel::{EvalError, Value, to_json};
use crate::kinds::Kind;
use crate::managed_fields;
use crate::object::Object;
use crate::object::patch::json_patch;
use serde_json::{Value as Json, json};

/// Returns the object with the patch, read and with defaults as a body is.
pub fn apply(kind: &Kind, object: &Object, value: &Value, is_patch: bool) -> Result<Object, String> {
    let patched = match (is_patch, value) {
        (true, Value::List(operations)) => patch_json(object, operations)?,
        (false, Value::Map(configuration @ Map::Message(..))) => merge(kind, object, configuration)?,
        _ => return Err("type mismatch: the expression does not evaluate to a patch".into()),
    };
    let mut unknown = Vec::new();
    let read = kind.normalized(&patched, &mut |field| unknown.push(field));
    let read = read.map_err(|error| format!("the patched object cannot be read: {error}"))?;
    match unknown.first() {
        Some(field) if is_patch => Err(format!("strict decoding error: {}", field.complaint())),
        Some(field) => Err(format!(
            "error applying patch: failed to convert patch object to typed object: .{}: field not declared in schema",
            field.path
        )),
        None => Ok(Object(read)),
    }
}

fn merge(kind: &Kind, object: &Object, configuration: &Map) -> Result<Json, String> {
    check_names(configuration, "Object").map_err(|why| format!("type mismatch: {why}"))?;
    let value = to_json(&Value::Map(configuration.clone())).map_err(|why| why.to_string())?;
    managed_fields::merge_without_owner(kind, object, &value).map_err(|why| format!("error applying patch: {why}"))
}

/// Checks that the types of nested configurations are named after their places.
fn check_names(configuration: &Map, place: &str) -> Result<(), String> {
    let Map::Message(name, fields) = configuration else { return Ok(()) };
    if &**name != place {
        return Err(format!(
            "unexpected type name {name:?}, expected {place:?}, which matches field name path from root Object type"
        ));
    }
    for (field, value) in fields.iter() {
        if let MapKey::String(field) = field {
            check_value(value, &format!("{place}.{field}"))?;
        }
    }
    Ok(())
}

fn check_value(value: &Value, place: &str) -> Result<(), String> {
    match value {
        Value::Map(map) => check_names(map, place),
        Value::List(list) => list.iter().filter_map(Result::ok).try_for_each(|item| check_value(&item, place)),
        _ => Ok(()),
    }
}

fn patch_json(object: &Object, operations: &List) -> Result<Json, String> {
    let wrong = |why: EvalError| why.to_string();
    let mut list = Vec::new();
    for operation in operations.iter() {
        let Value::Map(operation) = operation.map_err(wrong)? else {
            return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".into());
        };
        let mut made = json!({});
        for field in ["op", "path", "from", "value"] {
            if let Some(value) = operation.field(field).map_err(wrong)? {
                made[field] = to_json(&value).map_err(wrong)?;
            }
        }
        list.push(made);
    }
    match json_patch(&object.0, &Json::Array(list)) {
        Ok(patched) => Ok(patched),
        // A test that fails leaves the object as it is.
        Err(why) if why.is_failed_test() => Ok(object.0.clone()),
        Err(why) => Err(format!("JSON Patch: {why}")),
    }
}
