//! The overlay of a beat: rows put while a stage is open are seen by later plans, and vanish when the commit fails.

use super::{Row, World};
use crate::object::{Key, Object, Str};
use std::collections::HashSet;
use std::sync::Arc;

impl World {
    /// Puts (or, with none, removes) an object that is not committed yet.
    pub fn stage(&mut self, key: Key, object: Option<impl Into<Arc<Object>>>) {
        let row = object.map(|object| Arc::new(Row::new(key.clone(), object)));
        let before = self.replace(key.clone(), row);
        self.originals.entry(key.clone()).or_insert_with(|| before.clone());
        self.undo.push((key, before));
    }

    /// The keys staged since the last commit or rollback, each once, in order of their first change.
    pub fn staged(&self) -> Vec<Key> {
        self.staged_since(0)
    }

    /// The keys that were staged more than once.
    pub fn staged_again(&self) -> HashSet<Key> {
        let mut seen = HashSet::new();
        self.undo.iter().map(|(key, _)| key).filter(|key| !seen.insert(*key)).cloned().collect()
    }

    /// The row as it was before the stage was opened.
    pub fn before(&self, key: &Key) -> Option<&Arc<Row>> {
        match self.originals.get(key) {
            Some(before) => before.as_ref(),
            None => self.get(key),
        }
    }

    /// The commit succeeded: these are the texts that were written, with their revisions, and the picture holds them from now on.
    pub fn keep_staged(&mut self, written: impl IntoIterator<Item = (Key, Str, u64)>) {
        self.undo.clear();
        self.originals.clear();
        for (key, text, revision) in written {
            let row = self.rows.get_mut(&key.resource).and_then(|rows| rows.get_mut(&(key.namespace, key.name)));
            if let Some(row) = row {
                // What loops search by is as it was staged; only the text and the revision are new.
                *row = Arc::new(row.settled(text, revision));
            }
        }
    }

    /// The commit failed: the picture is again what it was.
    pub fn drop_staged(&mut self) {
        self.undo_to(0);
        self.originals.clear();
    }

    /// A mark in the open stage, to undo to or to list from.
    pub fn stage_mark(&self) -> usize {
        self.undo.len()
    }

    /// How many writes are staged.
    pub fn staged_count(&self) -> usize {
        self.undo.len()
    }

    /// The keys staged since a mark, each once.
    pub fn staged_since(&self, mark: usize) -> Vec<Key> {
        let mut seen = HashSet::new();
        self.undo[mark..].iter().map(|(key, _)| key).filter(|key| seen.insert(*key)).cloned().collect()
    }

    /// Undoes what was staged since a mark.
    pub fn undo_to(&mut self, mark: usize) {
        while self.undo.len() > mark {
            if let Some((key, before)) = self.undo.pop() {
                self.replace(key, before);
            }
        }
    }
}
