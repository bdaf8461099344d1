//! The annotation that tells the kubelet the folder of the manifest that a pod came from, and how to leave it out.
//!
//! It is kloop's own note: what is shown of a dry run, of a difference or of what was applied is what the user wrote.

use crate::object::Object;
use serde_json::{Map, Value};

/// The annotation.
pub const ANNOTATION: &str = "kloop.dev/manifest-dir";

/// The places of pods and pod templates in the kinds that have them.
pub const TEMPLATES: [&[&str]; 3] = [&["spec", "jobTemplate", "spec", "template"], &["spec", "template"], &[]];

/// Removes the annotation from an object and its pod template, and the maps that it leaves empty.
pub fn remove(object: &mut Object) {
    for template in TEMPLATES {
        let below = |rest: &[&'static str]| [template, rest].concat();
        if !object.unset(&below(&["metadata", "annotations", ANNOTATION])) {
            continue;
        }
        for map in [&["metadata", "annotations"][..], &["metadata"]] {
            let path = below(map);
            if object.value_at(&path).and_then(Value::as_object).is_some_and(Map::is_empty) {
                object.unset(&path);
            }
        }
    }
}

/// The object without the annotation.
pub fn cleaned(object: &Object) -> Object {
    let mut object = object.clone();
    remove(&mut object);
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_of_it_is_left() {
        let noted = |more: Value| {
            let mut annotations = json!({ANNOTATION: "/src"});
            json_patch::merge(&mut annotations, &more);
            json!({"metadata": {"annotations": annotations}, "spec": {}})
        };
        let pod = cleaned(&Object(noted(json!({"a": "b"}))));
        assert_eq!(pod.0, json!({"metadata": {"annotations": {"a": "b"}}, "spec": {}}));
        let deployment = Object(json!({"metadata": {"name": "d"}, "spec": {"template": noted(json!({}))}}));
        assert_eq!(cleaned(&deployment).0, json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": {}}}}));
    }
}
