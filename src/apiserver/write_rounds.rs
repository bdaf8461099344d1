//! The attempts of one write, and what each of them needed before the next.

use super::ApiResult;
use super::outside::WriteInputs;
use super::user::User;
use crate::kinds::custom::Uncompiled;
use crate::object::{Reason, Status};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Attempts after which validation compiles what is missing itself, under the lock.
const COMPILE_ATTEMPTS: u32 = 3;
/// Maximum number of attempts: each mutating webhook takes one, and each change of an object that was seen by webhooks starts anew.
const MOST_ATTEMPTS: u32 = 128;
/// Time limit for all attempts, as for a request to Kubernetes' API server.
const PATIENCE: Duration = Duration::from_secs(60);

/// The attempts of one write.
pub struct WriteRounds {
    /// The time, the numbers and the answers that all attempts share.
    pub inputs: WriteInputs,
    attempts: u32,
    compile_attempts: u32,
    begun: Instant,
}

/// The circumstances of one attempt.
pub struct WriteAttempt<'a> {
    /// The user who writes; `None` for the administrator.
    pub user: Option<&'a Arc<User>>,
    /// Whether nothing is kept.
    pub dry_run: bool,
    /// Whether it ends when it needs what is not compiled.
    pub defers: bool,
    /// Whether webhooks can be asked.
    pub asks: bool,
}

/// The things that an attempt needed and did not have.
#[derive(Default)]
pub struct WriteNeeds {
    /// The parts of definitions that were not compiled.
    pub uncompiled: Vec<Uncompiled>,
    /// Whether answers of webhooks are missing.
    pub answers: bool,
}

impl WriteNeeds {
    /// Whether the write has to be made again.
    pub fn any(&self) -> bool {
        self.answers || !self.uncompiled.is_empty()
    }
}

impl WriteRounds {
    /// A write that was not attempted yet.
    pub fn begin() -> WriteRounds {
        WriteRounds { inputs: WriteInputs::default(), attempts: 0, compile_attempts: 0, begun: Instant::now() }
    }

    /// Whether the next attempt ends when it needs what is not compiled.
    pub fn defers_compilation(&self) -> bool {
        self.compile_attempts + 1 < COMPILE_ATTEMPTS
    }

    /// Counts an attempt; an error when there were too many, or it takes too long.
    pub fn count(&mut self, needed: &WriteNeeds) -> ApiResult<()> {
        self.attempts += 1;
        self.compile_attempts += u32::from(!needed.uncompiled.is_empty());
        if self.attempts < MOST_ATTEMPTS && self.begun.elapsed() < PATIENCE {
            return Ok(());
        }
        let text = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Err(Status::new(Reason::Timeout, text))
    }
}
