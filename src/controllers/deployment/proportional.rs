//! Scaling a Deployment that is paused or in the middle of a rollout: running sets share the change by their size, so that
//! the risk of the new template stays what it was (Kubernetes: proportional scaling).

use super::Rollout;
use std::cmp::Reverse;

impl Rollout<'_> {
    pub(super) fn scale_proportionally(&mut self) {
        let replicas = self.spec.replicas;
        if let Some(only) = self.only_active_or_newest() {
            return self.scale(only, replicas);
        }
        let active: Vec<usize> = (0..self.sets.len()).filter(|at| self.sets[*at].replicas > 0).collect();
        if self.is_saturated() {
            return self.old().filter(|at| active.contains(at)).for_each(|at| self.scale(at, 0));
        }
        if !self.spec.recreate {
            self.share(active);
        }
    }

    /// The set to scale when there is no choice: the only running one, or with none running the new or newest one.
    fn only_active_or_newest(&self) -> Option<usize> {
        let active: Vec<usize> = (0..self.sets.len()).filter(|at| self.sets[*at].replicas > 0).collect();
        match active.as_slice() {
            [] => self.new.or_else(|| self.sets.len().checked_sub(1)),
            [only] => Some(*only),
            _ => None,
        }
    }

    /// The new set alone is all that is wanted.
    fn is_saturated(&self) -> bool {
        let Some(set) = self.new.map(|new| &self.sets[new]) else { return false };
        let wanted = self.spec.replicas;
        set.desired() == Some(wanted) && set.replicas == wanted && set.counts().available == wanted
    }

    fn share(&mut self, mut active: Vec<usize>) {
        let allowed = if self.spec.replicas > 0 { self.spec.replicas + self.spec.surge } else { 0 };
        let change = allowed - active.iter().map(|at| self.sets[*at].replicas).sum::<i64>();
        // Sets are held oldest first: a place is an age.
        if change > 0 {
            active.sort_by_key(|at| (Reverse(self.sets[*at].replicas), Reverse(*at)));
        } else {
            active.sort_by_key(|at| (Reverse(self.sets[*at].replicas), *at));
        }
        let mut left = change;
        let mut sizes: Vec<i64> = Vec::new();
        for at in &active {
            let part = self.part(*at, left);
            left -= part;
            sizes.push(self.sets[*at].replicas + part);
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + left).max(0);
        }
        for (at, size) in active.into_iter().zip(sizes) {
            self.scale(at, size);
        }
    }

    /// A set's part of the change, by the size it had of what was allowed before.
    fn part(&self, at: usize, left: i64) -> i64 {
        let (set, spec) = (&self.sets[at], &self.spec);
        if set.replicas == 0 || left == 0 {
            return 0;
        }
        let fair = match spec.replicas {
            0 => -set.replicas,
            replicas => {
                let counted = self.object.int(&["status", "replicas"]).unwrap_or(0);
                let before = set.max().filter(|max| *max > 0).unwrap_or(counted).max(1);
                rounded(set.replicas * (replicas + spec.surge), before) - set.replicas
            }
        };
        if left > 0 { fair.min(left) } else { fair.max(left) }
    }
}

/// A quotient of positive numbers, halves rounded up.
fn rounded(dividend: i64, divisor: i64) -> i64 {
    (2 * dividend + divisor) / (2 * divisor)
}
