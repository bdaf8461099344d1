//! `replicas`: how many of a workload, by its name.

use super::Built;
use super::field::Field;
use super::file::{FieldSpec, Replicas};
use super::resource::Resource;

const FIELDS: [Field; 4] = [
    Field::made("Deployment", "spec/replicas"),
    Field::made("ReplicationController", "spec/replicas"),
    Field::made("ReplicaSet", "spec/replicas"),
    Field::made("StatefulSet", "spec/replicas"),
];

/// Sets the count of the workloads of a name, which they have or had; also in more fields.
pub fn set(resources: &mut [Resource], wanted: &Replicas, more: &[FieldSpec]) -> Built {
    let mut found = false;
    for resource in resources {
        let is_called =
            resource.object.name() == wanted.name || resource.before.iter().any(|id| id.name == wanted.name);
        if !is_called {
            continue;
        }
        for field in &FIELDS {
            found |= field.is_of(&resource.object);
            field.each(&mut resource.object, &mut |value| *value = wanted.count.into());
        }
        for field in more {
            found |= field.is_of(&resource.id());
            field.each(&mut resource.object, &mut |value| *value = wanted.count.into());
        }
    }
    if found {
        return Ok(());
    }
    let kinds: Vec<&str> = FIELDS.iter().map(|field| field.kind).collect();
    Err(format!("resource with name {} does not match any of the kinds [{}]", wanted.name, kinds.join(" ")))
}
