//! Statuses: written only when they differ.

use crate::object::Object;
use crate::world::{AppliedFields, Plan, WriteVerb};
use serde_json::{Map, Value};

/// Adds a write of the status to the plan, if it differs from the object's status.
pub fn write(plan: &mut Plan, mut object: Object, status: Value, why: impl Into<String>) {
    let empty = Value::Object(Map::new());
    if *object.value_at(&["status"]).unwrap_or(&empty) != status {
        object.set(&["status"], status);
        plan.write(WriteVerb::Status(object), why);
    }
}

/// Adds an apply of these fields of the status to the plan, if it differs from the object's status.
pub fn apply(
    plan: &mut Plan,
    mut object: Object,
    status: Value,
    fields: &'static AppliedFields,
    why: impl Into<String>,
) {
    if object.value_at(&["status"]) != Some(&status) {
        object.set(&["status"], status);
        plan.write(WriteVerb::Apply { object, fields }, why);
    }
}

/// A copy of the object's status, to be changed.
pub fn status_map(object: &Object) -> Map<String, Value> {
    object.value_at(&["status"]).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Sets a count that Kubernetes leaves out when it is zero.
pub fn set_count(status: &mut Map<String, Value>, name: &str, count: i64) {
    if count == 0 {
        status.remove(name);
    } else {
        status.insert(name.into(), count.into());
    }
}

/// Sets the list of conditions, left out when it is empty.
pub fn set_conditions(status: &mut Map<String, Value>, conditions: Vec<Value>) {
    if conditions.is_empty() {
        status.remove("conditions");
    } else {
        status.insert("conditions".into(), conditions.into());
    }
}
