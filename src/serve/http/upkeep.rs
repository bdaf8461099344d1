//! The server's background work: it publishes its address in the Service `kubernetes`, adds default roles that an older state
//! lacks, completes definitions of kinds, and compacts the log.
//!
//! Never: answers a client. Each function is a task, or a step at the server's start and end.

use super::{ServerState, extensions};
use crate::apiserver::{Api, refused};
use crate::kinds::custom::DEFINITIONS;
use crate::object::Time;
use crate::serve::advertise;
use crate::serve::definitions::{self, DefinitionProgress};
use crate::store::{LogEntry, Retention, StoreError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Interval between compactions of a part of the store's log.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between repairs of the endpoints of the Service `kubernetes`.
const REPAIR_INTERVAL: Duration = Duration::from_secs(10);
/// Time in which a control plane, if one runs, completes a definition.
const DEFINITIONS_DELAY: Duration = Duration::from_millis(300);
/// Interval between rounds while a definition waits for others.
const DEFINITIONS_RETRY: Duration = Duration::from_secs(5);
/// Maximum number of log entries per compaction: a few milliseconds.
const MAX_COMPACTED_ENTRIES: usize = 400;

/// Starts the tasks that every complete server has.
pub fn start(shared: &Arc<ServerState>) -> Vec<JoinHandle<()>> {
    // It ends by itself, and is not interrupted in a write.
    tokio::spawn(reconcile_defaults(shared.clone()));
    vec![
        tokio::spawn(compact(shared.clone())),
        tokio::spawn(complete_definitions(shared.clone())),
        tokio::spawn(extensions::keep_up(shared.clone())),
    ]
}

/// Leads the Service `kubernetes` to this server, and repairs it as often as Kubernetes' API server does.
pub async fn advertise(shared: Arc<ServerState>, address: SocketAddr) {
    loop {
        let done = shared.run_server_job(move |api| advertise::advertise(api, address)).await.and_then(|done| done);
        shared.problems.note("lead the Service kubernetes to this server", done);
        tokio::time::sleep(REPAIR_INTERVAL).await;
    }
}

/// Ends the advertising.
pub async fn withdraw(shared: &Arc<ServerState>, address: SocketAddr, advertising: JoinHandle<()>) {
    advertising.abort();
    // Waits for a write in progress, which would write the address again.
    let _ = advertising.await;
    let done = shared.run_server_job(move |api| advertise::withdraw(api, address)).await.and_then(|done| done);
    shared.problems.note("withdraw the address of this server from the Service kubernetes", done);
}

/// Adds the default roles that an older state lacks. When that fails, the next start does it.
async fn reconcile_defaults(shared: Arc<ServerState>) {
    let done = shared.run_server_job(Api::reconcile_defaults).await.and_then(|done| done);
    shared.problems.note("add the default roles", done);
}

/// Completes new definitions while no control plane does.
async fn complete_definitions(shared: Arc<ServerState>) {
    let Ok(tail) = shared.tail().cloned() else { return };
    let (mut news, mut revision, mut progress) = (tail.news(), 0, DefinitionProgress::Wrote);
    loop {
        let head = *news.borrow_and_update();
        let is_definition = |entry: &Arc<LogEntry>| entry.change.stored().key.resource == DEFINITIONS;
        let changed = tail.entries_after(revision).is_none_or(|entries| entries.iter().any(is_definition));
        if changed || progress != DefinitionProgress::Complete {
            tokio::time::sleep(DEFINITIONS_DELAY).await;
            let done = shared.run_server_job(definitions::complete).await.and_then(|done| done);
            // After a failure a later round does it.
            let done = shared.problems.note("complete the CustomResourceDefinitions", done);
            progress = done.unwrap_or(DefinitionProgress::Waits);
        }
        revision = head;
        // The sender lives as long as the server.
        match progress {
            DefinitionProgress::Wrote => {}
            DefinitionProgress::Complete => drop(news.changed().await),
            DefinitionProgress::Waits => tokio::time::sleep(DEFINITIONS_RETRY).await,
        }
    }
}

/// Compacts the log of the store in small steps, also where no control plane runs.
async fn compact(shared: Arc<ServerState>) {
    loop {
        tokio::time::sleep(COMPACTION_INTERVAL).await;
        let work = |api: &mut Api| match api.store_mut().compact(&Retention::usual(Time::now()), MAX_COMPACTED_ENTRIES)
        {
            // Another process writes at the moment: the next round compacts.
            Err(StoreError::Busy { .. }) => Ok(0),
            done => done.map_err(|error| refused(&error)),
        };
        let compact = async || shared.run_server_job(work).await.and_then(|done| done);
        while shared.problems.note("compact the history of the state", compact().await) == Some(MAX_COMPACTED_ENTRIES) {
        }
    }
}
