//! From the store's log to the World, and from a changed row to the keys that it concerns.

use super::queue::{Fault, Item, WorkQueue};
use crate::apiserver;
use crate::kinds::custom::{self, DEFINITIONS};
use crate::kinds::expressions;
use crate::object::{Key, Time};
use crate::runtime::allocator::use_mimalloc;
use crate::runtime::contain::contain;
use crate::scheduler;
use crate::store::{ChangeKind, StoreError, StoreRead, StoredObject};
use crate::world::{Loop, Row, RowChange, WaitFilter, World};
use serde_json::Value;
use std::sync::Arc;
use std::thread;

/// Most log entries taken in at once.
const BATCH: usize = 2000;
/// Most objects whose rows are read before they are put into a World, where rows of siblings share memory.
const MAX_ROWS_AT_ONCE: usize = 8000;
/// Fewest objects that a second thread is worth.
const MIN_ROWS_FOR_THREAD: usize = 500;

/// Fills an empty World with all objects of the store.
pub fn load(read: &dyn StoreRead, world: &mut World) -> Result<LoadProblems, StoreError> {
    world.revision = read.revision()?;
    let mut problems = LoadProblems::default();
    if let Some(text) = read.meta(apiserver::PROFILES)?.filter(|text| !text.is_empty()) {
        let config = serde_json::from_str(&text).map_err(|error| error.to_string());
        match config.and_then(|config: Value| scheduler::config::profiles(&config).map_err(|error| error.to_string())) {
            Ok(profiles) => world.settings.profiles = profiles.into(),
            Err(why) => problems.profiles = Some(why),
        }
    }
    let mut objects = read.list_all()?.into_iter();
    loop {
        let some: Vec<StoredObject> = objects.by_ref().take(MAX_ROWS_AT_ONCE).collect();
        if some.is_empty() {
            return Ok(problems);
        }
        for (stored, row) in some.iter().zip(read_rows(&some)) {
            let put = row.and_then(|row| {
                contain(|| {
                    if stored.key.resource == DEFINITIONS {
                        world.kinds.register(&stored.body);
                    }
                    world.put_row(row);
                })
            });
            // An object that cannot be read is missing from the World.
            if let Err(text) = put {
                problems.faults.push(Fault { by: "reconcile", about: stored.key.clone(), text });
            }
        }
    }
}

/// Reads the rows of stored objects: of many, half of them on a second thread, since reading takes most of the time that a start needs.
fn read_rows(objects: &[StoredObject]) -> Vec<Result<Row, String>> {
    let read = |objects: &[StoredObject]| -> Vec<Result<Row, String>> {
        let row = |stored: &StoredObject| contain(|| Row::from_text(stored.key.clone(), stored.body.clone()));
        objects.iter().map(row).collect()
    };
    if objects.len() < MIN_ROWS_FOR_THREAD {
        return read(objects);
    }
    let (here, there) = objects.split_at(middle(objects));
    thread::scope(|scope| {
        let work = || {
            use_mimalloc();
            read(there)
        };
        let second = thread::Builder::new().name("rows".to_owned()).spawn_scoped(scope, work);
        let mut rows = read(here);
        let others = second.ok().and_then(|thread| thread.join().ok());
        rows.extend(others.unwrap_or_else(|| read(there)));
        rows
    })
}

/// Returns the place that divides objects into parts with as much text each.
fn middle(objects: &[StoredObject]) -> usize {
    let bytes: usize = objects.iter().map(|stored| stored.body.len()).sum();
    let mut before = 0;
    let is_beyond = |stored: &StoredObject| {
        before += stored.body.len();
        before > bytes / 2
    };
    objects.iter().position(is_beyond).unwrap_or(objects.len())
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
                queue.note_fault(Fault { by: "reconcile", about: key.clone(), text });
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

/// Makes due whatever a change of this key concerns, going by the row as it was and as it is. `settled` is the item whose plan made the
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
            world.all_rows().filter(|row| row.key.resource != each.root).flat_map(roots).for_each(&mut look);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;

    fn config_map(number: usize) -> StoredObject {
        let name = format!("c{number}");
        let text = "x".repeat(number);
        let body = format!(r#"{{"metadata": {{"name": "{name}", "uid": "u{number}"}}, "data": {{"text": "{text}"}}}}"#);
        let key = Key::new(Resource("configmaps"), "default", &name);
        StoredObject { key, uid: format!("u{number}").into(), revision: 1, body: body.into() }
    }

    #[test]
    fn rows_of_many_objects_come_in_the_order_of_the_objects() {
        let objects: Vec<StoredObject> = (0..MIN_ROWS_FOR_THREAD).map(config_map).collect();
        let place = middle(&objects);
        assert!(place > objects.len() / 2 && place < objects.len(), "the later ones are larger: {place}");
        let rows: Vec<Row> = read_rows(&objects).into_iter().map(|row| row.expect("read")).collect();
        let found = rows.iter().map(|row| (&row.key, &*row.uid));
        assert!(found.eq(objects.iter().map(|stored| (&stored.key, &*stored.uid))));
    }
}
