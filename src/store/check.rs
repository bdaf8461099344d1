//! A thorough check of the whole file, for tests and for users who suspect their disk. No command runs it implicitly.

use super::{Store, StoreRead, StoreResult};
use std::collections::BTreeMap;

impl Store {
    /// Everything wrong with the file: SQLite's own check, every checksum, and whether the objects are the fold of the
    /// log. Empty when all is well. Reads the whole file.
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
                wrong.push(format!("{key} is not what the log says"));
            }
        }
        Ok(wrong)
    }
}
