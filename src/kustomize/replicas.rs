//! `replicas`: how many of a workload, by its name.

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

/// Sets the count of the workloads of a name, which they have or had; also in more fields.
pub fn set(resources: &mut [BuildResource], wanted: &ReplicasEntry, more: &[FieldSpec]) -> BuildResult {
    let mut found = false;
    for resource in resources {
        let is_called =
            resource.object.name() == wanted.name || resource.before.iter().any(|id| id.name == wanted.name);
        if !is_called {
            continue;
        }
        for field in &FIELDS {
            found |= field.is_of(&resource.object);
            field.for_each_value(&mut resource.object, &mut |value| *value = wanted.count.into());
        }
        for field in more {
            found |= field.is_of(&resource.id());
            field.for_each_value(&mut resource.object, &mut |value| *value = wanted.count.into());
        }
    }
    if found {
        return Ok(());
    }
    let kinds: Vec<&str> = FIELDS.iter().map(|field| field.kind).collect();
    Err(format!("resource with name {} does not match any of the kinds [{}]", wanted.name, kinds.join(" ")))
}
