//! Metadata rules: fields that the server owns, whatever a client sends.

use crate::managed_fields;
use crate::object::Object;
use serde_json::Value;

/// Fields of metadata that only the server sets; an update carries them over from the stored object.
const OWNED: [&str; 5] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

/// Carries over what a writer may not change.
pub fn carry_over(new: &mut Object, old: &Object) {
    for field in OWNED {
        match old.value_at(&["metadata", field]) {
            Some(value) => new.set(&["metadata", field], value.clone()),
            None => {
                new.unset(&["metadata", field]);
            }
        }
    }
    new.unset(&["metadata", "selfLink"]);
}

/// Whether the two differ in anything but metadata and status: what `generation` counts.
pub fn spec_differs(new: &Object, old: &Object) -> bool {
    differs(&new.0, &old.0, &["metadata", "status"])
}

/// Whether the two are the same but for the revision, and for when their managers wrote: such a write is not made.
pub fn is_unchanged(new: &Object, old: &Object) -> bool {
    let (of_new, of_old) = (&new.0["metadata"], &old.0["metadata"]);
    !differs(&new.0, &old.0, &["metadata"])
        && !differs(of_new, of_old, &["resourceVersion", "managedFields"])
        && managed_fields::are_same(new, old)
}

/// Whether the two are the same but for these fields of metadata.
pub fn is_same_but_for(new: &Object, old: &Object, fields: &[&str]) -> bool {
    !differs(&new.0, &old.0, &["metadata"]) && !differs(&new.0["metadata"], &old.0["metadata"], fields)
}

/// Whether two maps differ in any field but these.
fn differs(new: &Value, old: &Value, except: &[&str]) -> bool {
    let empty = serde_json::Map::new();
    let map = |value| Value::as_object(value).unwrap_or(&empty);
    let counts = |name: &&String| !except.contains(&name.as_str());
    let (new, old) = (map(new), map(old));
    let changed = new.iter().filter(|(name, _)| counts(name)).any(|(name, value)| old.get(name) != Some(value));
    changed || old.keys().filter(counts).any(|name| !new.contains_key(name))
}

/// Drops maps and lists that Kubernetes does not store when they are empty.
pub fn drop_empty(object: &mut Object) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
        let empty = match object.value_at(&["metadata", field]) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if empty {
            object.unset(&["metadata", field]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn writer_cannot_change_what_the_server_owns() {
        let old = Object(json!({"metadata": {"name": "a", "uid": "1", "generation": 3}, "spec": {}}));
        let mut new = Object(json!({"metadata": {"name": "a", "uid": "2", "deletionTimestamp": "x"}, "spec": {}}));
        carry_over(&mut new, &old);
        assert_eq!(new, old);
    }

    #[test]
    fn generation_counts_spec_only() {
        let old = Object(json!({"metadata": {"name": "a"}, "spec": {"n": 1}, "status": {"n": 1}}));
        let status = Object(json!({"metadata": {"name": "b"}, "spec": {"n": 1}, "status": {"n": 2}}));
        let spec = Object(json!({"metadata": {"name": "a"}, "spec": {"n": 2}, "status": {"n": 1}}));
        assert!(!spec_differs(&status, &old));
        assert!(spec_differs(&spec, &old));
    }
}
