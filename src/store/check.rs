//! A check of the complete file, for tests and for users who suspect their disk. No command runs it implicitly.

use super::{Store, StoreRead, StoreResult};
use std::collections::BTreeMap;

impl Store {
    /// Returns all problems of the file: those of SQLite's integrity check, wrong checksums, and objects that differ
    /// from the fold of the log. Reads the complete file.
    pub fn check(&self) -> StoreResult<Vec<String>> {
        let snapshot = self.read()?;
        let mut wrong: Vec<String> = self.query(|connection| {
            let mut question = connection.prepare("PRAGMA integrity_check")?;
            question.query_map([], |row| row.get(0))?.collect()
        })?;
        wrong.retain(|line| line != "ok");
        let live: BTreeMap<_, _> =
            snapshot.list_all()?.into_iter().map(|stored| (stored.key.clone(), stored)).collect();
        let mut fold = BTreeMap::new();
        for entry in super::snapshot::log(self, "ORDER BY l.revision", [])? {
            let stored = entry.change.stored().clone();
            match entry.change.live() {
                Some(_) => fold.insert(stored.key.clone(), stored),
                None => fold.remove(&stored.key),
            };
        }
        for key in live.keys().chain(fold.keys()) {
            if live.get(key) != fold.get(key) {
                wrong.push(format!("{key} differs from the log"));
            }
        }
        Ok(wrong)
    }
}
