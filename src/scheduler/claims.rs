//! VolumeBinding, before any node is looked at: the claims that a pod uses are there and bound.

use crate::object::{Key, Object, Resource};
use crate::world::{Row, World};

const CLAIMS: Resource = Resource("persistentvolumeclaims");
const CLASSES: Resource = Resource("storageclasses.storage.k8s.io");

/// What keeps a pod from every node.
pub fn problem(world: &World, row: &Row, pod: &Object) -> Option<String> {
    let named = pod.items(&["spec", "volumes"]).iter().filter_map(|volume| {
        let own = volume["ephemeral"]
            .is_object()
            .then(|| format!("{}-{}", row.key.name, volume["name"].as_str().unwrap_or_default()));
        own.or_else(|| volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned))
    });
    let mut unbound = false;
    for name in named {
        let Some(claim) = world.get(&Key::new(CLAIMS, &row.key.namespace, &name)).map(|row| row.object()) else {
            return Some(format!("persistentvolumeclaim {name:?} not found"));
        };
        unbound |= claim.text(&["status", "phase"]) != Some("Bound") && !waits_for_consumer(world, &claim);
    }
    unbound.then(|| "pod has unbound immediate PersistentVolumeClaims".to_owned())
}

fn waits_for_consumer(world: &World, claim: &Object) -> bool {
    let class = claim.text(&["spec", "storageClassName"]).unwrap_or_default();
    let class = world.get(&Key::new(CLASSES, "", class)).map(|row| row.object());
    class.is_some_and(|class| class.text(&["volumeBindingMode"]) == Some("WaitForFirstConsumer"))
}
