//! Filters activity of CronJobs that were not applied out of a preview: their Jobs, pods, and history cleanup.
//!
//! Knows: which objects belong to such a CronJob, also when they are gone. Jobs and pods that ran when the preview began are not filtered,
//! because applied objects may preempt them.
//! Never: leaves out an object that belongs to an applied one. Start reading at [`CronFilter::drives`].

use crate::diagnosis::why::owners;
use crate::object::{Key, Object};
use crate::world::{Row, World};
use std::collections::HashMap;

const CLOCK: &str = "cronjobs.batch";

/// The CronJobs that were not applied, and their objects.
pub struct CronFilter {
    applied: Vec<Key>,
    /// Result per object; kept after the object or its owner is gone.
    known: HashMap<Key, bool>,
}

impl CronFilter {
    /// Makes the filter for a World at the start of a preview.
    pub fn from_world(world: &World, applied: &[Key]) -> CronFilter {
        let mut filter = CronFilter { applied: applied.to_vec(), known: HashMap::new() };
        for row in [CLOCK, "jobs.batch", "pods"].into_iter().flat_map(|resource| world.list(resource)) {
            let is_driven = filter.is_below(world, row) && has_ended(row);
            filter.known.insert(row.key.clone(), is_driven);
        }
        filter
    }

    /// Whether an object exists only because of the schedule of such a CronJob.
    pub fn drives(&mut self, world: &World, key: &Key) -> bool {
        if let Some(known) = self.known.get(key) {
            return *known;
        }
        let Some(row) = world.get(key) else { return false };
        let is_driven = self.is_below(world, row);
        self.known.insert(key.clone(), is_driven);
        is_driven
    }

    fn is_below(&self, world: &World, row: &Row) -> bool {
        let above = owners(world, row);
        let is_applied = |row: &Row| self.applied.contains(&row.key);
        let top = above.first().map_or(row, |top| top);
        top.key.resource == CLOCK && !is_applied(row) && !above.iter().any(|owner| is_applied(owner))
    }
}

/// Whether a Job or a pod has ended and will not change. A CronJob itself acts only by the clock.
fn has_ended(row: &Row) -> bool {
    let is_over = |job: &Object| job.has_condition("Complete") || job.has_condition("Failed");
    match row.pod() {
        Some(pod) => pod.phase.is_terminal(),
        None => row.key.resource == CLOCK || is_over(&row.object()),
    }
}
