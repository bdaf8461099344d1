//! The attempts of one write, and the things that the next one needs: compiled definitions, answers of webhooks.
//!
//! Never: compiles or asks; the caller does, while no lock is held. Start reading at [`WriteRounds::count_attempt`].

use super::ApiResult;
use super::outside::WriteInputs;
use super::user::User;
use crate::kinds::custom::Uncompiled;
use crate::object::{Reason, Status};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Attempts after which validation compiles missing definitions itself, under the lock.
const COMPILE_ATTEMPTS: u32 = 3;
/// Maximum number of attempts: each mutating webhook takes one, and a change of an object that webhooks have seen starts them again.
const MAX_ATTEMPTS: u32 = 128;
/// Time limit for all attempts, as for a request to Kubernetes' API server.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// Whether the write is undone at its end.
    pub dry_run: bool,
    /// Whether it ends when it needs a part of a definition that is not compiled.
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
    /// Whether another machine wrote to the shared log first.
    pub is_overtaken: bool,
}

impl WriteNeeds {
    /// Whether the write has to be made again.
    pub fn needs_another_attempt(&self) -> bool {
        self.answers || self.is_overtaken || !self.uncompiled.is_empty()
    }
}

impl WriteRounds {
    /// Starts a write, before its first attempt.
    pub fn begin() -> WriteRounds {
        WriteRounds { inputs: WriteInputs::default(), attempts: 0, compile_attempts: 0, begun: Instant::now() }
    }

    /// Whether the next attempt ends when it needs a part of a definition that is not compiled.
    pub fn defers_compilation(&self) -> bool {
        self.compile_attempts + 1 < COMPILE_ATTEMPTS
    }

    /// Counts an attempt; fails when there were too many, or when the write takes too long.
    pub fn count_attempt(&mut self, needed: &WriteNeeds) -> ApiResult<()> {
        self.attempts += 1;
        self.compile_attempts += u32::from(!needed.uncompiled.is_empty());
        if self.attempts < MAX_ATTEMPTS && self.begun.elapsed() < WRITE_TIMEOUT {
            return Ok(());
        }
        let text = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Err(Status::new(Reason::Timeout, text))
    }
}
