//! `namePrefix` and `nameSuffix`: every name but those that others know by heart.

use super::resource::Resource;

/// Kinds whose names say what they are about, so that they cannot be changed.
const FIXED: [&str; 3] = ["CustomResourceDefinition", "APIService", "Namespace"];

/// Puts texts before and behind the names; either may be empty.
pub fn add(resources: &mut [Resource], prefix: &str, suffix: &str) {
    for resource in resources {
        if FIXED.contains(&resource.first_id().kind.as_str()) {
            continue;
        }
        if !prefix.is_empty() {
            resource.prefixes.push(prefix.to_owned());
            resource.rename(&format!("{prefix}{}", resource.object.name()));
        }
        if !suffix.is_empty() {
            resource.suffixes.push(suffix.to_owned());
            resource.rename(&format!("{}{suffix}", resource.object.name()));
        }
    }
}
