//! Entries in the store that describe the running control plane to other processes: its heartbeat, scheduler profiles and controllers.
//!
//! Never: waits long for another writer. Start reading at [`note_heartbeat`].

use super::{loops, tick};
use crate::object::Time;
use crate::store::meta_keys::{HEARD, LEFT_OUT, PROFILES};
use crate::store::{Store, StoreError, StoreRead};
use crate::world::Loop;
use anyhow::Context;
use std::time::Duration;

/// Notes the settings that `why` and `plan` go by, too: the scheduler's profiles, and the controllers that do not run.
pub fn note_settings(store: &mut Store, scheduler: &str, loops: &[&'static Loop]) -> anyhow::Result<()> {
    let disabled = loops::disabled_controllers(loops).join(",");
    let mut txn = store.write(Duration::from_secs(10))?;
    let mut is_news = false;
    for (entry, text) in [(PROFILES, scheduler), (LEFT_OUT, disabled.as_str())] {
        if txn.meta(entry)?.unwrap_or_default() != text {
            txn.set_meta(entry, text)?;
            is_news = true;
        }
    }
    if !is_news {
        return Ok(());
    }
    txn.commit().map(|_| ()).context("cannot note the settings of this control plane")
}

/// Notes the heartbeat of the leader with this epoch.
pub fn note_heartbeat(store: &mut Store, epoch: u64, now: Time) -> Result<(), StoreError> {
    let mut txn = store.write(tick::WRITE_LOCK_TIMEOUT)?;
    if tick::read_epoch(&txn)? != Some(epoch) {
        // The tick sees it, too, and ends the run.
        return Ok(());
    }
    txn.set_meta(HEARD, &now.to_string())?;
    // A lost heartbeat does no harm; the next tick finds out whether the store can be written.
    drop(txn.commit());
    Ok(())
}
