//! `replicas`: sets the number of replicas of workloads by name.

use super::BuildResult;
use super::field::BuiltinField;
use super::file::{FieldSpec, ReplicasEntry};
use super::resource::BuildResource;

const FIELDS: [BuiltinField; 4] = [
    BuiltinField::created("Deployment", "spec/replicas"),
    BuiltinField::created("ReplicationController", "spec/replicas"),
    BuiltinField::created("ReplicaSet", "spec/replicas"),
    BuiltinField::created("StatefulSet", "spec/replicas"),
];

/// Sets the replicas of the workloads with this current or former name, also in the fields of
/// `more`.
pub fn set(resources: &mut [BuildResource], entry: &ReplicasEntry, more: &[FieldSpec]) -> BuildResult {
    let mut found = false;
    for resource in resources {
        let is_called = resource.object.name() == entry.name || resource.before.iter().any(|id| id.name == entry.name);
        if !is_called {
            continue;
        }
        for field in &FIELDS {
            found |= field.applies_to(&resource.object);
            field.for_each_value(&mut resource.object, &mut |value| *value = entry.count.into());
        }
        for field in more {
            found |= field.applies_to(&resource.id());
            field.for_each_value(&mut resource.object, &mut |value| *value = entry.count.into());
        }
    }
    if found {
        return Ok(());
    }
    let kinds: Vec<&str> = FIELDS.iter().map(|field| field.kind).collect();
    Err(format!("resource with name {} does not match any of the kinds [{}]", entry.name, kinds.join(" ")))
}
