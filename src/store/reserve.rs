//! The reserve: disk space kept back for the writes that free space on a full disk.
//!
//! A pod that fills the disk leaves no space for the record of its own deletion. So the control plane allocates a file while there is
//! room. A transaction that frees space, such as a deletion, gets a part of it when the disk is nearly full. The part becomes space of
//! the WAL at once, because a pod that still writes takes all free space. The control plane allocates the file again when there is
//! room.
//! Never: serves other writes; those fail until space is free. Start reading at [`Txn::allow_reserve`].

use super::state_path::StorePath;
use super::{Store, StoreError, StoreResult, Txn};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open, statvfs};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The suffix of the file.
const SUFFIX: &str = ".reserve";

/// Size of the reserve.
const RESERVE: u64 = 8 << 20;

/// Part of the reserve for one transaction: a deletion takes a few hundred KiB, and a large tick of the control plane one or two MiB.
const PART: u64 = 2 << 20;

/// Part of the reserve for opening the database: SQLite's shared memory.
const SMALL_PART: u64 = 256 << 10;

/// Smallest space that is worth giving to the WAL.
const LEAST_PART: u64 = 64 << 10;

impl Store {
    /// Allocates the reserve, or completes it, when the disk has room for twice of it. Waits for other writers at most for `patience`;
    /// the next call makes up for it. Returns an error when the file system cannot.
    pub fn keep_reserve(&self, patience: Duration) -> StoreResult<()> {
        let Some(turnstile) = self.turnstile.as_ref().filter(|_| self.reserve_size() < RESERVE) else { return Ok(()) };
        if free_space(&self.place).is_none_or(|free| free < 2 * RESERVE) {
            return Ok(());
        }
        // A writer may be taking a part of it just now.
        let Ok(_turn) = turnstile.acquire(patience) else { return Ok(()) };
        let file = self.place.open_sibling(SUFFIX)?;
        match fallocate(&file, FallocateFlags::empty(), 0, RESERVE) {
            Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
            Err(error) => Err(StoreError::io(&self.place.neighbour(SUFFIX), error)),
        }
    }

    /// The size of the reserve, in bytes.
    pub fn reserve_size(&self) -> u64 {
        std::fs::metadata(self.place.neighbour(SUFFIX)).map_or(0, |file| file.len())
    }

    /// Lets all transactions from now on use the reserve, or no longer: those of a control plane that starts, without which nothing can be
    /// deleted.
    pub fn allow_reserve(&mut self, is_allowed: bool) {
        self.allows_reserve = is_allowed;
    }

    /// Returns a small part of the reserve to the file system, for files that have to be made before anything can be deleted. Returns false
    /// when nothing is left of it.
    pub fn release_small_part(&self) -> bool {
        release_small_part(&self.place)
    }
}

/// Returns a small part of the reserve to the file system. Returns false when nothing is left of it.
pub(super) fn release_small_part(place: &StorePath) -> bool {
    release(place, SMALL_PART)
}

impl Txn<'_> {
    /// Lets this transaction use the reserve when the disk is full, because it frees space or leads to that.
    pub fn allow_reserve(&mut self) {
        self.allows_reserve = true;
    }

    /// Whether the disk is nearly full, so that a transaction that frees space needs the reserve.
    pub fn is_short_of_space(&self) -> bool {
        let place = &self.store.place;
        self.turn.is_some() && free_space(place).is_some_and(|free| free < PART) && wal_spare(place) < PART / 2
    }

    /// Takes a part of the reserve before a commit that would probably fail.
    pub(super) fn prepare_space(&self) {
        if self.allows_reserve && self.is_short_of_space() {
            self.use_reserve();
        }
    }

    /// Turns a part of the reserve into space of the WAL.
    pub(super) fn use_reserve(&self) {
        let place = &self.store.place;
        // Another process may be quicker to take the space; then the next part is tried.
        while release(place, PART) && !extend_wal(place) {}
    }
}

/// Free bytes of the disk, for this user.
fn free_space(place: &StorePath) -> Option<u64> {
    let disk = statvfs(place.dir()).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes that are allocated behind the end of the WAL.
fn wal_spare(place: &StorePath) -> u64 {
    let wal = std::fs::metadata(place.neighbour("-wal"));
    wal.map_or(0, |wal| (wal.blocks() * 512).saturating_sub(wal.len()))
}

/// Shortens the reserve by a part. Returns false when it is empty.
fn release(place: &StorePath, part: u64) -> bool {
    let Some(file) = open_existing(place, SUFFIX) else { return false };
    let length = file.metadata().map_or(0, |file| file.len());
    length > 0 && file.set_len(length.saturating_sub(part)).is_ok()
}

/// Allocates space behind the end of the WAL, where the next commits are written. Returns false when there is hardly any.
fn extend_wal(place: &StorePath) -> bool {
    let Some(wal) = open_existing(place, "-wal") else { return false };
    let Ok(length) = wal.metadata().map(|wal| wal.len()) else { return false };
    let mut part = PART;
    while part >= LEAST_PART {
        if fallocate(&wal, FallocateFlags::KEEP_SIZE, length, part).is_ok() {
            return true;
        }
        part /= 2;
    }
    false
}

fn open_existing(place: &StorePath, suffix: &str) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(place.neighbour(suffix), flags, Mode::empty()).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{WRITE_LOCK_TIMEOUT, scratch};
    use super::*;

    #[test]
    fn part_of_the_reserve_becomes_space_of_the_wal() {
        let (_dir, mut store) = scratch();
        store.keep_reserve(Duration::ZERO).unwrap();
        if store.reserve_size() == 0 {
            skip!("the temporary folder is nearly full");
            return;
        }
        assert_eq!(store.reserve_size(), RESERVE);
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).unwrap();
        txn.set_meta("word", "one").unwrap();
        txn.use_reserve();
        txn.commit().unwrap();
        assert_eq!(store.reserve_size(), RESERVE - PART);
        assert!(wal_spare(&store.place) > PART / 2, "{}", wal_spare(&store.place));
        assert!((1..RESERVE / SMALL_PART).any(|_| !store.release_small_part()), "it ends");
        assert_eq!(store.reserve_size(), 0);
        store.keep_reserve(Duration::ZERO).unwrap();
        assert_eq!(store.reserve_size(), RESERVE);
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn store_in_memory_has_no_reserve() {
        let store = Store::in_memory().unwrap();
        store.keep_reserve(Duration::ZERO).unwrap();
        assert_eq!(store.reserve_size(), 0);
    }
}
