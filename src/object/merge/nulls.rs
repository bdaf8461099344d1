//! `null` fields that kustomize's strategic merge affects: in maps, and in lists with a merge key.

use super::schema::{ANY, MergeSchema, MergeStrategy};
use super::{MergeSchemaRef, ObjectFields};
use serde_json::Value;
use std::collections::BTreeSet;

/// Returns the paths of those fields, such as `spec.template.spec.containers[0].image`.
pub fn null_fields(value: &Value, schema: Option<MergeSchemaRef>) -> Vec<String> {
    let mut found = Vec::new();
    if let Value::Object(fields) = value {
        collect(fields, schema.unwrap_or(&ANY), "", &mut found);
    }
    found
}

fn collect(fields: &ObjectFields, schema: &MergeSchema, path: &str, found: &mut Vec<String>) {
    for (name, value) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let field = schema.field(name);
        match value {
            Value::Null => found.push(path),
            Value::Object(fields) => collect(fields, field.of, &path, found),
            Value::Array(items) if matches!(field.strategy, MergeStrategy::ByKey(_)) => {
                let maps = items.iter().enumerate().filter_map(|(at, item)| Some((at, item.as_object()?)));
                maps.for_each(|(at, fields)| collect(fields, field.of, &format!("{path}[{at}]"), found));
            }
            _ => {}
        }
    }
}

/// Removes these fields.
pub fn remove_fields(value: &mut Value, paths: &BTreeSet<String>, path: &str) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            remove_fields(value, paths, &path);
            !(value.is_null() && paths.contains(&path))
        }),
        Value::Array(items) => {
            items.iter_mut().enumerate().for_each(|(at, item)| remove_fields(item, paths, &format!("{path}[{at}]")));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::catalogue::merge_rules::schema_for;
    use serde_json::json;

    #[test]
    fn null_fields_are_found_in_maps_and_keyed_lists() {
        let pod = json!({"metadata": {"labels": null}, "spec": {
            "containers": [{"name": "a", "image": null}],
            "tolerations": [{"key": null}],
        }});
        let found = null_fields(&pod, schema_for("v1", "Pod"));
        assert_eq!(found, ["metadata.labels", "spec.containers[0].image"]);
        let mut without = pod.clone();
        remove_fields(&mut without, &found.into_iter().collect(), "");
        let rest = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}], "tolerations": [{"key": null}]}});
        assert_eq!(without, rest);
        assert_eq!(null_fields(&json!({"spec": {"list": [{"a": null}]}}), None), [""; 0]);
    }
}
