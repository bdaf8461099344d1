//! Work of the server with an open state: on other threads in turns, or at once on the thread of all connections.
//!
//! Knows: the idle states, and how another one is opened. Never: decides whose turn it is; [`super::turns`] and [`super::fair_turns`] do.
//! Start reading at [`ServerState::work`].

use super::connections::Client;
use super::exchange::Exchange;
use super::fair_turns::FairTurn;
use super::guard::Access;
use super::log_tail::LogTail;
use super::turns::Turn;
use super::{ACTOR, MAX_REQUESTS, ServerState};
use crate::apiserver::{Api, refused};
use crate::object::{IgnorePoison, Reason, Status};
use crate::serve::{ApiRequest, HttpAnswer, answer_brief};
use crate::store::OpenMode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tracing::Span;

/// Size of the cache of each connection to the state that only reads: the system keeps the file in memory, too.
const CONNECTION_CACHE_BYTES: usize = 2 << 20;

impl ServerState {
    /// Like [`ServerState::work`], for the server's own work.
    pub(super) async fn run_server_job<T: Send + 'static>(
        self: &Arc<ServerState>,
        work: impl FnOnce(&mut Api) -> T + Send + 'static,
    ) -> Result<T, Status> {
        self.work(&self.itself, work).await
    }

    /// Runs a closure with an open state, on a thread that may block, when it is the turn of its client.
    pub(super) async fn work<T: Send + 'static>(
        self: &Arc<ServerState>,
        client: &Arc<Client>,
        work: impl FnOnce(&mut Api) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let waiting = self.metrics.requests.waiting.count();
        let turn = self.turns.wait_for_turn(client).await?;
        drop(waiting);
        self.work_in_turn(turn, work).await
    }

    /// Like [`ServerState::work`], for an answer that has begun: the queue's limit does not refuse it.
    pub(super) async fn continue_work<T: Send + 'static>(
        self: &Arc<ServerState>,
        client: &Arc<Client>,
        work: impl FnOnce(&mut Api) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let waiting = self.metrics.requests.waiting.count();
        let turn = self.turns.wait_for_next_turn(client).await?;
        drop(waiting);
        self.work_in_turn(turn, work).await
    }

    async fn work_in_turn<T: Send + 'static>(
        self: &Arc<ServerState>,
        turn: Turn,
        work: impl FnOnce(&mut Api) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let shared = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let mut api = shared.open()?;
            api.set_turn(Some(Box::new(turn)));
            let done = work(&mut api);
            api.set_turn(None);
            let mut idle = shared.idle.lock().ignore_poison();
            if idle.len() < MAX_REQUESTS {
                idle.push(api);
            }
            Ok(done)
        });
        // A panic in one request must not end the others; its state is dropped.
        done.await.unwrap_or_else(|error| Err(Status::bug(error)))
    }

    /// Waits for the turn of anonymous requests, and of paths whose answers take long, so that many of them do not delay other requests.
    pub(super) async fn wait_for_special_turn(
        &self,
        access: Access,
        path: &str,
        client: &Arc<Client>,
    ) -> Result<Option<FairTurn>, Status> {
        let is_below = |folder: &str| path.starts_with(folder);
        let turns = match access {
            Access::Anonymous => &self.anonymous,
            _ if is_below("/apis/metrics.k8s.io/") => &self.measuring,
            _ if is_below("/openapi/") => &self.documents,
            _ => return Ok(None),
        };
        turns.wait_for(client).await.map(Some)
    }

    /// Like [`ServerState::continue_work`], for a piece of a long list.
    pub(super) async fn work_on_list<T: Send + 'static>(
        self: &Arc<ServerState>,
        client: &Arc<Client>,
        work: impl FnOnce(&mut Api) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let _turn = self.lists.wait_again(client).await?;
        self.continue_work(client, work).await
    }

    /// Answers a brief read on the thread of all connections: passing it to another thread and back would take longer.
    pub(super) fn answer_here(&self, request: &ApiRequest, exchange: &Exchange, span: &Span) -> Option<HttpAnswer> {
        if self.state.is_replica || !self.state.was_unchanged_lately() {
            return None;
        }
        let api = self.idle.lock().ignore_poison().pop()?;
        let answer =
            catch_unwind(AssertUnwindSafe(|| span.in_scope(|| answer_brief(&api, request, exchange.requested()))))
                .ok()?;
        self.idle.lock().ignore_poison().push(api);
        answer
    }

    /// Opens the state. A file that has replaced the original is another cluster, which needs another token.
    pub(super) fn open(&self) -> Result<Api, Status> {
        if !self.state.is_unchanged() {
            let text = format!("{} was removed or replaced: start kloop serve again", self.state.path.display());
            return Err(Status::new(Reason::InternalError, text));
        }
        if let Some(mut api) = self.idle.lock().ignore_poison().pop() {
            return self.state.fresh_reads.wait(api.store_mut()).map(|()| api).map_err(|error| refused(&error));
        }
        Api::open(&self.state.path, OpenMode::Existing, ACTOR)
            .map(|api| api.with_kinds(&self.kinds).with_access_cache(&self.access_cache).with_writer(&self.writer))
            .map(|api| api.with_outside_client(&self.outside).with_encoded_bodies(&self.encoded_bodies))
            .map(|api| api.with_stored_bodies(&self.stored_bodies).with_packed_documents(&self.packed_documents))
            .map(|api| api.with_extension_documents(&self.extensions.documents))
            .map_err(|error| Status::new(Reason::InternalError, error.to_string()))
            .and_then(|api| {
                api.store().limit_cache(CONNECTION_CACHE_BYTES).map_err(|error| refused(&error))?;
                Ok(api)
            })
    }

    /// Returns the newest entries of the log; starts reading them with the first watch.
    pub(super) fn tail(&self) -> Result<&Arc<LogTail>, Status> {
        if let Some(tail) = self.tail.get() {
            return Ok(tail);
        }
        let tail = LogTail::start(&self.state.path, self.state.identity)
            .map_err(|error| Status::new(Reason::InternalError, format!("{error:#}")))?;
        Ok(self.tail.get_or_init(|| tail))
    }
}
