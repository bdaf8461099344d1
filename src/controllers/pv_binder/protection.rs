//! Protection from deletion: claims and VolumeAttributesClasses stay until nothing uses them.
//!
//! Never: deletes anything; it removes the finalizer that holds the object. Start reading at [`release_claim`].

use crate::kinds::persistent_volume_claim;
use crate::kinds::volume_attributes_class;
use crate::object::{Key, Object};
use crate::world::storage::{self, CLAIMS, VOLUMES};
use crate::world::{Plan, Row, World, WriteVerb};
use std::sync::Arc;

/// The kind of VolumeAttributesClasses.
pub const ATTRIBUTES_CLASSES: &str = "volumeattributesclasses.storage.k8s.io";

/// The VolumeAttributesClasses that wait for the last claim or volume with their attributes.
pub fn deleted_classes(world: &World) -> impl Iterator<Item = Key> {
    world.list(ATTRIBUTES_CLASSES).filter(|class| class.is_deleting()).map(|class| class.key.clone())
}

/// Removes the finalizer of a deleted VolumeAttributesClass once no claim and no volume names it.
pub fn release_class(world: &World, row: &Row, object: Object, plan: &mut Plan) {
    if !row.is_deleting() || !row.has_finalizer(volume_attributes_class::PROTECTION) {
        return;
    }
    const FIELDS: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    let names_it = |user: &&Arc<Row>| {
        let user = user.body();
        FIELDS.iter().any(|field| user.text(field) == Some(&*row.key.name))
    };
    match world.list(CLAIMS).chain(world.list(VOLUMES)).find(names_it) {
        Some(user) => plan.wait(format!("{} {} uses the class", user.key.resource.plural(), user.key.name)),
        None => {
            let released = object.without_finalizer(volume_attributes_class::PROTECTION);
            plan.write(WriteVerb::Update(released), "no claim and no volume uses the class");
        }
    }
}

/// Removes the finalizer of a deleted claim once no pod uses it.
pub fn release_claim(world: &World, row: &Row, object: Object, plan: &mut Plan) {
    if !row.has_finalizer(persistent_volume_claim::PROTECTION) {
        return;
    }
    match storage::find_keeper(world, row) {
        Some(pod) => plan.wait(format!("pod {} uses the claim", pod.key.name)),
        None => plan.write(
            WriteVerb::Update(object.without_finalizer(persistent_volume_claim::PROTECTION)),
            "no pod uses the claim",
        ),
    }
}
