//! The thread that copies the server's objects to the node's own state, by lists and watches.
//!
//! While the server does not answer, the copy stays unchanged and the pods keep running. Never: sends a write, or decides what is copied;
//! [`NodeCopy`] does. Start reading at [`Mirror::run`].

use super::node_context::NodeContext;
use super::node_copy::NodeCopy;
use crate::apiserver::Api;
use crate::client::{ReflectedChange, ReflectedContent, Reflectors};
use crate::object::Object;
use crate::store::OpenMode;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time to wait for changes before other work.
const MAX_CHANGE_WAIT: Duration = Duration::from_millis(250);
/// Maximum number of changes in one transaction.
const BATCH: usize = 256;
/// First and longest pause after changes could not be written. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Time after which the next failure is another one. In between, changes that need no write succeed while all others fail.
const FAILURE_IS_OVER: Duration = Duration::from_secs(120);

/// The thread's state.
pub struct Mirror {
    context: Arc<NodeContext>,
    api: Api,
    reflectors: Reflectors,
    /// The number of the client that the reflectors use.
    client_number: u64,
    copy: NodeCopy,
    failure: Option<WriteFailure>,
}

/// The last failure to write to the node's state.
struct WriteFailure {
    /// The reason that was logged.
    reason: String,
    at: Instant,
    pause: Duration,
}

impl Mirror {
    /// Opens the node's state. Reads nothing yet.
    pub fn open(context: Arc<NodeContext>) -> Result<Mirror, String> {
        let api = Api::open(&context.files.state, OpenMode::Existing, "mirror").map_err(|error| error.to_string())?;
        let (reflectors, client_number) = context.reflectors();
        let copy = NodeCopy::new(context.facts.clone());
        Ok(Mirror { context, api, reflectors, client_number, copy, failure: None })
    }

    /// Copies until the node stops.
    pub fn run(mut self) {
        self.copy.start_watches(&mut self.reflectors);
        while !self.context.is_stopping() {
            let changes = self.reflectors.next(MAX_CHANGE_WAIT, BATCH);
            if let Err(why) = self.apply(changes) {
                self.retry_later(why);
            }
            if self.client_number != self.context.client_number.load(Ordering::Relaxed) {
                self.restart();
            }
        }
    }

    fn apply(&mut self, changes: Vec<ReflectedChange>) -> Result<(), String> {
        let context = &self.context;
        let fetch_tokens = |pod: &Object| context.fetch_tokens(pod);
        let is_list = |change: &ReflectedChange| matches!(change.content, ReflectedContent::Replaced(_));
        let has_lists = changes.iter().any(is_list);
        self.copy.apply(self.api.store_mut(), &mut self.reflectors, changes, &fetch_tokens)?;
        if has_lists {
            let there: HashSet<String> = context.facts.pods.uids().into_iter().collect();
            context.tokens.retain(|uid| there.contains(uid));
        }
        Ok(())
    }

    /// Waits, and lists all objects again, which includes the lost changes.
    fn retry_later(&mut self, reason: String) {
        let pause = self.note_failure(reason);
        self.wait(pause);
        self.restart();
    }

    /// Logs a reason that is new. Returns the pause before the next attempt.
    fn note_failure(&mut self, reason: String) -> Duration {
        let last = self.failure.take().filter(|last| last.at.elapsed() < FAILURE_IS_OVER);
        if last.as_ref().is_none_or(|last| last.reason != reason) {
            self.context.log(&format!("cannot copy the server's objects: {reason}"));
        }
        let pause = next_pause(last.map(|last| last.pause));
        self.failure = Some(WriteFailure { reason, at: Instant::now(), pause });
        pause
    }

    /// Waits until the pause or the node ends.
    fn wait(&self, pause: Duration) {
        let start = Instant::now();
        while !self.context.is_stopping() && start.elapsed() < pause {
            std::thread::sleep(MAX_CHANGE_WAIT.min(pause.saturating_sub(start.elapsed())));
        }
    }

    fn restart(&mut self) {
        (self.reflectors, self.client_number) = self.context.reflectors();
        self.copy.start_again(&mut self.reflectors);
    }
}

/// Returns the pause after a failure, given the pause after the failure before.
fn next_pause(last: Option<Duration>) -> Duration {
    last.map_or(FIRST_PAUSE, |last| (last * 2).min(MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestServer;
    use super::*;

    #[test]
    fn failure_to_write_is_logged_once_and_followed_by_longer_pauses() {
        let folder = tempfile::tempdir().unwrap();
        drop(Api::open(&folder.path().join("state.db"), OpenMode::Create, "test").unwrap());
        let server = TestServer::start(|_, _| (404, serde_json::Value::Null));
        let (context, lines) = server.context(folder.path());
        let mut mirror = Mirror::open(context.clone()).unwrap();
        let pauses = [1, 2, 4, 8, 16, 32, 50, 50].map(|factor| FIRST_PAUSE * factor);
        assert_eq!(pauses.map(|_| mirror.note_failure("the disk is full".into())), pauses);
        assert_eq!(*lines.lock().unwrap(), ["cannot copy the server's objects: the disk is full"]);
        context.stop();
        let start = Instant::now();
        mirror.retry_later("the state is locked".into());
        assert!(start.elapsed() < MAX_PAUSE, "the end of the node ends the pause");
        assert_eq!(lines.lock().unwrap().len(), 2);
    }
}
