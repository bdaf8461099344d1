//! Turns of the threads that work on requests: only some work at the same time, and one that waits for a webhook lets another work.

use crate::apiserver::{ApiResult, WorkTurn};
use crate::object::{Reason, Status};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of requests that wait for webhooks.
pub const MOST_WAITING: usize = 112;

/// The turns of a server.
pub struct Turns {
    working: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Turns {
    /// Lets so many threads work.
    pub fn new(count: usize) -> Turns {
        Turns { working: Arc::new(Semaphore::new(count)), waiting: Arc::new(Semaphore::new(MOST_WAITING)) }
    }

    /// Waits for a turn.
    pub async fn wait_for_turn(&self) -> Turn {
        // The semaphores are never closed.
        let works = self.working.clone().acquire_owned().await.ok();
        Turn {
            working: self.working.clone(),
            waiting: self.waiting.clone(),
            works,
            waits: None,
            runtime: Handle::current(),
        }
    }
}

/// The turn of one thread.
pub struct Turn {
    working: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    works: Option<OwnedSemaphorePermit>,
    waits: Option<OwnedSemaphorePermit>,
    runtime: Handle,
}

impl WorkTurn for Turn {
    fn pause(&mut self) -> ApiResult<()> {
        let Ok(waits) = self.waiting.clone().try_acquire_owned() else {
            let text = "too many requests wait for webhooks, please try again later";
            return Err(Status::new(Reason::TooManyRequests, text));
        };
        self.waits = Some(waits);
        self.works = None;
        Ok(())
    }

    fn resume(&mut self) {
        self.works = self.runtime.block_on(self.working.clone().acquire_owned()).ok();
        self.waits = None;
    }
}
