//! Parts of a write transaction: each can be undone separately, and another thread can continue after each.

use super::log_batch::Outgoing;
use super::record::Counter;
use super::turnstile::WriteTurn;
use super::{Store, StoreError, StoreResult, Txn};

/// A part of a transaction, from [`Txn::begin_part`] on.
pub struct Savepoint {
    before: Counter,
    /// The mark of the changes for the log of a replica.
    mark: usize,
}

/// An open transaction without its store. [`Store::resume`] continues it; the store must not be used otherwise until then.
pub struct ParkedTxn {
    turn: Option<WriteTurn>,
    counter: Counter,
    begun: Counter,
    failed: Option<StoreError>,
    outgoing: Option<Outgoing>,
    allows_reserve: bool,
}

impl Txn<'_> {
    /// Begins a part that can be rolled back separately. Parts do not overlap.
    pub fn begin_part(&mut self) -> StoreResult<Savepoint> {
        self.run("SAVEPOINT part", [])?;
        let mark = self.outgoing.as_ref().map_or(0, |outgoing| outgoing.batch.mark());
        Ok(Savepoint { before: self.counter, mark })
    }

    /// Ends a part: keeps its writes or rolls them back. A failed change does no harm to the transaction once its part is rolled back,
    /// unless SQLite has ended the transaction.
    pub fn end_part(&mut self, part: Savepoint, is_kept: bool) -> StoreResult<()> {
        if !is_kept {
            if let Some(outgoing) = &mut self.outgoing {
                outgoing.batch.undo_to(part.mark);
            }
            let is_failed = !self.store.connection.is_autocommit() && self.failed.take().is_some();
            if is_failed || self.counter != part.before {
                self.run("ROLLBACK TO part", [])?;
                self.counter = part.before;
            }
        }
        self.run("RELEASE part", [])
    }

    /// Whether a change failed, so that the transaction cannot be committed.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Leaves the transaction open for [`Store::resume`].
    pub fn park(mut self) -> ParkedTxn {
        self.open = false;
        ParkedTxn {
            turn: self.turn.take(),
            counter: self.counter,
            begun: self.begun,
            failed: self.failed.take(),
            outgoing: self.outgoing.take(),
            allows_reserve: self.allows_reserve,
        }
    }
}

impl Store {
    /// Continues the transaction that was parked last.
    pub fn resume(&mut self, parked: ParkedTxn) -> Txn<'_> {
        let ParkedTxn { turn, counter, begun, failed, outgoing, allows_reserve } = parked;
        Txn { store: self, turn, counter, begun, open: true, failed, outgoing, allows_reserve }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{WRITE_LOCK_TIMEOUT, scratch};
    use super::*;
    use crate::object::{Key, Resource, Time};
    use crate::store::{OpenMode, StoreRead};
    use std::time::Duration;

    fn put(txn: &mut Txn<'_>, name: &str, uid: &str) -> StoreResult<u64> {
        txn.put(&Key::new(Resource("pods"), "default", name), uid, |_| "{}", "test", Time::UNIX_EPOCH)
    }

    fn stored(store: &Store) -> Vec<(String, u64)> {
        let found = store.read().unwrap().list(Resource("pods"), None).unwrap();
        found.iter().map(|stored| (stored.key.name.to_string(), stored.revision)).collect()
    }

    #[test]
    fn failed_change_is_undone_with_its_part() {
        let (_dir, mut store) = scratch();
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        for (name, uid) in [("a", "1"), ("a", "2"), ("b", "3")] {
            let part = txn.begin_part().unwrap();
            let outcome = put(&mut txn, name, uid);
            txn.end_part(part, outcome.is_ok()).unwrap();
        }
        assert_eq!(txn.commit(), Ok(2));
        assert_eq!(stored(&store), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn parked_transaction_keeps_its_writes_and_its_lock() {
        let (_dir, mut store) = scratch();
        let mut other = Store::open(store.path(), OpenMode::Existing).unwrap();
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        put(&mut txn, "a", "1").unwrap();
        let parked = txn.park();
        assert!(matches!(other.write(Duration::ZERO).err(), Some(StoreError::Busy { .. })));
        let mut store = std::thread::spawn(move || {
            let mut txn = store.resume(parked);
            put(&mut txn, "b", "2").unwrap();
            txn.commit().unwrap();
            store
        })
        .join()
        .unwrap();
        assert_eq!(stored(&store), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        // A resumed transaction that is dropped is rolled back.
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        put(&mut txn, "c", "3").unwrap();
        let parked = txn.park();
        drop(store.resume(parked));
        assert_eq!(stored(&store).len(), 2);
        other.write(WRITE_LOCK_TIMEOUT).unwrap();
    }
}
