//! The nodes with what already runs on them.

use crate::world::{NodeFields, Requests, Row, World};
use std::sync::Arc;

/// A node and its load.
pub struct Candidate<'a> {
    /// The node.
    pub row: &'a Arc<Row>,
    /// Its fields.
    pub fields: &'a NodeFields,
    /// What its pods ask for together.
    pub used: Requests,
    /// Its pods that have not ended.
    pub pods: Vec<&'a Arc<Row>>,
}

/// All nodes, ordered by name.
pub fn candidates(world: &World) -> Vec<Candidate<'_>> {
    world.list("nodes").filter_map(|row| candidate(world, row)).collect()
}

fn candidate<'a>(world: &'a World, row: &'a Arc<Row>) -> Option<Candidate<'a>> {
    let fields = row.node()?;
    let pods: Vec<&Arc<Row>> = world.pods_on(&row.key.name).filter(|pod| !has_ended(pod)).collect();
    let mut used = Requests::default();
    pods.iter().filter_map(|pod| pod.pod()).for_each(|pod| used.add(&pod.requests));
    Some(Candidate { row, fields, used, pods })
}

fn has_ended(pod: &Row) -> bool {
    pod.pod().is_some_and(|pod| pod.phase.is_terminal())
}
