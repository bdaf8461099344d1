//! Turns of the worker threads: only a limited number works at the same time. A thread that waits for a webhook gives its turn to
//! another one.

use super::connections::Client;
use super::fair_turns::{FairTurn, FairTurns};
use crate::apiserver::{ApiResult, WorkTurn};
use crate::object::Status;
use crate::runtime::allocator::use_mimalloc;
use crate::serve::answer::too_many_requests;
use std::io;
use std::sync::Arc;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of requests that wait for webhooks.
const MAX_WAITING: usize = 112;

/// Returns the runtime of a server: the calling thread for connections, and threads for so many requests that work and for those that
/// wait.
pub fn make_runtime(working: usize) -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(working + MAX_WAITING)
        .on_thread_start(use_mimalloc)
        .build()
}

/// The turns of a server.
pub struct Turns {
    working: Arc<FairTurns>,
    waiting: Arc<Semaphore>,
}

impl Turns {
    /// Permits this number of threads to work.
    pub fn new(count: usize) -> Turns {
        Turns { working: FairTurns::new(count), waiting: Arc::new(Semaphore::new(MAX_WAITING)) }
    }

    /// Waits for a turn of a client. An error is the answer when too many of its requests wait already.
    pub async fn wait_for_turn(&self, client: &Arc<Client>) -> Result<Turn, Status> {
        self.working.wait_for(client).await.map(|works| self.make_turn(client, works))
    }

    /// Waits for a turn of a client for work that has begun: the queue's limit does not refuse it.
    pub async fn wait_for_next_turn(&self, client: &Arc<Client>) -> Result<Turn, Status> {
        self.working.wait_again(client).await.map(|works| self.make_turn(client, works))
    }

    fn make_turn(&self, client: &Arc<Client>, works: FairTurn) -> Turn {
        Turn {
            working: self.working.clone(),
            waiting: self.waiting.clone(),
            client: client.clone(),
            works: Some(works),
            waits: None,
            runtime: Handle::current(),
        }
    }
}

/// The turn of one thread.
pub struct Turn {
    working: Arc<FairTurns>,
    waiting: Arc<Semaphore>,
    client: Arc<Client>,
    works: Option<FairTurn>,
    waits: Option<OwnedSemaphorePermit>,
    runtime: Handle,
}

impl WorkTurn for Turn {
    fn pause(&mut self) -> ApiResult<()> {
        let Ok(waits) = self.waiting.clone().try_acquire_owned() else {
            return Err(too_many_requests("too many requests wait for webhooks"));
        };
        self.waits = Some(waits);
        self.works = None;
        Ok(())
    }

    fn resume(&mut self) {
        self.works = self.runtime.block_on(self.working.wait_again(&self.client)).ok();
        self.waits = None;
    }
}
