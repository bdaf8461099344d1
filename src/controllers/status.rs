//! Statuses and conditions: written only when they differ, with transition times that change only with the value.

use crate::object::{Object, Time, time};
use crate::world::{Plan, WriteVerb};
use serde_json::{Map, Value, json};

/// Adds a write of the status to the plan, if it differs from the object's status.
pub fn write(plan: &mut Plan, mut object: Object, status: Value, why: impl Into<String>) {
    let empty = Value::Object(Map::new());
    if *object.value_at(&["status"]).unwrap_or(&empty) != status {
        object.set(&["status"], status);
        plan.write(WriteVerb::Status(object), why);
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

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// Whether the condition of a type is True.
pub fn is_true(conditions: &[Value], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Creates a condition with `now` as its transition time.
pub fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Time) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time::rfc3339(now),
    })
}

/// Replaces or appends a condition. Keeps the transition time when the value stays the same.
pub fn set(conditions: &mut Vec<Value>, mut new: Value) {
    let Some(at) = conditions.iter().position(|known| known["type"] == new["type"]) else {
        return conditions.push(new);
    };
    if conditions[at]["status"] == new["status"] {
        new["lastTransitionTime"] = conditions[at]["lastTransitionTime"].clone();
    }
    conditions[at] = new;
}
