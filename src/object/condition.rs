//! Conditions of a status: at most one of each type, with a transition time that moves only with its status.
//!
//! Knows: how conditions are found, set and removed. Start reading at [`set`]; [`Object::set_condition`](super::Object::set_condition) is
//! the same for an object.

use super::{Time, time};
use serde_json::{Value, json};

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Value], condition_type: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition["type"] == condition_type)
}

/// Whether the condition of a type is True.
pub fn is_true(conditions: &[Value], condition_type: &str) -> bool {
    find(conditions, condition_type).is_some_and(|condition| condition["status"] == "True")
}

/// Creates a condition with `now` as its transition time.
pub fn new(condition_type: &str, status: &str, reason: &str, message: &str, now: Time) -> Value {
    json!({
        "type": condition_type, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": time::rfc3339(now),
    })
}

/// Puts a condition in the place of the one of its type, or appends it. Keeps the transition time when the status stays the same.
pub fn set(conditions: &mut Vec<Value>, mut new: Value) {
    let Some(known) = conditions.iter_mut().find(|known| known["type"] == new["type"]) else {
        return conditions.push(new);
    };
    if known["status"] == new["status"] {
        new["lastTransitionTime"] = known["lastTransitionTime"].take();
    }
    *known = new;
}

/// Gives a condition another status, with `now` as its transition time, and leaves its other fields as they are.
pub fn change(known: &mut Value, status: &str, reason: &str, message: &str, now: Time) {
    known["status"] = status.into();
    known["reason"] = reason.into();
    known["message"] = message.into();
    known["lastTransitionTime"] = time::rfc3339(now).into();
}

/// Removes the condition of a type.
pub fn remove(conditions: &mut Vec<Value>, condition_type: &str) {
    conditions.retain(|condition| condition["type"] != condition_type);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;

    #[test]
    fn set_condition_keeps_its_place_and_its_time_while_the_status_stays() {
        let at = |second| Time::from_second(second).unwrap();
        let mut object = Object(json!({}));
        object.set_condition(new("A", "False", "First", "", at(1)));
        object.set_condition(new("B", "True", "First", "", at(1)));
        object.set_condition(new("A", "False", "Second", "", at(2)));
        assert_eq!(object.condition("A"), Some(&new("A", "False", "Second", "", at(1))));
        object.set_condition(new("A", "True", "Third", "", at(3)));
        let expected = [new("A", "True", "Third", "", at(3)), new("B", "True", "First", "", at(1))];
        assert_eq!(object.items(&["status", "conditions"]), expected);
    }
}
