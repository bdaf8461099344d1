//! Metadata rules: fields that the server owns. It ignores the values that a client sends.

use crate::managed_fields;
use crate::object::Object;
use serde_json::Value;
use std::collections::BTreeSet;

/// Fields of metadata that only the server sets; an update carries them over from the stored object.
const OWNED: [&str; 3] = ["uid", "creationTimestamp", "generation"];
/// Fields of metadata that only a deletion sets: an update may leave them out, and is refused when it sets them.
const OF_DELETION: [&str; 2] = ["deletionTimestamp", "deletionGracePeriodSeconds"];

/// Copies the metadata that a client may not change from the stored object.
pub fn carry_over(new: &mut Object, old: &Object) {
    for field in OWNED {
        match old.value_at(&["metadata", field]) {
            Some(value) => new.set(&["metadata", field], value.clone()),
            None => {
                new.unset(&["metadata", field]);
            }
        }
    }
    if let Some(time) = old.value_at(&["metadata", OF_DELETION[0]]) {
        new.set(&["metadata", OF_DELETION[0]], time.clone());
    }
    for field in OF_DELETION {
        if new.value_at(&["metadata", field]).is_some_and(|value| !value.is_null()) {
            continue;
        }
        match old.value_at(&["metadata", field]) {
            Some(value) => new.set(&["metadata", field], value.clone()),
            None => drop(new.unset(&["metadata", field])),
        }
    }
    new.unset(&["metadata", "selfLink"]);
}

/// Whether the two differ in anything but metadata and status. `generation` counts such changes.
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

/// Drops equal references to one owner, and warns about them. `when`: the stage of the request that added them, such as ` after mutating
/// admission happens`.
pub fn drop_duplicate_owners(object: &mut Object, when: &str, warnings: &mut Vec<String>) {
    const PATH: [&str; 2] = ["metadata", "ownerReferences"];
    let owners = object.items(&PATH);
    if owners.len() < 2 {
        return;
    }
    let mut seen = BTreeSet::new();
    let (kept, twice): (Vec<Value>, Vec<Value>) =
        owners.iter().cloned().partition(|owner| seen.insert(owner.to_string()));
    if twice.is_empty() {
        return;
    }
    let uids: Vec<&str> = twice.iter().map(|owner| owner["uid"].as_str().unwrap_or_default()).collect();
    warnings.push(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such \
         requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        uids.join(", ")
    ));
    object.set(&PATH, kept);
}

/// Drops maps and lists that Kubernetes does not store when they are empty. An empty list of managers is a request to drop them.
pub fn drop_empty(object: &mut Object) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
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
    fn equal_owners_are_kept_once_with_a_warning() {
        let owner =
            |uid: &str, controller: bool| json!({"kind": "Pod", "name": "p", "uid": uid, "controller": controller});
        let owners = json!([owner("a", true), owner("b", false), owner("a", true), owner("a", false)]);
        let mut object = Object(json!({"metadata": {"ownerReferences": owners}}));
        let mut warnings = Vec::new();
        drop_duplicate_owners(&mut object, "", &mut warnings);
        assert_eq!(
            object.0["metadata"]["ownerReferences"],
            json!([owner("a", true), owner("b", false), owner("a", false)])
        );
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].ends_with("duplicate UID(s) observed: a"), "{}", warnings[0]);
        drop_duplicate_owners(&mut object, "", &mut warnings);
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn writer_cannot_change_what_the_server_owns() {
        let old = Object(json!({"metadata": {"name": "a", "uid": "1", "generation": 3}, "spec": {}}));
        let mut new = Object(json!({"metadata": {"name": "a", "uid": "2", "deletionTimestamp": null}, "spec": {}}));
        carry_over(&mut new, &old);
        assert_eq!(new, old);
        let deleted = json!({"name": "a", "deletionTimestamp": "x", "deletionGracePeriodSeconds": 5});
        let deleted = Object(json!({"metadata": deleted}));
        for metadata in [json!({"name": "a"}), json!({"name": "a", "deletionTimestamp": "y"})] {
            let mut new = Object(json!({"metadata": metadata}));
            carry_over(&mut new, &deleted);
            assert_eq!(new, deleted);
        }
        // Validation refuses it.
        let mut new = Object(json!({"metadata": {"deletionTimestamp": "x"}}));
        carry_over(&mut new, &old);
        assert_eq!(new.0["metadata"]["deletionTimestamp"], "x");
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
