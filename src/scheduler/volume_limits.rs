//! NodeVolumeLimits: the number of volumes that a driver can attach to a node, from its CSINode. Nodes without one have no limits.

use crate::world::storage::{self, CLAIMS, CLASSES, VOLUMES};
use crate::world::{Row, World};
use hashbrown::HashSet;
use std::sync::Arc;

/// The plugin.
pub const LIMITS: &str = "NodeVolumeLimits";
/// The message for a refused node.
pub const TOO_MANY: &str = "node(s) exceed max volume count";
/// Resource with the limits of nodes.
const CSI_NODES: &str = "csinodes.storage.k8s.io";

/// Resources, besides pods, that change how many volumes a node can attach.
pub const RELEVANT_RESOURCES: [&str; 4] = [CSI_NODES, CLAIMS, VOLUMES, CLASSES];

/// A driver, and its handle of the volume.
type AttachedVolume = (String, String);

/// Whether a pod's volumes and those of the node's other pods exceed the node's limit.
pub fn exceeds(world: &World, pod: &Row, node: &Row) -> bool {
    let Some(limits) = world.find(CSI_NODES, "", &node.key.name) else { return false };
    let limits = limits.body();
    let wanted: HashSet<AttachedVolume> = volumes(world, pod).collect();
    let lives = |pod: &&Arc<Row>| pod.pod().is_some_and(|pod| !pod.phase.is_terminal());
    let others = world.pods_on(&node.key.name).filter(lives).flat_map(|other| volumes(world, other));
    let others: HashSet<AttachedVolume> = others.collect();
    limits.items(&["spec", "drivers"]).iter().any(|driver| {
        let Some(most) = driver["allocatable"]["count"].as_u64() else { return false };
        let is_its = |volume: &&AttachedVolume| driver["name"] == *volume.0;
        let new = wanted.difference(&others).filter(is_its).count();
        new > 0 && (others.iter().filter(is_its).count() + new) as u64 > most
    })
}

/// The volumes of a pod that a driver attaches. A claim that has none yet gets one of its class's driver.
fn volumes<'w>(world: &'w World, pod: &'w Row) -> impl Iterator<Item = AttachedVolume> + 'w {
    storage::used_by(world, pod).filter_map(|claim| {
        let body = claim.body();
        let Some(name) = storage::volume_of(&body) else {
            let class = storage::class_of(world, &body)?;
            return Some((class.text(&["provisioner"])?.to_owned(), claim.key.path()));
        };
        let volume = world.find(VOLUMES, "", name)?.body();
        let text = |field: &str| volume.text(&["spec", "csi", field]).map(str::to_owned);
        Some((text("driver")?, text("volumeHandle")?))
    })
}
