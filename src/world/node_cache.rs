//! The nodes in one array, ordered by name, each with the sum of its pods' requests. The scheduler iterates over it.

use super::{NodeLoad, Row, World};
use crate::object::Str;
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A node and its load.
pub struct NodeSlot {
    /// The node.
    pub row: Arc<Row>,
    /// Sum of the requests of the node's pods that have not ended.
    pub load: NodeLoad,
}

/// All nodes.
#[derive(Default)]
pub(super) struct NodeCache {
    places: Vec<NodeSlot>,
    /// Version marks of the nodes, in the same order, for fast scans.
    marks: Vec<NodeVersion>,
    /// Loads of nodes that are named by pods and are not there.
    strays: HashMap<Str, NodeLoad>,
    /// Number of nodes that have each image.
    images: HashMap<Str, usize>,
    /// Never twice the same for other names or labels of nodes.
    shape: u64,
    /// Nodes added, removed or changed since the last call that took this list.
    changed: BTreeSet<Str>,
    /// The last version that was given to a node.
    versions: u64,
}

/// Version of a node: equal marks mean that cached results for the node are still valid.
#[derive(Clone, Copy)]
struct NodeVersion {
    /// Never twice the same, not even for another node.
    version: u64,
    /// Number of pods nominated for the node.
    nominated: usize,
}

impl NodeCache {
    /// Adds or replaces a node; `nominated` is the number of pods nominated for it.
    pub(super) fn put(&mut self, row: &Arc<Row>, nominated: usize) {
        self.changed.insert(row.key.name.clone());
        let mark = NodeVersion { version: self.next_version(), nominated };
        match self.slot(&row.key.name) {
            Ok(slot) => {
                let before = std::mem::replace(&mut self.places[slot].row, row.clone());
                self.shape += u64::from(before.labels != row.labels);
                self.marks[slot] = mark;
                self.remove_images(&before);
            }
            Err(slot) => {
                let load = self.strays.remove(&row.key.name).unwrap_or_default();
                self.places.insert(slot, NodeSlot { row: row.clone(), load });
                self.marks.insert(slot, mark);
                self.shape += 1;
            }
        }
        for image in row.node().into_iter().flat_map(|node| node.images.keys()) {
            *self.images.entry(image.clone()).or_default() += 1;
        }
    }

    fn remove_images(&mut self, row: &Row) {
        for image in row.node().into_iter().flat_map(|node| node.images.keys()) {
            if let Some(nodes) = self.images.get_mut(image) {
                *nodes -= 1;
                if *nodes == 0 {
                    self.images.remove(image);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, name: &Str) {
        let Ok(slot) = self.slot(name) else { return };
        let place = self.places.remove(slot);
        self.marks.remove(slot);
        self.remove_images(&place.row);
        self.changed.insert(name.clone());
        if place.load.pods > 0 {
            self.strays.insert(name.clone(), place.load);
        }
        self.shape += 1;
    }

    /// Changes the load of a node, even if the Node does not exist.
    pub(super) fn update_load(&mut self, name: &Str, change: impl FnOnce(&mut NodeLoad)) {
        if let Ok(slot) = self.slot(name) {
            self.marks[slot].version = self.next_version();
            return change(&mut self.places[slot].load);
        }
        let load = self.strays.entry(name.clone()).or_default();
        change(load);
        if load.pods == 0 {
            self.strays.remove(name);
        }
    }

    /// Sets the number of pods nominated for a node.
    pub(super) fn set_nominated_count(&mut self, name: &Str, nominated: usize) {
        if let Ok(slot) = self.slot(name) {
            self.marks[slot] = NodeVersion { version: self.next_version(), nominated };
        }
    }

    fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// Returns the slot of a node, or the slot where it would be inserted.
    pub(super) fn slot(&self, name: &str) -> Result<usize, usize> {
        self.places.binary_search_by(|place| (*place.row.key.name).cmp(name))
    }
}

impl World {
    /// All nodes, ordered by name.
    pub fn node_cache(&self) -> &[NodeSlot] {
        &self.node_cache.places
    }

    /// Sum of the requests of a node's pods that have not ended; `None` when it has none.
    pub fn load_of(&self, node: &str) -> Option<&NodeLoad> {
        let load = match self.node_cache.slot(node) {
            Ok(slot) => Some(&self.node_cache.places[slot].load),
            Err(_) => self.node_cache.strays.get(node),
        };
        load.filter(|load| load.pods > 0)
    }

    /// Returns the slot of a node.
    pub fn slot_of(&self, node: &str) -> Option<usize> {
        self.node_cache.slot(node).ok()
    }

    /// The version of the node at this slot. A change of the node, of one of its pods or of a pod nominated for it gives the node a new
    /// version that no node had before. No version is 0.
    pub fn version_at(&self, slot: usize) -> u64 {
        self.node_cache.marks.get(slot).map_or(0, |mark| mark.version)
    }

    /// Whether a pod is nominated for the node in this slot.
    pub fn has_nominated_pods(&self, slot: usize) -> bool {
        self.node_cache.marks.get(slot).is_some_and(|mark| mark.nominated > 0)
    }

    /// Whether any node reports its images.
    pub fn has_images(&self) -> bool {
        !self.node_cache.images.is_empty()
    }

    /// Number of nodes that have an image.
    pub fn nodes_with_image(&self, image: &str) -> usize {
        self.node_cache.images.get(image).copied().unwrap_or(0)
    }

    /// Returns the nodes that were added, removed or changed since the last call.
    pub fn take_changed_nodes(&mut self) -> BTreeSet<Str> {
        std::mem::take(&mut self.node_cache.changed)
    }

    /// Changes whenever names or labels of nodes do.
    pub(super) fn node_layout_version(&self) -> u64 {
        self.node_cache.shape
    }
}
