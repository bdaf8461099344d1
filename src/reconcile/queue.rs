//! Work queue: keys by loop, each at most once, with delays and backoff for failing keys.
//!
//! Due keys are ordered by priority (of pods, as in Kubernetes' scheduling queue), then started work first, then by due time.

use super::unschedulable::UnschedulablePods;
use crate::object::{Key, Time};
use hashbrown::{HashMap, HashSet};
use jiff::SignedDuration;
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

/// First pause after a failure; doubled each time (client-go: ItemExponentialFailureRateLimiter).
const FIRST_PAUSE: SignedDuration = SignedDuration::from_millis(5);

/// Longest pause after failures.
const MAX_PAUSE: SignedDuration = SignedDuration::from_secs(1000);

/// Maximum number of keys that enter the queue at once. More of them wait in a backlog, so that the change of one object that concerns
/// many neither takes long nor delays the keys of others.
const FAN_OUT: usize = 500;

/// A key of a loop; the loop by its place in the table.
pub type Item = (usize, Key);

/// Priority among due keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePriority {
    /// The priority of a pod.
    pub priority: i32,
    /// Whether this tick writes the key's object anyway: further changes of it cost no additional row.
    pub begun: bool,
}

/// A panic about one key, outside of a plan.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// The loop that panicked, or `reconcile`.
    pub by: &'static str,
    /// The key.
    pub about: Key,
    /// The panic's message.
    pub text: String,
}

/// Most panics that are kept until they are logged.
const MAX_FAULTS: usize = 100;

/// Selects due keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct DueFilter {
    /// Only keys queued before this mark, if there is one.
    pub mark: Option<u64>,
    /// Only keys that have begun ([`QueuePriority::begun`]).
    pub begun: bool,
}

/// Keys to plan, ordered by the time at which they are due.
#[derive(Default)]
pub struct WorkQueue {
    order: BTreeSet<(Time, u64, Item)>,
    places: HashMap<Item, (Time, u64)>,
    /// Number of keys in `places` by loop.
    counts: Vec<usize>,
    /// Due keys, highest priority first.
    due: BTreeSet<(Reverse<QueuePriority>, Time, u64, Item)>,
    failures: HashMap<Item, u32>,
    /// Keys that have not entered the queue, and since when they are due.
    backlog: VecDeque<(Item, Time)>,
    /// The keys of the backlog: each is there once.
    in_backlog: HashSet<Item>,
    /// Number of keys in the backlog by loop.
    backlog_counts: Vec<usize>,
    /// Pods that no node could take.
    pub waiting: UnschedulablePods,
    sequence: u64,
    faults: Vec<Fault>,
}

impl WorkQueue {
    /// Queues a key for a moment; a key that already waits keeps the earlier one.
    pub fn add(&mut self, item: Item, at: Time) {
        if let Some((known, sequence)) = self.places.get(&item).copied() {
            if known <= at {
                return;
            }
            if !self.order.remove(&(known, sequence, item.clone())) {
                return;
            }
        }
        self.sequence += 1;
        if self.places.insert(item.clone(), (at, self.sequence)).is_none() {
            *count_of(&mut self.counts, item.0) += 1;
        }
        self.order.insert((at, self.sequence, item));
    }

    /// Queues all keys that a change concerns. When there are many, most enter the queue as [`WorkQueue::pop`] takes others out.
    pub fn add_all(&mut self, loop_index: usize, keys: Vec<Key>, at: Time) {
        let mut keys = keys.into_iter();
        keys.by_ref().take(FAN_OUT).for_each(|key| self.add((loop_index, key), at));
        for key in keys {
            let item = (loop_index, key);
            let is_queued = self.places.get(&item).is_some_and(|(known, _)| *known <= at);
            if !is_queued && self.in_backlog.insert(item.clone()) {
                *count_of(&mut self.backlog_counts, loop_index) += 1;
                self.backlog.push_back((item, at));
            }
        }
    }

    /// Takes keys from the backlog: many when little is due, else one, so that each key has its turn.
    fn take_from_backlog(&mut self) {
        let count = if self.order.len() + self.due.len() < FAN_OUT { FAN_OUT } else { 1 };
        for _ in 0..count {
            let Some((item, at)) = self.backlog.pop_front() else { return };
            self.in_backlog.remove(&item);
            *count_of(&mut self.backlog_counts, item.0) -= 1;
            self.add(item, at);
        }
    }

    /// Notes a panic about a key, to be logged with the next tick. The first are kept.
    pub fn note_fault(&mut self, fault: Fault) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        }
    }

    /// The panics noted since the last call.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    /// Queues a key again after it failed, later with each failure in a row. True for the first in a row.
    pub fn add_failed(&mut self, item: Item, now: Time) -> bool {
        let failures = self.failures.entry(item.clone()).or_default();
        let pause = FIRST_PAUSE.saturating_mul(1 << (*failures).min(20)).min(MAX_PAUSE);
        *failures += 1;
        let is_first = *failures == 1;
        self.add(item, now + pause);
        is_first
    }

    /// Resets the failures of a key after a success.
    pub fn forget_failures(&mut self, item: &Item) {
        self.failures.remove(item);
    }

    /// Returns the number of keys added so far, as a mark for later additions.
    pub fn mark(&self) -> u64 {
        self.sequence
    }

    /// Removes and returns the most important due key that passes the filter.
    pub fn pop(&mut self, now: Time, among: DueFilter, rank: impl Fn(&Key) -> QueuePriority) -> Option<Item> {
        self.take_from_backlog();
        while self.order.first().is_some_and(|(at, _, _)| *at <= now)
            && let Some((at, sequence, item)) = self.order.pop_first()
        {
            self.due.insert((Reverse(rank(&item.1)), at, sequence, item));
        }
        let is_up_to = |sequence: u64| among.mark.is_none_or(|mark| sequence <= mark);
        let first = self.due.iter().find(|(_, _, sequence, _)| is_up_to(*sequence))?;
        if among.begun && !first.0.0.begun {
            return None;
        }
        let first = first.clone();
        self.due.remove(&first);
        let (_, _, _, item) = first;
        if self.places.remove(&item).is_some() {
            self.counts[item.0] -= 1;
        }
        Some(item)
    }

    /// Makes every waiting key due at this moment at the latest.
    pub fn expedite(&mut self, at: Time) {
        let waiting: Vec<Item> = self.order.iter().map(|(_, _, item)| item.clone()).collect();
        waiting.into_iter().for_each(|item| self.add(item, at));
    }

    /// Number of keys of a loop that wait, now or for later.
    pub fn depth(&self, place: usize) -> usize {
        let count = |counts: &[usize]| counts.get(place).copied().unwrap_or_default();
        count(&self.counts) + count(&self.backlog_counts)
    }

    /// When the next key is due.
    pub fn next_due(&self) -> Option<Time> {
        let next = self.due.first().map(|(_, at, _, _)| *at).or_else(|| self.order.first().map(|(at, _, _)| *at));
        next.into_iter().chain(self.backlog.front().map(|(_, at)| *at)).min()
    }

    /// Whether anything is due.
    pub fn is_due(&self, now: Time) -> bool {
        !self.due.is_empty() || self.next_due().is_some_and(|at| at <= now)
    }
}

/// The count of a loop, among those of all loops.
fn count_of(counts: &mut Vec<usize>, loop_index: usize) -> &mut usize {
    counts.resize(counts.len().max(loop_index + 1), 0);
    &mut counts[loop_index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use crate::object::testing::time_at;

    fn item(name: &str) -> Item {
        (0, Key::new(Resource("pods"), "default", name))
    }

    const ALL: DueFilter = DueFilter { mark: None, begun: false };

    fn any(_: &Key) -> QueuePriority {
        QueuePriority::default()
    }

    fn rank(key: &Key) -> QueuePriority {
        QueuePriority { priority: i32::from(key.name.ends_with('9')), begun: key.name.starts_with("begun") }
    }

    #[test]
    fn key_waits_once_and_at_the_earlier_moment() {
        let mut queue = WorkQueue::default();
        queue.add(item("a"), time_at(10));
        queue.add(item("a"), time_at(5));
        queue.add(item("a"), time_at(20));
        queue.add(item("b"), time_at(7));
        assert_eq!(queue.next_due(), Some(time_at(5)));
        assert_eq!(queue.pop(time_at(4), ALL, any), None);
        assert_eq!(queue.pop(time_at(30), ALL, any), Some(item("a")));
        assert_eq!(queue.pop(time_at(30), ALL, any), Some(item("b")));
        assert_eq!(queue.pop(time_at(30), ALL, any), None);
    }

    #[test]
    fn more_important_keys_come_first() {
        let mut queue = WorkQueue::default();
        for (name, due) in [("a", 1), ("b9", 2), ("c", 3), ("d9", 20)] {
            queue.add(item(name), time_at(due));
        }
        let mut order: Vec<Item> = Vec::new();
        order.extend(queue.pop(time_at(10), ALL, rank));
        // A key added now is ordered among the due ones; a due key keeps its place.
        queue.add(item("e9"), time_at(10));
        queue.add(item("a"), time_at(0));
        assert!(queue.is_due(time_at(0)) && queue.next_due() == Some(time_at(1)));
        order.extend(std::iter::from_fn(|| queue.pop(time_at(10), ALL, rank)));
        assert_eq!(order, ["b9", "e9", "a", "c"].map(item));
        assert_eq!(queue.next_due(), Some(time_at(20)));
    }

    #[test]
    fn keys_added_after_a_mark_can_wait() {
        let mut queue = WorkQueue::default();
        queue.add(item("a"), time_at(1));
        queue.add(item("b"), time_at(1));
        let before = DueFilter { mark: Some(queue.mark()), ..ALL };
        queue.add(item("c9"), time_at(1));
        let order: Vec<Item> = std::iter::from_fn(|| queue.pop(time_at(2), before, rank)).collect();
        assert_eq!(order, ["a", "b"].map(item));
        assert_eq!(queue.pop(time_at(2), ALL, rank), Some(item("c9")));
    }

    #[test]
    fn begun_keys_come_first_and_can_be_popped_alone() {
        let mut queue = WorkQueue::default();
        for (name, due) in [("new", 1), ("begun", 3), ("important9", 4)] {
            queue.add(item(name), time_at(due));
        }
        let begun = DueFilter { begun: true, ..ALL };
        let order = [ALL, begun, begun, ALL].map(|among| queue.pop(time_at(9), among, rank));
        assert_eq!(order, [Some(item("important9")), Some(item("begun")), None, Some(item("new"))]);
    }

    #[test]
    fn keys_of_a_large_fan_out_enter_the_queue_some_at_a_time() {
        let mut queue = WorkQueue::default();
        let keys: Vec<Key> = (0..10 * FAN_OUT).map(|number| item(&number.to_string()).1).collect();
        queue.add_all(0, keys.clone(), time_at(1));
        assert_eq!((queue.places.len(), queue.depth(0), queue.depth(1)), (FAN_OUT, 10 * FAN_OUT, 0));
        queue.add(item("other"), time_at(1));
        assert!(queue.is_due(time_at(1)) && !queue.is_due(time_at(0)));
        let mut found: Vec<Key> = Vec::new();
        while let Some((_, key)) = queue.pop(time_at(1), ALL, any) {
            assert!(queue.places.len() <= 2 * FAN_OUT);
            found.push(key);
        }
        assert!(found.iter().position(|key| *key.name == *"other").is_some_and(|at| at <= 2 * FAN_OUT));
        assert_eq!(found.len(), keys.len() + 1);
        assert!(!queue.is_due(time_at(1)) && queue.next_due().is_none());
    }

    #[test]
    fn key_of_the_backlog_has_its_turn_beside_many_others() {
        let mut queue = WorkQueue::default();
        let keys = |of: &str, count: usize| (0..count).map(|number| item(&format!("{of}{number}")).1).collect();
        queue.add_all(0, keys("a", FAN_OUT + 1), time_at(1));
        (0..FAN_OUT).for_each(|number| queue.add(item(&format!("b{number}")), time_at(1)));
        queue.pop(time_at(1), ALL, any);
        assert!(queue.backlog.is_empty(), "the last key waits in the queue itself");
    }

    #[test]
    fn backlog_has_each_key_once() {
        let mut queue = WorkQueue::default();
        let keys: Vec<Key> = (0..3 * FAN_OUT).map(|number| item(&number.to_string()).1).collect();
        for second in 1..20 {
            queue.add_all(0, keys.clone(), time_at(second));
            queue.add_all(1, keys.clone(), time_at(second));
        }
        assert_eq!((queue.backlog.len(), queue.depth(0), queue.depth(1)), (4 * FAN_OUT, 3 * FAN_OUT, 3 * FAN_OUT));
        let planned = std::iter::from_fn(|| queue.pop(time_at(20), ALL, any)).count();
        assert_eq!((planned, queue.depth(0), queue.in_backlog.len()), (6 * FAN_OUT, 0, 0));
    }

    #[test]
    fn waiting_keys_can_be_hurried() {
        let mut queue = WorkQueue::default();
        queue.add(item("a"), time_at(100));
        queue.add(item("b"), time_at(3));
        queue.expedite(time_at(5));
        assert_eq!(
            [queue.pop(time_at(5), ALL, any), queue.pop(time_at(5), ALL, any), queue.pop(time_at(5), ALL, any)],
            [Some(item("b")), Some(item("a")), None]
        );
    }

    #[test]
    fn failures_double_the_pause_until_forgotten() {
        let mut queue = WorkQueue::default();
        let pauses: Vec<i128> = (0..4)
            .map(|_| {
                queue.add_failed(item("a"), time_at(0));
                let next = queue.next_due().unwrap();
                queue.pop(next, ALL, any);
                next.as_nanosecond() / 1_000_000
            })
            .collect();
        assert_eq!(pauses, [5, 10, 20, 40]);
        queue.forget_failures(&item("a"));
        queue.add_failed(item("a"), time_at(0));
        assert_eq!(queue.next_due().unwrap().as_millisecond(), 5);
        for _ in 0..100 {
            queue.add_failed(item("b"), time_at(0));
            let next = queue.places[&item("b")].0;
            assert!(next <= time_at(1000));
        }
    }
}
