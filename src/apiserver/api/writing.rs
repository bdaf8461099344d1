//! Writes of an [`Api`]: one as one transaction, or several in one.
//!
//! Knows: an attempt ends when it needs something that is got without a lock, such as the answer of a webhook; the write is then made
//! again with it. Never: answers a webhook's question itself; [`super::OutsideClient`] asks.
//! Start reading at [`Api::write`].

use super::{Api, OVERTAKEN, WRITE_LOCK_TIMEOUT, refused};
use crate::apiserver::ApiResult;
use crate::apiserver::remote::RemoteTransaction;
use crate::apiserver::store_transaction::WriteTxn;
use crate::apiserver::stored::not_called;
use crate::apiserver::transaction::{AnyWrite, Transaction};
use crate::apiserver::write_rounds::{WriteAttempt, WriteNeeds, WriteRounds};
use crate::kinds;
use crate::object::Status;
use crate::store::Retention;
use std::iter::Peekable;
use std::time::{Duration, Instant};

/// Approximate time that a command with many objects holds the write lock before it lets others write.
pub(super) const HOLD_TIME: Duration = Duration::from_millis(20);
/// On average, one in this many writing commands compacts the log.
const COMPACTION_ODDS: u64 = 8;
/// Maximum number of log entries per compaction: a few milliseconds.
const MAX_COMPACTED_ENTRIES: usize = 400;

impl Api {
    /// Runs one write as one transaction: committed when it succeeds and is not a dry run, undone otherwise. It is run again when it needed
    /// patterns of definitions that were not compiled, or answers of webhooks, which are asked while no lock is held.
    pub fn write<T>(
        &mut self,
        dry_run: bool,
        mut write: impl FnMut(&mut dyn Transaction) -> ApiResult<T>,
    ) -> ApiResult<T> {
        let mut last = None;
        self.write_in_rounds(dry_run, &mut |txn| write(txn).map(|done| last = Some(done)))?;
        last.ok_or_else(not_called)
    }

    /// [`Api::write`] without the type of the result, so that it is compiled once.
    fn write_in_rounds(&mut self, dry_run: bool, write: &mut AnyWrite<'_>) -> ApiResult<()> {
        if let Some(cluster) = &self.remote {
            return write(&mut RemoteTransaction { cluster, kinds: &self.kinds, dry_run });
        }
        let mut rounds = WriteRounds::begin();
        loop {
            let mut needed = WriteNeeds::default();
            let done = match self.writer.clone() {
                Some(writer) => {
                    let attempt = WriteAttempt {
                        user: self.user.as_ref(),
                        dry_run,
                        defers: rounds.defers_compilation(),
                        asks: self.outside.is_some(),
                    };
                    writer.write(&attempt, &mut rounds.inputs, &mut needed, write)
                }
                None => self.write_once(dry_run, &mut rounds, &mut needed, write),
            };
            if !self.supply_needs(&mut rounds, needed)? {
                self.annotations = rounds.inputs.take_annotations();
                return done;
            }
        }
    }

    /// One attempt of a write in a transaction of its own.
    fn write_once(
        &mut self,
        dry_run: bool,
        rounds: &mut WriteRounds,
        needed: &mut WriteNeeds,
        write: &mut AnyWrite<'_>,
    ) -> ApiResult<()> {
        let mut txn = self.begin_write(rounds.defers_compilation())?;
        txn.inputs = std::mem::take(&mut rounds.inputs);
        txn.inputs.begin();
        let outcome = write(&mut txn);
        rounds.inputs = std::mem::take(&mut txn.inputs);
        let uncompiled = std::mem::take(&mut txn.uncompiled);
        *needed = WriteNeeds { uncompiled, answers: rounds.inputs.is_missing(), is_overtaken: false };
        outcome?;
        if !dry_run && !needed.needs_another_attempt() {
            let committed = txn.commit();
            needed.is_overtaken = matches!(committed, Err(OVERTAKEN));
            committed.map_err(|error| refused(&error.into()))?;
            self.wrote = true;
        }
        Ok(())
    }

    /// Compiles expressions and calls webhooks that an attempt of a write needed, while no lock is held. Returns whether the write must be
    /// tried again with the results.
    fn supply_needs(&mut self, rounds: &mut WriteRounds, needed: WriteNeeds) -> ApiResult<bool> {
        if !needed.needs_another_attempt() {
            return Ok(false);
        }
        rounds.count_attempt(&needed)?;
        kinds::custom::compile(&needed.uncompiled);
        if let Some(client) = self.outside.as_ref().filter(|_| needed.answers) {
            if let Some(turn) = &mut self.turn {
                turn.pause()?;
            }
            client.answer_missing(&mut rounds.inputs);
            if let Some(turn) = &mut self.turn {
                turn.resume();
            }
        }
        Ok(true)
    }

    /// Runs the next of several independent writes as one transaction, as many as fit in a short time: waiting for the lock and for the
    /// disk takes longer than a write. Only a refused write is undone. Returns the result of each; when the commit fails, each result is
    /// that error. A dry run undoes each write before the next. The result may be empty when the next write needed patterns of
    /// definitions that were not compiled yet; they are compiled then.
    pub fn write_next<I, T, E: From<Status>>(
        &mut self,
        dry_run: bool,
        items: &mut Peekable<impl Iterator<Item = I>>,
        mut write: impl FnMut(&mut dyn Transaction, &I) -> std::result::Result<T, E>,
    ) -> Vec<(I, std::result::Result<T, E>)> {
        if let Some(cluster) = &self.remote {
            let mut txn = RemoteTransaction { cluster, kinds: &self.kinds, dry_run };
            return Vec::from_iter(
                items.next().map(|item| (write(&mut txn, &item), item)).map(|(done, item)| (item, done)),
            );
        }
        let mut done = Vec::new();
        let kept = self.write_some(dry_run, items, write, &mut done);
        self.wrote |= !dry_run;
        if let Err(status) = kept {
            // At least one item gets an outcome, so that a caller that repeats until no item is left ends.
            if done.is_empty() {
                done.extend(items.next().map(|item| (item, Err(status.clone().into()))));
            }
            done.iter_mut().for_each(|(_, outcome)| *outcome = Err(status.clone().into()));
        }
        done
    }

    /// The transaction of [`Api::write_next`]: adds the outcome of each write to `done`.
    fn write_some<I, T, E: From<Status>>(
        &mut self,
        dry_run: bool,
        items: &mut Peekable<impl Iterator<Item = I>>,
        mut write: impl FnMut(&mut dyn Transaction, &I) -> std::result::Result<T, E>,
        done: &mut Vec<(I, std::result::Result<T, E>)>,
    ) -> ApiResult<()> {
        // The next item, which may have waited for an answer.
        let mut rounds = self.next_rounds.take().unwrap_or_else(WriteRounds::begin);
        let mut txn = self.begin_write(true)?;
        let start = Instant::now();
        let mut needed = WriteNeeds::default();
        while start.elapsed() < HOLD_TIME && !needed.needs_another_attempt() {
            let Some(item) = items.peek() else { break };
            txn.inputs = std::mem::take(&mut rounds.inputs);
            let (outcome, uncompiled) = txn.make_part(dry_run, |txn| write(txn, item))?;
            rounds.inputs = std::mem::take(&mut txn.inputs);
            needed = WriteNeeds { uncompiled, answers: rounds.inputs.is_missing(), is_overtaken: false };
            if !needed.needs_another_attempt() {
                done.extend(items.next().map(|item| (item, outcome)));
                rounds = WriteRounds::begin();
            }
        }
        let kept = match dry_run {
            true => {
                drop(txn);
                Ok(())
            }
            false => txn.commit(),
        };
        let kept = match kept {
            // Another machine wrote first: each write is made again, on its own.
            Err(OVERTAKEN) => {
                *done = done.drain(..).map(|(item, _)| self.write_again(item, &mut write)).collect();
                Ok(())
            }
            kept => kept.map_err(|error| refused(&error.into())),
        };
        match self.supply_needs(&mut rounds, needed) {
            Ok(true) => self.next_rounds = Some(rounds),
            Ok(false) => {}
            Err(status) => done.extend(items.next().map(|item| (item, Err(status.into())))),
        }
        kept
    }

    /// After a command that wrote: compacts the log of the store a little now and then, since a control plane that would do it may not run.
    pub fn tidy(&mut self) {
        if self.wrote && self.env.random().is_multiple_of(COMPACTION_ODDS) {
            // If others write at the moment, the next command does it.
            let _ = self.store.compact(&Retention::usual(self.env.now()), MAX_COMPACTED_ENTRIES);
        }
    }

    /// Begins a transaction. `defers`: whether a write that needs patterns which are not compiled ends, to be made again.
    pub(super) fn begin_write(&mut self, defers: bool) -> ApiResult<WriteTxn<'_>> {
        let asks = self.outside.is_some();
        let txn = match self.on_wait {
            Some(tell) => self.store.write_with_notice(WRITE_LOCK_TIMEOUT, tell),
            None => self.store.write(WRITE_LOCK_TIMEOUT),
        };
        let txn = txn.map_err(|error| refused(&error))?;
        let txn = WriteTxn::new(txn, &self.actor, &mut self.env, &self.kinds);
        let (user, checks_access) = (self.user.clone(), self.checks_access);
        let access_cache = self.access_cache.clone();
        Ok(WriteTxn { defers, user, checks_access, access_cache, asks, ..txn })
    }
}
