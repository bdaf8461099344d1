//! The nodes with what already runs on them.

use crate::object::Key;
use crate::world::{Load, NodeFields, Row, World};
use std::collections::HashSet;
use std::sync::Arc;

/// A node and its load.
pub struct Candidate<'a> {
    /// The node.
    pub row: &'a Arc<Row>,
    /// Its fields.
    pub fields: &'a NodeFields,
    /// What its pods ask for together.
    pub load: Load,
    /// Its pods that are thought away.
    away: HashSet<&'a Key>,
    /// Pods that it was promised to, as if they ran there.
    guests: Vec<&'a Arc<Row>>,
    world: &'a World,
}

impl<'a> Candidate<'a> {
    /// Its pods that have not ended, as they are thought to be.
    pub fn pods(&self) -> impl Iterator<Item = &'a Arc<Row>> {
        let has_ended = |pod: &Row| pod.pod().is_some_and(|pod| pod.phase.is_terminal());
        let there = self.world.pods_on(&self.row.key.name);
        there.filter(move |pod| !has_ended(pod) && !self.away.contains(&pod.key)).chain(self.guests.iter().copied())
    }

    /// Whether a pod is thought away.
    pub fn is_away(&self, pod: &Key) -> bool {
        self.away.contains(pod)
    }

    /// Looks at the node as if one of its pods were gone.
    pub fn think_away(&mut self, pod: &'a Row) {
        if let Some(fields) = pod.pod().filter(|_| self.away.insert(&pod.key)) {
            self.load.subtract(fields);
        }
    }

    /// Looks at it with the pod again.
    pub fn think_back(&mut self, pod: &'a Row) {
        if let Some(fields) = pod.pod().filter(|_| self.away.remove(&pod.key)) {
            self.load.add(fields);
        }
    }

    fn welcome(&mut self, guest: &'a Arc<Row>) {
        let Some(fields) = guest.pod() else { return };
        self.load.add(fields);
        self.guests.push(guest);
    }
}

/// Lets pods that were promised a node count as if they ran there, unless the pod is more important than they are. Says whether there
/// are any.
pub fn welcome_promised<'a>(world: &'a World, pod: &Row, nodes: &mut [Candidate<'a>]) -> bool {
    let own = pod.pod().map_or(0, |fields| fields.priority);
    let mut any = false;
    for guest in world.promised().filter(|guest| guest.key != pod.key && !guest.is_deleting()) {
        let Some(fields) = guest.pod().filter(|fields| fields.priority >= own) else { continue };
        let node = nodes.iter_mut().find(|node| fields.nominated.as_ref() == Some(&node.row.key.name));
        any |= node.is_some();
        node.into_iter().for_each(|node| node.welcome(guest));
    }
    any
}

/// All nodes, ordered by name.
pub fn candidates(world: &World) -> Vec<Candidate<'_>> {
    world.list("nodes").filter_map(|row| candidate(world, row)).collect()
}

fn candidate<'a>(world: &'a World, row: &'a Arc<Row>) -> Option<Candidate<'a>> {
    let load = world.load_of(&row.key.name).cloned().unwrap_or_default();
    Some(Candidate { row, fields: row.node()?, load, away: HashSet::new(), guests: Vec::new(), world })
}
