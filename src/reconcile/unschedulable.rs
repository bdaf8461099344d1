//! The scheduler's queue of unschedulable pods: they wait here for a change that could help them, and then for their backoff. A pod that
//! is to be scheduled is in the [`WorkQueue`](super::queue::WorkQueue), with all other keys.

use crate::object::{Key, Str, Time};
use crate::world::plan::SchedulingWait;
use crate::world::{RowChange, WaitFilter, World};
use hashbrown::HashMap;
use jiff::SignedDuration;
use std::collections::BTreeSet;

/// The first pause after a failed attempt, doubled with each, and the longest (kube-scheduler: `podInitialBackoffSeconds`,
/// `podMaxBackoffSeconds`).
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
const MAX_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// Longest wait of a pod, after which it is tried again in any case (kube-scheduler: `podMaxInUnschedulablePodsDuration`).
const LEFT_OVER: SignedDuration = SignedDuration::from_mins(5);

/// Pods that could not be scheduled.
#[derive(Default)]
pub struct UnschedulablePods {
    /// Pods that the same changes can help.
    groups: HashMap<Str, UnschedulableGroup>,
    attempts: HashMap<Key, SchedulingAttempts>,
}

struct UnschedulableGroup {
    scheduling_wait: SchedulingWait,
    pods: BTreeSet<Key>,
}

struct SchedulingAttempts {
    number: u32,
    last: Time,
    /// Its group, while it waits for a change.
    group: Option<Str>,
}

impl SchedulingAttempts {
    /// When it may be tried again.
    fn next_try(&self) -> Time {
        let pause = FIRST_PAUSE.saturating_mul(1 << (self.number - 1).min(4)).min(MAX_PAUSE);
        self.last.saturating_add(pause).unwrap_or(self.last)
    }
}

impl UnschedulablePods {
    /// Adds a pod that fits no node; it waits for a change that could help.
    pub fn park(&mut self, key: &Key, scheduling_wait: SchedulingWait, now: Time) {
        let number = self.attempts.get(key).map_or(1, |known| known.number + 1);
        self.leave_group(key);
        let group = scheduling_wait.alike.clone();
        self.groups
            .entry(group.clone())
            .or_insert_with(|| UnschedulableGroup { scheduling_wait, pods: BTreeSet::new() })
            .pods
            .insert(key.clone());
        self.attempts.insert(key.clone(), SchedulingAttempts { number, last: now, group: Some(group) });
    }

    /// Removes a pod that is bound, deleted or needs no wait.
    pub fn forget_pod(&mut self, key: &Key) {
        self.leave_group(key);
        self.attempts.remove(key);
    }

    fn leave_group(&mut self, key: &Key) {
        let Some(group) = self.attempts.get_mut(key).and_then(|known| known.group.take()) else { return };
        if let Some(alike) = self.groups.get_mut(&group) {
            alike.pods.remove(key);
            if alike.pods.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    /// Removes the pods that a change could help, and returns each with the time at which it may be tried. A nominated pod, for which
    /// others were preempted, skips its backoff.
    pub fn woken(&mut self, world: &World, filter: &WaitFilter, change: RowChange<'_>, now: Time) -> Vec<(Key, Time)> {
        let is_helped = |group: &UnschedulableGroup| {
            let example = group.pods.first().and_then(|key| world.get(key));
            example.is_none_or(|row| (filter.helps)(world, &group.scheduling_wait, row, change))
        };
        let helped: Vec<Str> =
            self.groups.iter().filter(|(_, group)| is_helped(group)).map(|(name, _)| name.clone()).collect();
        let pods: BTreeSet<Key> =
            helped.iter().filter_map(|name| self.groups.remove(name)).flat_map(|group| group.pods).collect();
        let mut woken = Vec::new();
        for key in pods {
            let promised = world.get(&key).and_then(|row| row.pod()).is_some_and(|pod| pod.nominated.is_some());
            let Some(known) = self.attempts.get_mut(&key) else { continue };
            known.group = None;
            let at = if promised { now } else { known.next_try().max(now) };
            woken.push((key, at));
        }
        woken
    }

    /// Takes the pods that have waited longer than the limit, in case a hint was missed (kube-scheduler: flushUnschedulablePodsLeftover).
    pub fn take_overdue(&mut self, now: Time) -> Vec<Key> {
        let is_late = |known: &SchedulingAttempts| known.group.is_some() && now.duration_since(known.last) >= LEFT_OVER;
        let mut late: Vec<Key> =
            self.attempts.iter().filter(|(_, known)| is_late(known)).map(|(key, _)| key.clone()).collect();
        late.sort();
        late.iter().for_each(|key| self.leave_group(key));
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use crate::object::testing::time_at;
    use crate::scheduler::queueing_hints::WAIT_FILTER;
    use crate::world::Row;
    use serde_json::json;

    fn scheduling_wait(alike: &str) -> SchedulingWait {
        SchedulingWait { alike: alike.into(), ..SchedulingWait::default() }
    }

    #[test]
    fn pods_wait_for_a_change_and_then_for_their_backoff() {
        let mut world = World::new(time_at(0));
        let key = Key::new(Resource("pods"), "default", "p");
        let pod = json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": {}});
        world.put(key.clone(), pod.to_string().into());
        let node =
            json!({"kind": "Node", "metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"cpu": "1"}}});
        let node = Row::new(Key::new(Resource("nodes"), "", "n"), crate::object::Object(node));
        let change = RowChange { before: None, after: Some(&node) };
        let mut waiting = UnschedulablePods::default();
        for pause in [1, 2, 4, 8, 10, 10] {
            waiting.park(&key, scheduling_wait("a"), time_at(100));
            assert_eq!(
                waiting.woken(&world, &WAIT_FILTER, change, time_at(100)),
                [(key.clone(), time_at(100 + pause))]
            );
            assert!(waiting.woken(&world, &WAIT_FILTER, change, time_at(100)).is_empty(), "it is in the other queue");
        }
        waiting.park(&key, scheduling_wait("a"), time_at(100));
        assert_eq!(
            waiting.woken(&world, &WAIT_FILTER, change, time_at(500)),
            [(key.clone(), time_at(500))],
            "long enough ago"
        );
        waiting.forget_pod(&key);
        waiting.park(&key, scheduling_wait("a"), time_at(100));
        assert_eq!(
            (waiting.take_overdue(time_at(399)), waiting.take_overdue(time_at(400))),
            (vec![], vec![key.clone()])
        );
        waiting.forget_pod(&key);
        assert!(waiting.groups.is_empty() && waiting.attempts.is_empty());
    }
}
