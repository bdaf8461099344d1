//! Candidate nodes with the pods that are bound to them.

use crate::world::{NodeFields, NodeLoad, NodeSlot, Row, World};
use std::borrow::Cow;
use std::sync::Arc;

/// A node and its load.
pub struct CandidateNode<'a> {
    /// Slot in the node cache.
    pub slot: usize,
    /// The node.
    pub row: &'a Arc<Row>,
    /// Its fields.
    pub fields: &'a NodeFields,
    /// Sum of its pods' requests.
    pub load: Cow<'a, NodeLoad>,
    /// Its pods that are assumed to be removed.
    removed: Vec<&'a Arc<Row>>,
    /// Pods that are nominated for it and assumed to run there.
    nominated: Vec<&'a Arc<Row>>,
    world: &'a World,
}

impl<'a> CandidateNode<'a> {
    /// Its pods that have not ended, with the assumed changes.
    pub fn pods(&self) -> impl Iterator<Item = &'a Arc<Row>> {
        let has_ended = |pod: &Row| pod.pod().is_some_and(|pod| pod.phase.is_terminal());
        let is_away = |pod: &Row| self.removed.iter().any(|removed| removed.key == pod.key);
        let pods = self.world.pods_on(&self.row.key.name);
        pods.filter(move |pod| !has_ended(pod) && !is_away(pod)).chain(self.nominated.iter().copied())
    }

    /// Assumed differences from the actual node: removed and added pods.
    pub fn assumed_changes(&self) -> impl Iterator<Item = (&'a Arc<Row>, i64)> {
        let removed = self.removed.iter().map(|pod| (*pod, -1));
        removed.chain(self.nominated.iter().map(|pod| (*pod, 1)))
    }

    /// Whether nothing is assumed.
    pub fn is_actual(&self) -> bool {
        self.removed.is_empty() && self.nominated.is_empty()
    }

    /// Removes one of the node's pods hypothetically.
    pub fn assume_removed(&mut self, pod: &'a Arc<Row>) {
        if let Some(fields) = pod.pod() {
            self.load.to_mut().subtract(&fields.requests);
            self.removed.push(pod);
        }
    }

    /// Adds a hypothetically removed pod again.
    pub fn assume_restored(&mut self, pod: &Arc<Row>) {
        if let (Some(place), Some(fields)) = (self.removed.iter().position(|removed| removed.key == pod.key), pod.pod())
        {
            self.removed.swap_remove(place);
            self.load.to_mut().add(&fields.requests);
        }
    }

    /// Whether any pod nominated for the node has anti-affinity.
    pub fn nominated_have_anti_affinity(&self) -> bool {
        let mut nominated = self.world.pods_nominated_to(&self.row.key.name).filter_map(|pod| pod.pod());
        nominated.any(|pod| pod.anti_affinity.is_some())
    }

    /// Assumes that pods nominated for the node run there, except those less important than `pod`. Returns whether there are any.
    pub fn add_nominated_pods(&mut self, pod: &Row) -> bool {
        let own = pod.pod().map_or(0, |fields| fields.priority);
        for other in self.world.pods_nominated_to(&self.row.key.name) {
            let Some(fields) = other.pod().filter(|fields| fields.priority >= own) else { continue };
            if other.key != pod.key && !other.is_deleting() {
                self.load.to_mut().add(&fields.requests);
                self.nominated.push(other);
            }
        }
        !self.nominated.is_empty()
    }
}

/// Number of nodes.
pub fn count(world: &World) -> usize {
    world.node_cache().len()
}

/// All nodes, ordered by name.
pub fn candidates(world: &World) -> impl Iterator<Item = CandidateNode<'_>> {
    (0..count(world)).filter_map(|slot| candidate(world, slot))
}

/// Returns the node in this slot.
pub fn candidate(world: &World, slot: usize) -> Option<CandidateNode<'_>> {
    let NodeSlot { row, load } = world.node_cache().get(slot)?;
    let load = Cow::Borrowed(load);
    Some(CandidateNode { slot, row, fields: row.node()?, load, removed: Vec::new(), nominated: Vec::new(), world })
}
