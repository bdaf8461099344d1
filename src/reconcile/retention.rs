//! Retention of events: deletes those that were not written for an hour, and the oldest above a maximum.
//!
//! Kubernetes keeps an event for an hour after it was last written (kube-apiserver: `--event-ttl`), in a database of its own if need
//! be. Here events are in the World with all other objects, so their number is limited, too: the limit grows with the number of objects in
//! the cluster, not with the number that it has ever had.

use crate::object::{Key, Object, Time};
use crate::world::{Row, World};
use jiff::SignedDuration;
use std::sync::Arc;

/// Time to live of an event that does not recur.
const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Number of events that any cluster may keep.
const MAX_EVENTS: usize = 10_000;
/// Number of events that a cluster may keep for each pod, if that is more.
const EVENTS_FOR_EACH_POD: usize = 10;
/// Divisor of the limit: events may exceed it by this part before old ones are deleted together.
const SLACK_DIVISOR: usize = 10;

const EVENTS: &str = "events";

/// Whether the number of events exceeds the limit by so much that the oldest are deleted.
pub fn is_crowded(world: &World) -> bool {
    let most = max_events(world);
    world.count_of(EVENTS) > most + most / SLACK_DIVISOR
}

/// Returns the events to delete now, the oldest first.
pub fn expired_events(world: &World) -> Vec<Key> {
    let mut events: Vec<&Arc<Row>> = world.list(EVENTS).filter(|row| !row.is_deleting()).collect();
    let too_many = if is_crowded(world) { events.len().saturating_sub(max_events(world)) } else { 0 };
    events.sort_unstable_by_key(|row| row.revision);
    let is_old =
        |row: &Row| row.created.is_some_and(|made| is_over(made, world.now)) && is_over(last_written(row), world.now);
    let mut place = 0..;
    events.retain(|row| place.next().is_some_and(|place| place < too_many) || is_old(row));
    events.into_iter().map(|row| row.key.clone()).collect()
}

fn max_events(world: &World) -> usize {
    MAX_EVENTS.max(EVENTS_FOR_EACH_POD * world.count_of("pods"))
}

fn is_over(at: Time, now: Time) -> bool {
    now.duration_since(at) > EVENT_LIFETIME
}

/// When an event was last written; an event with a series says when it was last observed.
fn last_written(row: &Row) -> Time {
    let object: Object = row.object();
    let moments = [&["series", "lastObservedTime"][..], &["lastTimestamp"], &["eventTime"]];
    let times = moments.into_iter().filter_map(|path| object.text(path)?.parse::<Time>().ok());
    times.chain(row.created).max().unwrap_or(Time::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Resource, time};
    use serde_json::json;

    fn world(events: impl Iterator<Item = (usize, i64, i64)>) -> World {
        let at = |second: i64| Time::from_second(second).unwrap();
        let mut world = World::new(at(10_000));
        for (number, made, last) in events {
            let name = format!("e{number:06}");
            let event = json!({"apiVersion": "v1", "kind": "Event", "lastTimestamp": time::rfc3339(at(last)), "metadata": {
                "name": name, "namespace": "default", "uid": name, "resourceVersion": (number + 1).to_string(),
                "creationTimestamp": time::rfc3339(at(made)),
            }});
            world.put(Key::new(Resource(EVENTS), "default", &name), event.to_string().into());
        }
        world
    }

    fn names(world: &World) -> Vec<String> {
        expired_events(world).iter().map(|key| key.name.to_string()).collect()
    }

    #[test]
    fn event_is_removed_an_hour_after_it_last_occurred() {
        let world = world([(0, 100, 100), (1, 100, 9_000), (2, 6_401, 6_401), (3, 6_399, 6_399)].into_iter());
        assert_eq!(names(&world), ["e000000", "e000003"]);
    }

    #[test]
    fn oldest_events_are_removed_when_there_are_far_too_many() {
        let fresh = |count: usize| world((0..count).map(|number| (number, 9_000, 9_000)));
        assert_eq!(names(&fresh(MAX_EVENTS + MAX_EVENTS / SLACK_DIVISOR)), Vec::<String>::new());
        let world = fresh(MAX_EVENTS + MAX_EVENTS / SLACK_DIVISOR + 1);
        let gone = names(&world);
        assert_eq!((gone.len(), &*gone[0], &**gone.last().unwrap()), (1001, "e000000", "e001000"));
    }

    #[test]
    fn large_cluster_keeps_more_events() {
        let mut world = world((0..MAX_EVENTS + MAX_EVENTS / SLACK_DIVISOR + 1).map(|number| (number, 9_000, 9_000)));
        for number in 0..1200 {
            let name = format!("p{number}");
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": name}});
            world.put(Key::new(Resource("pods"), "default", &name), pod.to_string().into());
        }
        assert!(expired_events(&world).is_empty());
    }
}
