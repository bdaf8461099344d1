//! The nodes in one row, ordered by name, each with what its pods ask for together: what the scheduler walks over.

use super::{Load, Row, World};
use crate::object::Str;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A node and its load.
pub struct Place {
    /// The node.
    pub row: Arc<Row>,
    /// What its pods that have not ended ask for.
    pub load: Load,
}

/// All nodes.
#[derive(Default)]
pub(super) struct Fleet {
    places: Vec<Place>,
    /// What is asked of many nodes at a time, in the same order.
    marks: Vec<Mark>,
    /// Loads of nodes that are named by pods and are not there.
    strays: HashMap<Str, Load>,
    /// How many nodes have each image.
    images: HashMap<Str, usize>,
    /// Never twice the same for other names or labels of nodes.
    shape: u64,
    /// The nodes that came, went or became others since somebody asked for them.
    changed: BTreeSet<Str>,
    /// The last version that was given to a node.
    versions: u64,
}

/// What tells whether a node has to be looked at anew.
#[derive(Clone, Copy)]
struct Mark {
    /// Never twice the same, not even for another node.
    version: u64,
    /// How many pods were promised the node.
    promised: usize,
}

impl Fleet {
    /// A node comes, or is another one than it was; `promised` are the pods that were promised a node of this name.
    pub(super) fn put(&mut self, row: &Arc<Row>, promised: usize) {
        self.changed.insert(row.key.name.clone());
        let mark = Mark { version: self.next_version(), promised };
        match self.slot(&row.key.name) {
            Ok(slot) => {
                let before = std::mem::replace(&mut self.places[slot].row, row.clone());
                self.shape += u64::from(before.labels != row.labels);
                self.marks[slot] = mark;
                self.images_go(&before);
            }
            Err(slot) => {
                let load = self.strays.remove(&row.key.name).unwrap_or_default();
                self.places.insert(slot, Place { row: row.clone(), load });
                self.marks.insert(slot, mark);
                self.shape += 1;
            }
        }
        for image in row.node().into_iter().flat_map(|node| node.images.keys()) {
            *self.images.entry(image.clone()).or_default() += 1;
        }
    }

    fn images_go(&mut self, row: &Row) {
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
        self.images_go(&place.row);
        self.changed.insert(name.clone());
        if place.load.pods > 0 {
            self.strays.insert(name.clone(), place.load);
        }
        self.shape += 1;
    }

    /// Changes the load of a node, whether or not it is there.
    pub(super) fn weigh(&mut self, name: &Str, change: impl FnOnce(&mut Load)) {
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

    /// So many pods are promised a node now.
    pub(super) fn promise(&mut self, name: &Str, promised: usize) {
        if let Ok(slot) = self.slot(name) {
            self.marks[slot] = Mark { version: self.next_version(), promised };
        }
    }

    fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// Where a node stands, or would stand.
    pub(super) fn slot(&self, name: &str) -> Result<usize, usize> {
        self.places.binary_search_by(|place| (*place.row.key.name).cmp(name))
    }
}

impl World {
    /// All nodes, ordered by name.
    pub fn fleet(&self) -> &[Place] {
        &self.fleet.places
    }

    /// What the pods of a node that have not ended ask for together; none when it has none.
    pub fn load_of(&self, node: &str) -> Option<&Load> {
        let load = match self.fleet.slot(node) {
            Ok(slot) => Some(&self.fleet.places[slot].load),
            Err(_) => self.fleet.strays.get(node),
        };
        load.filter(|load| load.pods > 0)
    }

    /// Where a node stands among them.
    pub fn slot_of(&self, node: &str) -> Option<usize> {
        self.fleet.slot(node).ok()
    }

    /// The version of the node that stands here: another one whenever the node, one of its pods or one that it was promised to changes,
    /// and never one that any node had before. None is 0.
    pub fn version_at(&self, slot: usize) -> u64 {
        self.fleet.marks.get(slot).map_or(0, |mark| mark.version)
    }

    /// Whether any pod was promised the node that stands here.
    pub fn is_promised(&self, slot: usize) -> bool {
        self.fleet.marks.get(slot).is_some_and(|mark| mark.promised > 0)
    }

    /// Whether any node says which images it has.
    pub fn knows_images(&self) -> bool {
        !self.fleet.images.is_empty()
    }

    /// How many nodes have an image.
    pub fn nodes_with_image(&self, image: &str) -> usize {
        self.fleet.images.get(image).copied().unwrap_or(0)
    }

    /// The nodes that came, went or became others since this was last asked.
    pub fn take_changed_nodes(&mut self) -> BTreeSet<Str> {
        std::mem::take(&mut self.fleet.changed)
    }

    /// Changes whenever names or labels of nodes do.
    pub(super) fn fleet_shape(&self) -> u64 {
        self.fleet.shape
    }
}
