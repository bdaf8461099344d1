//! The server's own work, beside its answers: it leads the Service `kubernetes` to itself, adds the default roles that an older state
//! lacks, and compacts the log.
//!
//! Never: answers a client. Each function is a task, or a step at the server's start and end.

use super::ServerState;
use crate::apiserver::Api;
use crate::object::Time;
use crate::serve::advertise;
use crate::store::Retention;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Interval between compactions of a part of the store's log.
const COMPACTION: Duration = Duration::from_secs(10);
/// Interval between repairs of the endpoints of the Service `kubernetes`.
const REPAIR: Duration = Duration::from_secs(10);
/// Maximum number of log entries per compaction: a few milliseconds.
const COMPACTED: usize = 400;

/// Leads the Service `kubernetes` to this server, and repairs it as often as Kubernetes' API server does.
pub async fn advertise(shared: Arc<ServerState>, address: SocketAddr) {
    loop {
        // When another process writes at the moment, the next round advertises.
        let _ = shared.work_for_itself(move |api| advertise::advertise(api, address)).await;
        tokio::time::sleep(REPAIR).await;
    }
}

/// Ends the advertising.
pub async fn withdraw(shared: &Arc<ServerState>, address: SocketAddr, advertising: JoinHandle<()>) {
    advertising.abort();
    // Waits for a write in progress, which would write the address again.
    let _ = advertising.await;
    let _ = shared.work_for_itself(move |api| advertise::withdraw(api, address)).await;
}

/// Adds the default roles that an older state lacks. When another process writes at the moment, the next start does.
pub async fn reconcile_defaults(shared: Arc<ServerState>) {
    let _ = shared.work_for_itself(Api::reconcile_defaults).await;
}

/// Compacts the log of the store in small steps, also where no control plane runs.
pub async fn compact(shared: Arc<ServerState>) {
    loop {
        tokio::time::sleep(COMPACTION).await;
        // When another process writes at the moment, the next round compacts.
        let work = |api: &mut Api| api.store_mut().compact(&Retention::usual(Time::now()), COMPACTED);
        while let Ok(Ok(COMPACTED)) = shared.work_for_itself(work).await {}
    }
}
