//! Faults that the tests in `tests/sim/` inject between a control plane and its machine: clocks that jump, lost reports, shims that die.

use super::Simulation;
use crate::world::Report;
use jiff::SignedDuration;

impl Simulation {
    /// The clock on the wall is set forward or back.
    pub fn set_wall_clock(&mut self, by: SignedDuration) {
        self.machine.skew += by;
    }

    /// The report at this place is lost.
    pub fn lose(&mut self, place: usize) {
        if let Some(Report::Container { pod_uid, .. } | Report::Probe { pod_uid, .. } | Report::Removed { pod_uid }) =
            self.mail.remove(place)
        {
            self.lost.insert(pod_uid);
        }
    }

    /// Whether a report was lost and the control plane has not noticed.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Restores lost connections: the shims report the state of each container.
    pub fn reconnect(&mut self) {
        let inventory = self.machine.inventory();
        for uid in std::mem::take(&mut self.lost) {
            let Some(pod) = inventory.get(&uid) else {
                self.mail.push_back(Report::Removed { pod_uid: uid });
                continue;
            };
            for (name, known) in &pod.containers {
                let (container, attempt, state) = (name.clone(), known.attempt, known.state.clone());
                self.mail.push_back(Report::Container { pod_uid: uid.clone(), container, attempt, state });
            }
        }
    }

    /// A pod's shim is killed.
    pub fn kill_shim(&mut self, pod_uid: &str) {
        self.machine.lose_shim(self.clock, pod_uid);
        self.collect();
    }
}
