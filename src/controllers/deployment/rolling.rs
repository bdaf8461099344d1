//! The steps of a rollout: scales the new ReplicaSet up and the old ones down.

use super::Rollout;
use super::sets::ReplicaSetState;
use crate::world::{Phase, Row};

impl Rollout<'_> {
    /// RollingUpdate: scales up first; scales down in a later plan.
    pub(super) fn roll(&mut self) {
        let Some(new) = self.new else {
            self.create_new_set();
            return;
        };
        if self.grow_new(new) || self.shrink_old(new) {
            return self.update_progress();
        }
        if self.is_complete() {
            self.clean_up();
        }
        self.update_progress();
    }

    /// Recreate: deletes all old pods before it creates new ones.
    pub(super) fn recreate(&mut self) {
        let running: Vec<usize> = self.old().filter(|at| self.sets[*at].replicas > 0).collect();
        if !running.is_empty() {
            running.into_iter().for_each(|at| self.scale(at, 0));
            return self.update_progress();
        }
        if self.old_pods_live() {
            self.plan.wait("waiting for the old pods to end");
            return self.update_progress();
        }
        let Some(new) = self.new else {
            return self.create_new_set();
        };
        if self.sets[new].replicas != self.spec.replicas {
            self.scale(new, self.spec.replicas);
        }
        if self.is_complete() {
            self.clean_up();
        }
        self.update_progress();
    }

    fn old_pods_live(&self) -> bool {
        let lives = |pod: &Row| pod.pod().is_some_and(|pod| !matches!(pod.phase, Phase::Failed | Phase::Succeeded));
        let has_pods = |at: usize| {
            let set = &self.sets[at];
            set.counts().replicas > 0 || self.world.controlled("pods", &set.row.uid).any(|pod| lives(pod))
        };
        self.old().any(has_pods)
    }

    /// The size that the new set may have now, so that the total stays within replicas + surge. Pods that a scaled-down
    /// set still has count as well; Kubernetes counts only `spec.replicas` and can exceed the surge briefly. Counts the
    /// pods themselves, since the set's status can lag behind.
    pub(super) fn room_for_new(&self, size: i64) -> i64 {
        let pods = |set: &ReplicaSetState| {
            let pods = self.world.controlled("pods", &set.row.uid);
            pods.filter(|pod| pod.is_active_pod()).count() as i64
        };
        let total: i64 = self.sets.iter().map(|set| set.replicas.max(pods(set)).max(set.counts().replicas)).sum();
        let room = self.spec.replicas + self.spec.surge - total;
        if room <= 0 { size } else { size + room.min(self.spec.replicas - size) }
    }

    fn grow_new(&mut self, new: usize) -> bool {
        let size = self.sets[new].replicas;
        let wanted = if size > self.spec.replicas { self.spec.replicas } else { self.room_for_new(size) };
        if wanted == size {
            return false;
        }
        self.scale(new, wanted);
        true
    }

    /// Scales the old sets down, oldest first: unavailable pods at once, available ones only while enough pods remain
    /// available.
    fn shrink_old(&mut self, new: usize) -> bool {
        let old: Vec<usize> = self.old().filter(|at| self.sets[*at].replicas > 0).collect();
        let floor = self.spec.replicas - self.spec.unavailable;
        let new_missing = self.sets[new].replicas - self.sets[new].available();
        let spare = self.total() - floor - new_missing;
        if old.is_empty() || spare <= 0 {
            return false;
        }
        let mut removed = self.scale_down_up_to(&old, spare, |available, size| size - available);
        let available: i64 = self.sets.iter().map(|set| set.available()).sum();
        if available > floor {
            removed += self.scale_down_up_to(&old, available - floor, |_, size| size);
        }
        removed > 0
    }

    /// Scales sets down in order, by up to `budget` pods in total and at most `from(available, size)` pods of each.
    fn scale_down_up_to(&mut self, sets: &[usize], mut budget: i64, from: impl Fn(i64, i64) -> i64) -> i64 {
        let mut removed = 0;
        for at in sets {
            let size = self.sets[*at].replicas;
            let step = from(self.sets[*at].available(), size).min(budget);
            if step > 0 {
                self.scale(*at, size - step);
                budget -= step;
                removed += step;
            }
        }
        removed
    }
}
