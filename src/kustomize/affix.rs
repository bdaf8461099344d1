//! `namePrefix` and `nameSuffix`: change every name, except for kinds whose names have a meaning.

use super::file::FieldSpec;
use super::resource::BuildResource;
use serde_json::Value;

/// Kinds whose names must not change, because they identify something else.
const FIXED: [&str; 3] = ["CustomResourceDefinition", "APIService", "Namespace"];

/// The field that holds an object's name.
pub const NAME: &str = "metadata/name";

/// Adds a prefix, which may be empty, to the names in these fields.
pub fn add_prefix(resources: &mut [BuildResource], prefix: &str, fields: &[FieldSpec]) {
    let kept = |resource: &mut BuildResource| resource.prefixes.push(prefix.to_owned());
    change(resources, prefix, fields, &kept, &|name| format!("{prefix}{name}"));
}

/// Adds a suffix, which may be empty, to the names in these fields.
pub fn add_suffix(resources: &mut [BuildResource], suffix: &str, fields: &[FieldSpec]) {
    let kept = |resource: &mut BuildResource| resource.suffixes.push(suffix.to_owned());
    change(resources, suffix, fields, &kept, &|name| format!("{name}{suffix}"));
}

fn change(
    resources: &mut [BuildResource],
    text: &str,
    fields: &[FieldSpec],
    keep: &dyn Fn(&mut BuildResource),
    changed: &dyn Fn(&str) -> String,
) {
    for resource in resources.iter_mut().filter(|_| !text.is_empty()) {
        let first = resource.first_id();
        if FIXED.contains(&first.kind.as_str()) {
            continue;
        }
        for field in fields.iter().filter(|field| field.applies_to(&first)) {
            if field.path == NAME {
                keep(resource);
                resource.rename(&changed(resource.object.name()));
                continue;
            }
            field.for_each_value(&mut resource.object, &mut |value| {
                if let Value::String(name) = value {
                    *name = changed(name);
                }
            });
        }
    }
}
