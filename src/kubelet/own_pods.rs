//! The pods that are bound to nodes of this control plane.

use crate::object::Key;
use crate::world::{NodeFacts, Row, World};

/// Whether a pod is bound to a node of this control plane.
pub fn is_ours(world: &World, pod: &Row) -> bool {
    let node = || world.facts.nodes.get(pod.pod()?.node.as_ref()?);
    node().is_some_and(|node| node.ours)
}

/// The pod of this name and its node, if the node belongs to this control plane.
pub fn bound_to_us<'a>(world: &'a World, key: &Key) -> Option<(&'a Row, &'a NodeFacts)> {
    let row = world.get(key)?;
    let node = world.facts.nodes.get(row.pod()?.node.as_ref()?)?;
    node.ours.then_some((row, node))
}
