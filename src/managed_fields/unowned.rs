//! Merges a configuration into an object as server-side apply does, but without an owner: for MutatingAdmissionPolicies.

use super::granularity::{ListShape, ValueShape};
use super::typed;
use crate::kinds::Kind;
use crate::object::Object;
use serde_json::Value;

/// Merges a configuration into an object of a kind. Atomic lists, maps and structs cannot be part of it, since all that it does not
/// name in them would be lost.
pub fn merge_without_owner(kind: &Kind, live: &Object, configuration: &Value) -> Result<Value, String> {
    let of = ValueShape::for_object(kind, live);
    let mut atomics = Vec::new();
    find_atomics(configuration, of, "", &mut atomics);
    if !atomics.is_empty() {
        let atomics = atomics.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {atomics}"));
    }
    Ok(typed::merge(&live.0, configuration, of))
}

/// Adds the paths of the atomic lists, maps and structs of a value.
fn find_atomics(value: &Value, of: ValueShape, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(_) if of.is_atomic() => found.push(path.to_owned()),
        Value::Object(fields) => {
            for (name, value) in fields {
                let of = of.field(name).map_or(ValueShape::Unknown, |(of, _)| of);
                find_atomics(value, of, &format!("{path}.{name}"), found);
            }
        }
        Value::Array(_) if matches!(of.list(), ListShape::Atomic) => found.push(path.to_owned()),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, item)| find_atomics(item, of.item(), &format!("{path}[{index}]"), found));
        }
        _ => {}
    }
}
