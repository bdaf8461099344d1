//! `namePrefix` and `nameSuffix`: every name but those that others know by heart.

use super::file::FieldSpec;
use super::resource::Resource;
use serde_json::Value;

/// Kinds whose names say what they are about, so that they cannot be changed.
const FIXED: [&str; 3] = ["CustomResourceDefinition", "APIService", "Namespace"];

/// The field that holds an object's name.
pub const NAME: &str = "metadata/name";

/// Puts a text before the names in these fields; it may be empty.
pub fn add_prefix(resources: &mut [Resource], prefix: &str, fields: &[FieldSpec]) {
    let kept = |resource: &mut Resource| resource.prefixes.push(prefix.to_owned());
    change(resources, prefix, fields, &kept, &|name| format!("{prefix}{name}"));
}

/// Puts a text behind the names in these fields; it may be empty.
pub fn add_suffix(resources: &mut [Resource], suffix: &str, fields: &[FieldSpec]) {
    let kept = |resource: &mut Resource| resource.suffixes.push(suffix.to_owned());
    change(resources, suffix, fields, &kept, &|name| format!("{name}{suffix}"));
}

fn change(
    resources: &mut [Resource],
    text: &str,
    fields: &[FieldSpec],
    keep: &dyn Fn(&mut Resource),
    changed: &dyn Fn(&str) -> String,
) {
    for resource in resources.iter_mut().filter(|_| !text.is_empty()) {
        let first = resource.first_id();
        if FIXED.contains(&first.kind.as_str()) {
            continue;
        }
        for field in fields.iter().filter(|field| field.is_of(&first)) {
            if field.path == NAME {
                keep(resource);
                resource.rename(&changed(resource.object.name()));
                continue;
            }
            field.each(&mut resource.object, &mut |value| {
                if let Value::String(name) = value {
                    *name = changed(name);
                }
            });
        }
    }
}
