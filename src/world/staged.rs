//! Staged rows of a tick: later plans see them, and a failed commit removes them.

use super::{Row, World};
use crate::object::{Key, Object, Str};
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;

impl World {
    /// Puts (or, with none, removes) an object that is not committed yet.
    pub fn stage(&mut self, key: Key, object: Option<impl Into<Arc<Object>>>) {
        let row = object.map(|object| {
            let mut row = Row::new(key.clone(), object);
            self.share_parts(&mut row);
            Arc::new(row)
        });
        self.stage_as(key, row);
    }

    /// Puts the row of an object that is not committed yet.
    pub fn stage_row(&mut self, row: Row) {
        self.stage_as(row.key.clone(), Some(Arc::new(row)));
    }

    fn stage_as(&mut self, key: Key, row: Option<Arc<Row>>) {
        let before = self.replace(key.clone(), row);
        self.originals.entry(key.clone()).or_insert_with(|| before.clone());
        self.staged.push(key.clone());
        self.undo.push((key, before));
    }

    /// Returns the keys staged since the last commit or rollback, each once: existing objects in the order of their
    /// first change, then the removed ones, so that watchers see a dependent's change before its owner's end.
    pub fn staged(&self) -> Vec<Key> {
        let mut keys = self.staged_since(0);
        if keys.iter().any(|key| self.get(key).is_none()) {
            let mut moments: HashMap<&Key, usize> = HashMap::new();
            for (at, key) in self.staged.iter().enumerate() {
                let moment = moments.entry(key).or_insert(at);
                *moment = if self.get(key).is_none() { at } else { *moment };
            }
            keys.sort_by_key(|key| moments.get(key).copied());
        }
        keys
    }

    /// The keys that were staged more than once.
    pub fn staged_again(&self) -> HashSet<Key> {
        let mut seen = HashSet::new();
        self.staged.iter().filter(|key| !seen.insert(*key)).cloned().collect()
    }

    /// Whether the key was written since the last commit or rollback.
    pub fn is_staged(&self, key: &Key) -> bool {
        self.originals.contains_key(key)
    }

    /// The row as it was before the stage was opened.
    pub fn row_before_stage(&self, key: &Key) -> Option<&Arc<Row>> {
        match self.originals.get(key) {
            Some(before) => before.as_ref(),
            None => self.get(key),
        }
    }

    /// Keeps the staged plan with those before it: from now on it is undone with all of them, or not at all.
    pub fn accept_staged(&mut self) {
        self.undo.clear();
    }

    /// Keeps the staged rows after a successful commit, with their stored texts and revisions.
    pub fn keep_staged(&mut self, written: impl IntoIterator<Item = (Key, Str, u64)>) {
        self.staged.clear();
        self.undo.clear();
        self.originals.clear();
        for (key, text, revision) in written {
            let base = self.get(&key).and_then(|row| self.base_of(row)).cloned();
            // Index fields were computed when the row was staged; only the text and the revision are new.
            self.change_row(&key, |row| match Arc::get_mut(row) {
                Some(row) => row.set_text(text, revision, base.as_ref()),
                None => *row = Arc::new(row.committed(text, revision, base.as_ref())),
            });
        }
    }

    /// Changes a row in fields that are not indexed.
    fn change_row(&mut self, key: &Key, change: impl FnOnce(&mut Arc<Row>)) {
        let place = (key.namespace.clone(), key.name.clone());
        let row = self.rows.get_mut(&key.resource).and_then(|rows| rows.get_mut(&place));
        if let Some((row, (key, same))) = row.zip(self.by_key.remove_entry(key)) {
            // The row is in two maps. It is removed from one, because an `Arc` can be changed in place only if it has one owner.
            drop(same);
            change(row);
            self.by_key.insert(key, row.clone());
        }
    }

    /// Drops all staged changes after a failed commit.
    pub fn drop_staged(&mut self) {
        self.undo.clear();
        for key in std::mem::take(&mut self.staged) {
            if let Some(before) = self.originals.remove(&key) {
                self.replace(key, before);
            }
        }
        self.originals.clear();
    }

    /// A mark in the open stage, to undo to or to list from.
    pub fn stage_mark(&self) -> usize {
        self.staged.len()
    }

    /// Number of staged writes.
    pub fn staged_count(&self) -> usize {
        self.staged.len()
    }

    /// The keys staged since a mark, each once.
    pub fn staged_since(&self, mark: usize) -> Vec<Key> {
        let mut seen = HashSet::new();
        self.staged[mark..].iter().filter(|key| seen.insert(*key)).cloned().collect()
    }

    /// Undoes the changes staged since a mark, unless they belong to an earlier plan.
    pub fn undo_to(&mut self, mark: usize) {
        while self.staged.len() > mark {
            let Some((key, before)) = self.undo.pop() else { return };
            self.staged.pop();
            self.replace(key, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Resource, Time};
    use serde_json::json;

    #[test]
    fn removed_keys_are_listed_in_order_of_removal() {
        let mut world = World::new(Time::UNIX_EPOCH);
        let key = |name: &str| Key::new(Resource("configmaps"), "default", name);
        let object = |name: &str| {
            Object(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default", "uid": name}}),
            )
        };
        for name in ["owner", "first", "second"] {
            world.stage(key(name), Some(object(name)));
        }
        for name in ["second", "first"] {
            world.stage(key(name), None::<Object>);
        }
        world.stage(key("new"), Some(object("new")));
        world.stage(key("owner"), None::<Object>);
        world.stage(key("new"), Some(object("new")));
        assert_eq!(world.staged(), ["second", "first", "new", "owner"].map(key));
    }

    #[test]
    fn pods_of_one_owner_share_what_they_have_in_common() {
        let mut world = World::new(Time::UNIX_EPOCH);
        let key = |name: &str| Key::new(Resource("pods"), "default", name);
        let pod = |name: &str, app: &str| {
            let owner =
                json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true});
            Object(json!({
                "apiVersion": "v1", "kind": "Pod", "spec": {"schedulerName": "mine"},
                "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}, "ownerReferences": [owner]},
            }))
        };
        world.stage(key("a"), Some(pod("a", "web")));
        world.put(key("b"), pod("b", "web").0.to_string().into());
        world.stage(key("c"), Some(pod("c", "other")));
        let [a, b, c] = ["a", "b", "c"].map(|name| world.get(&key(name)).unwrap());
        let scheduler = |row: &Row| row.pod().unwrap().scheduler.clone();
        assert!(Arc::ptr_eq(&a.labels, &b.labels) && Arc::ptr_eq(&a.owners, &b.owners));
        assert!(Arc::ptr_eq(&scheduler(a), &scheduler(b)));
        assert!(Arc::ptr_eq(&a.owners, &c.owners));
        assert_eq!((b.label("app"), c.label("app")), (Some("web"), Some("other")));
    }
}
