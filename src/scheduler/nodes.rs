//! The nodes with what already runs on them.

use crate::world::{Load, NodeFields, Row, World};
use std::sync::Arc;

/// A node and its load.
pub struct Candidate<'a> {
    /// The node.
    pub row: &'a Arc<Row>,
    /// Its fields.
    pub fields: &'a NodeFields,
    /// What its pods ask for together.
    pub load: Load,
    world: &'a World,
}

impl<'a> Candidate<'a> {
    /// Its pods that have not ended.
    pub fn pods(&self) -> impl Iterator<Item = &'a Arc<Row>> {
        let has_ended = |pod: &Row| pod.pod().is_some_and(|pod| pod.phase.is_terminal());
        self.world.pods_on(&self.row.key.name).filter(move |pod| !has_ended(pod))
    }
}

/// All nodes, ordered by name.
pub fn candidates(world: &World) -> Vec<Candidate<'_>> {
    world.list("nodes").filter_map(|row| candidate(world, row)).collect()
}

fn candidate<'a>(world: &'a World, row: &'a Arc<Row>) -> Option<Candidate<'a>> {
    let load = world.load_of(&row.key.name).cloned().unwrap_or_default();
    Some(Candidate { row, fields: row.node()?, load, world })
}
