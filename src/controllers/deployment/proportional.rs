//! Proportional scaling (as in Kubernetes): a Deployment that is paused or in the middle of a rollout distributes a
//! change of `replicas` over its running sets by their size, which limits the risk of the new template.

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
            self.distribute(active);
        }
    }

    /// The only running set; without running sets, the new or newest one. `None` when several sets run.
    fn only_active_or_newest(&self) -> Option<usize> {
        let active: Vec<usize> = (0..self.sets.len()).filter(|at| self.sets[*at].replicas > 0).collect();
        match active.as_slice() {
            [] => self.new.or_else(|| self.sets.len().checked_sub(1)),
            [only] => Some(*only),
            _ => None,
        }
    }

    /// Whether the new set has all replicas, and all are available.
    fn is_saturated(&self) -> bool {
        let Some(set) = self.new.map(|new| &self.sets[new]) else { return false };
        let wanted = self.spec.replicas;
        set.desired() == Some(wanted) && set.replicas == wanted && set.counts().available == wanted
    }

    fn distribute(&mut self, mut active: Vec<usize>) {
        let allowed = if self.spec.replicas > 0 { self.spec.replicas + self.spec.surge } else { 0 };
        let change = allowed - active.iter().map(|at| self.sets[*at].replicas).sum::<i64>();
        // The sets are sorted by age, oldest first.
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

    /// A set's part of the change, in proportion to its size within the former maximum.
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
                divide_rounded(set.replicas * (replicas + spec.surge), before) - set.replicas
            }
        };
        if left > 0 { fair.min(left) } else { fair.max(left) }
    }
}

/// Divides positive numbers and rounds half up.
fn divide_rounded(dividend: i64, divisor: i64) -> i64 {
    (2 * dividend + divisor) / (2 * divisor)
}
