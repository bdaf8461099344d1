//! The annotation with the folder of a pod's manifest, for the kubelet, and its removal from output.
//!
//! kloop sets this annotation itself. Dry runs, diffs and the last applied configuration show the object as the user
//! wrote it.

use crate::object::Object;
use serde_json::{Map, Value};

/// The annotation.
pub const ANNOTATION: &str = "kloop.dev/manifest-dir";

/// The paths of pods and pod templates in the kinds that have them.
pub const TEMPLATES: [&[&str]; 3] = [&["spec", "jobTemplate", "spec", "template"], &["spec", "template"], &[]];

/// Removes the annotation, and maps that become empty, from an object and its pod template.
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

/// A copy of the object without the annotation.
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
    fn annotation_is_removed_completely() {
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
