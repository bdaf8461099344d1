//! From the store's log to the World, and from a changed row to the keys that it concerns.

use super::RECONCILE;
use super::queue::{Fault, Item, WorkQueue};
use crate::kinds::custom::{self, DEFINITIONS};
use crate::kinds::shared::expressions;
use crate::object::{Key, Time};
use crate::runtime::contain::contain;
use crate::scheduler;
use crate::store::{ChangeKind, StoreError, StoreRead, meta_keys};
use crate::world::{Loop, Row, RowChange, WaitFilter, World};
use serde_json::Value;
use std::sync::Arc;

/// Most log entries taken in at once.
const BATCH: usize = 2000;

/// Fills an empty World with all objects of the store.
pub fn load(read: &dyn StoreRead, world: &mut World) -> Result<LoadProblems, StoreError> {
    world.revision = read.revision()?;
    let mut problems = LoadProblems::default();
    if let Some(text) = read.meta(meta_keys::PROFILES)?.filter(|text| !text.is_empty()) {
        let config = serde_json::from_str(&text).map_err(|error| error.to_string());
        match config.and_then(|config: Value| scheduler::config::profiles(&config).map_err(|error| error.to_string())) {
            Ok(profiles) => world.settings.profiles = profiles.into(),
            Err(why) => problems.profiles = Some(why),
        }
    }
    for stored in read.list_all()? {
        let about = stored.key.clone();
        // An object that cannot be read is missing from the World.
        let put = contain(|| {
            if stored.key.resource == DEFINITIONS {
                world.kinds.register(&stored.body);
            }
            world.put(stored.key, stored.body);
        });
        if let Err(text) = put {
            problems.faults.push(Fault { by: RECONCILE, about, text });
        }
    }
    Ok(problems)
}

/// The parts of a state that could not be loaded. The World is complete but for them.
#[derive(Debug, Default)]
pub struct LoadProblems {
    /// The reason why the scheduler's profiles are not those that were stored.
    pub profiles: Option<String>,
    /// Objects that are missing.
    pub faults: Vec<Fault>,
}

/// Compiles the expressions of all objects, and prepares plans, so that no plan has to under the write lock.
pub fn compile_all(world: &World, loops: &[&Loop]) {
    let rows = expressions::RESOURCES.iter().flat_map(|resource| world.list(resource));
    let keys: Vec<Key> = rows.map(|row| row.key.clone()).collect();
    compile(world, loops, &keys);
}

/// Compiles the expressions of objects, and prepares their plans. The caller holds no lock.
pub fn compile(world: &World, loops: &[&Loop], keys: &[Key]) {
    for row in keys.iter().filter_map(|key| world.get(key)) {
        // A failure shows again in the plan, which reports it.
        let _ = contain(|| {
            custom::compile(&expressions::find_uncompiled(row.key.resource, &row.body()));
            let own = loops.iter().filter(|each| each.root == row.key.resource.0);
            own.filter_map(|each| each.prepare).for_each(|prepare| prepare(world, &row.key));
        });
    }
}

/// Applies the log entries since the World's revision; the keys that they concern become due now. Returns the changed objects with
/// expressions, for [`compile`].
pub fn catch_up(
    read: &dyn StoreRead,
    world: &mut World,
    loops: &[&Loop],
    queue: &mut WorkQueue,
    now: Time,
) -> Result<Vec<Key>, StoreError> {
    let mut changed = Vec::new();
    loop {
        let entries = read.log_after(world.revision, BATCH)?;
        let Some(last) = entries.last().map(|entry| entry.revision) else { return Ok(changed) };
        for entry in entries {
            let stored = entry.change.stored();
            let key = stored.key.clone();
            let before = world.get(&key).cloned();
            let taken = contain(|| apply_change(world, &entry.change));
            if let Err(text) = taken {
                queue.note_fault(Fault { by: RECONCILE, about: key.clone(), text });
            }
            queue_concerned(world, loops, queue, (before.as_ref(), &key), None, now);
            if expressions::RESOURCES.contains(&key.resource.0) {
                changed.push(key);
            }
        }
        world.revision = last;
    }
}

/// Applies one change of the store to the world.
fn apply_change(world: &mut World, change: &ChangeKind) {
    match change {
        ChangeKind::Put(stored) => world.put(stored.key.clone(), stored.body.clone()),
        ChangeKind::Removed(stored) => world.remove(&stored.key),
    }
    if change.stored().key.resource == DEFINITIONS {
        match change {
            ChangeKind::Put(stored) => drop(world.kinds.register(&stored.body)),
            ChangeKind::Removed(stored) => world.kinds.unregister(&stored.key.name),
        }
    }
}

/// Queues the keys that a change of this key concerns, computed from the row before and after it. `settled` is the item whose plan made the
/// change, if that plan is settled ([`Plan::is_settled`](crate::world::Plan::is_settled)): it is not queued.
pub fn queue_concerned(
    world: &World,
    loops: &[&Loop],
    queue: &mut WorkQueue,
    (before, key): (Option<&Arc<Row>>, &Key),
    settled: Option<&Item>,
    now: Time,
) {
    let after = world.get(key);
    for (place, each) in loops.iter().enumerate() {
        if let Some(filter) = each.wait_filter {
            let change = RowChange { before: before.map(|row| &**row), after: after.map(|row| &**row) };
            wake_waiting(world, (place, each.root, filter), queue, change, now);
            continue;
        }
        for row in [before, after].into_iter().flatten() {
            match contain(|| (each.concerns)(world, row)) {
                Ok(mut roots) => {
                    if let Some((_, root)) = settled.filter(|(by, _)| *by == place) {
                        roots.retain(|each| each != root);
                    }
                    queue.add_all(place, roots, now)
                }
                Err(text) => queue.note_fault(Fault { by: each.name, about: row.key.clone(), text }),
            }
        }
    }
}

/// Makes due the keys of a loop that a change could help, and the changed key itself if the loop's filter accepts it.
fn wake_waiting(
    world: &World,
    (place, root, filter): (usize, &str, &WaitFilter),
    queue: &mut WorkQueue,
    change: RowChange<'_>,
    now: Time,
) {
    if let Some(row) = change.after.or(change.before).filter(|row| row.key.resource == root) {
        if (filter.is_due)(change) {
            queue.add((place, row.key.clone()), now);
        } else if (filter.is_done)(change) {
            queue.waiting.forget_pod(&row.key);
        }
    }
    for (key, at) in queue.waiting.woken(world, filter, change, now) {
        queue.add((place, key), at);
    }
}

/// Makes every key due, at a resync and at the start. A deleted root is due as long as a row concerns it, because its remains have to be
/// cleaned up. Pods are the exception: their remains are on the machine, not in the store.
pub fn queue_everything(world: &World, loops: &[&Loop], queue: &mut WorkQueue, at: Time) {
    for (place, each) in loops.iter().enumerate() {
        let mut look = |root: Key| queue.add((place, root), at);
        world.list(each.root).map(|row| row.key.clone()).for_each(&mut look);
        if each.root != "pods" {
            let roots = |row: &Arc<Row>| contain(|| (each.concerns)(world, row)).unwrap_or_default();
            // The objects that rows of the root concern exist and are listed above.
            let others = world.all_rows().filter(|row| row.key.resource != each.root && !is_plain_event(row));
            others.flat_map(roots).for_each(&mut look);
        }
    }
}

/// Whether a row is an Event that only counts as content of its namespace: it concerns no objects but those that exist. Most rows are such
/// events, and asking each loop about each of them took a seventh of a start.
fn is_plain_event(row: &Row) -> bool {
    row.key.resource == "events" && row.owners.is_empty() && row.finalizers.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use crate::reconcile::loops::all_loops;
    use serde_json::json;

    #[test]
    fn plain_event_concerns_only_objects_that_exist() {
        let mut world = World::new(Time::UNIX_EPOCH);
        let mut put = |resource: &'static str, namespace: &str, body: Value| {
            let key = Key::new(Resource(resource), namespace, body["metadata"]["name"].as_str().unwrap());
            world.put(key.clone(), body.to_string().into());
            key
        };
        put("namespaces", "", json!({"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        let hard = json!({"count/events": "5"});
        put("resourcequotas", "n", json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}));
        let metadata = json!({"name": "e", "namespace": "n", "uid": "u", "labels": {"app": "web"}});
        let about = json!({"kind": "Pod", "namespace": "n", "name": "p"});
        let event = put("events", "n", json!({"metadata": metadata, "involvedObject": about, "reason": "Started"}));
        let row = world.get(&event).unwrap();
        assert!(is_plain_event(row));
        let mut listed = 0;
        for each in all_loops() {
            for key in (each.concerns)(&world, row) {
                assert!(key.resource == each.root && world.get(&key).is_some(), "{}: {key:?}", each.name);
                listed += 1;
            }
        }
        assert!(listed > 1, "its namespace and its quota");
    }
}
