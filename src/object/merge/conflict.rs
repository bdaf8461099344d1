//! Conflicts between two patches: the same field changed in different ways.

use super::list::{self, ElementIdentity, ElementPositions};
use super::schema::{MergeField, MergeSchemaRef, MergeStrategy};
use super::{MergeResult, ObjectFields, PATCH, RETAIN_KEYS};
use serde_json::Value;

/// Whether two strategic merge patches of one object conflict.
pub(super) fn conflicts(left: &ObjectFields, right: &ObjectFields, schema: MergeSchemaRef) -> MergeResult<bool> {
    for (key, left) in left.iter().filter(|(key, _)| *key != PATCH && *key != RETAIN_KEYS) {
        if let Some(right) = right.get(key)
            && values(left, right, schema.field(key))?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn values(left: &Value, right: &Value, field: MergeField) -> MergeResult<bool> {
    match (left, right) {
        // A directive applies to the whole map, so different directives conflict.
        (Value::Object(left), Value::Object(right)) => match (left.get(PATCH), right.get(PATCH)) {
            (a, b) if a != b => Ok(true),
            _ if field.strategy == MergeStrategy::Replace => Ok(false),
            _ => conflicts(left, right, field.of),
        },
        (Value::Array(left), Value::Array(right)) => lists(left, right, field),
        _ => Ok(left != right),
    }
}

fn lists(left: &[Value], right: &[Value], field: MergeField) -> MergeResult<bool> {
    if let MergeStrategy::ByKey(key) = field.strategy
        && list::holds_maps(left, right)?
    {
        let places = ElementPositions::index(right, ElementIdentity::Key(key));
        for element in left {
            if let Some(index) = places.get(element)
                && values(element, &right[index], MergeField { strategy: MergeStrategy::Plain, ..field })?
            {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    Ok(field.strategy != MergeStrategy::Set && left != right)
}

/// Whether two JSON merge patches conflict.
pub(super) fn conflicts_in_json(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.iter().any(|(key, left)| right.get(key).is_some_and(|right| conflicts_in_json(left, right)))
        }
        _ => left != right,
    }
}
