//! Reflectors: each lists a collection and then watches it, and starts again after every failure (client-go: cache.Reflector).
//!
//! Knows: a new watch continues at the last revision that was seen; if the server has compacted that one, the collection is listed again.
//! Failures are reported and tried again with a growing, random pause. Changes wait for their reader, which bounds memory.
//! Never: keeps objects. Start reading at [`Reflectors`].

use super::connection::ServerConnections;
use super::error::ClientError;
use super::request::with_parameter;
use super::transfer::TransferThread;
use super::watch::WatchLine;
use super::{list, watch};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Maximum number of changes that wait for their reader.
const MAX_CHANGES: usize = 256;
/// Shortest and longest pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Longest pause while the client may not read the collection, or the server does not know it. Rights that follow from other objects arrive
/// soon, such as a node's for the Secrets of its pods.
const MAX_REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// A watch that ends sooner, without an event, has failed (client-go: errVeryShortWatch).
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// Shortest time of one watch, in seconds; a random time is added, so that watches do not end together.
const WATCH_SECONDS: u64 = 300;

/// A change of a reflected collection.
#[derive(Clone, Debug)]
pub struct ReflectedChange {
    /// The name of the reflector.
    pub source: Arc<str>,
    /// The change.
    pub content: ReflectedContent,
}

/// The content of a change.
#[derive(Clone, Debug)]
pub enum ReflectedContent {
    /// All objects of the collection, which replace those before.
    Replaced(Vec<Value>),
    /// One event.
    Line(WatchLine),
    /// The collection cannot be read at the moment. Earlier changes stay valid.
    Failed(ClientError),
}

/// Reflectors of one client, read by one thread. They end when it is dropped.
pub struct Reflectors {
    connections: Arc<ServerConnections>,
    transfers: Arc<TransferThread>,
    sender: Sender<ReflectedChange>,
    changes: Arc<Mutex<Receiver<ReflectedChange>>>,
    running: HashMap<String, AbortHandle>,
}

impl Reflectors {
    /// Creates an empty set of reflectors.
    pub fn new(connections: Arc<ServerConnections>, transfers: Arc<TransferThread>) -> Reflectors {
        let (sender, changes) = channel(MAX_CHANGES);
        let changes = Arc::new(Mutex::new(changes));
        Reflectors { connections, transfers, sender, changes, running: HashMap::new() }
    }

    /// Starts a reflector, unless one of this name runs. `path` may have selectors in its query.
    pub fn start(&mut self, name: &str, path: &str) {
        self.start_from(name, path, None);
    }

    /// Starts a reflector like [`Reflectors::start`]. With a `revision`, the caller has read a list at it, and the watch starts there.
    pub fn start_from(&mut self, name: &str, path: &str, revision: Option<String>) {
        if self.running.contains_key(name) {
            return;
        }
        let reflector = Reflector {
            connections: self.connections.clone(),
            source: name.into(),
            path: path.to_owned(),
            sender: self.sender.clone(),
        };
        let task = self.transfers.spawn(reflector.run(revision));
        self.running.insert(name.to_owned(), task);
    }

    /// Ends a reflector. Changes that it has reported before may still arrive.
    pub fn stop(&mut self, name: &str) {
        if let Some(task) = self.running.remove(name) {
            task.abort();
        }
    }

    /// The names of the running reflectors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.running.keys().map(String::as_str)
    }

    /// Waits for changes, and returns at most `most`; none after the time limit.
    pub fn next(&self, limit: Duration, most: usize) -> Vec<ReflectedChange> {
        let changes = self.changes.clone();
        let received = self.transfers.wait(async move {
            let mut buffer = Vec::new();
            let mut changes = changes.lock().await;
            // None when the time is over.
            let _ = timeout(limit, changes.recv_many(&mut buffer, most)).await;
            buffer
        });
        received.unwrap_or_default()
    }
}

impl Drop for Reflectors {
    fn drop(&mut self) {
        self.running.values().for_each(AbortHandle::abort);
    }
}

/// The reflection of one collection.
struct Reflector {
    connections: Arc<ServerConnections>,
    source: Arc<str>,
    path: String,
    sender: Sender<ReflectedChange>,
}

/// The reader is gone.
struct Unread;

/// The pauses of a reflector.
struct ReflectorPauses {
    next: Duration,
}

impl ReflectorPauses {
    /// Returns the pause after a watch, or an attempt at one. `is_fruitful`: it lasted for a while or brought an event.
    fn next_pause(&mut self, is_fruitful: bool, error: Option<&ClientError>) -> Duration {
        if is_fruitful {
            self.next = FIRST_PAUSE;
        }
        match error {
            None if is_fruitful => Duration::ZERO,
            error => {
                let is_refused = error.is_some_and(|error| !error.is_temporary() && error.code() != 410);
                let longest = if is_refused { MAX_REFUSED_PAUSE } else { MAX_PAUSE };
                let pause = self.next.min(longest);
                self.next = (pause * 2).min(longest);
                pause
            }
        }
    }
}

impl Reflector {
    async fn run(self, mut revision: Option<String>) {
        let mut pauses = ReflectorPauses { next: FIRST_PAUSE };
        loop {
            let start = Instant::now();
            let before = revision.clone();
            let Ok(error) = self.go_on(&mut revision).await else { return };
            // A list alone is not a success: its watch may fail each time.
            let is_fruitful = start.elapsed() >= SHORT_WATCH || before.is_some() && revision != before;
            let pause = pauses.next_pause(is_fruitful, error.as_ref());
            if let Some(error) = error {
                if error.code() == 410 {
                    revision = None;
                } else if self.report(ReflectedContent::Failed(error)).await.is_err() {
                    return;
                }
            }
            sleep(pause.mul_f64(0.5 + random_part())).await;
        }
    }

    /// Lists if necessary, and watches until the watch ends. Returns the reason if that was a failure.
    async fn go_on(&self, revision: &mut Option<String>) -> Result<Option<ClientError>, Unread> {
        let from = match revision {
            Some(from) => from.clone(),
            None => match list::list(&self.connections, &self.path).await {
                Ok(listed) => {
                    self.report(ReflectedContent::Replaced(listed.items)).await?;
                    revision.insert(listed.resource_version).clone()
                }
                Err(error) => return Ok(Some(error)),
            },
        };
        let seconds = WATCH_SECONDS + (random_part() * WATCH_SECONDS as f64) as u64;
        let mut path = with_parameter(self.path.clone(), "resourceVersion", &from);
        path = with_parameter(path, "allowWatchBookmarks", "true");
        path = with_parameter(path, "timeoutSeconds", &seconds.to_string());
        let mut watch = match watch::open(&self.connections, &path).await {
            Ok(watch) => watch,
            Err(error) => return Ok(Some(error)),
        };
        loop {
            match watch.next().await {
                None => return Ok(None),
                Some(Err(error)) => return Ok(Some(error)),
                Some(Ok(line)) => {
                    if let Some(seen) = line.object["metadata"]["resourceVersion"].as_str() {
                        *revision = Some(seen.to_owned());
                    }
                    if line.event != "BOOKMARK" {
                        self.report(ReflectedContent::Line(line)).await?;
                    }
                }
            }
        }
    }

    async fn report(&self, content: ReflectedContent) -> Result<(), Unread> {
        let change = ReflectedChange { source: self.source.clone(), content };
        self.sender.send(change).await.map_err(|_| Unread)
    }
}

/// Returns a random number from 0 to 1.
fn random_part() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Status;

    #[test]
    fn pauses_grow_until_a_watch_is_fruitful() {
        let gone = ClientError::from(Status::from_answer(410, b""));
        let refused = ClientError::from(Status::from_answer(403, b""));
        let mut pauses = ReflectorPauses { next: FIRST_PAUSE };
        assert_eq!(pauses.next_pause(true, None), Duration::ZERO);
        // Watches that end at once, and a server that has always forgotten the revision.
        assert_eq!(pauses.next_pause(false, None), FIRST_PAUSE);
        assert_eq!(pauses.next_pause(false, Some(&gone)), FIRST_PAUSE * 2);
        assert_eq!(pauses.next_pause(false, Some(&refused)), FIRST_PAUSE * 4);
        assert_eq!(pauses.next_pause(false, None), FIRST_PAUSE * 8);
        for _ in 0..20 {
            pauses.next_pause(false, None);
        }
        assert_eq!(pauses.next_pause(false, Some(&gone)), MAX_PAUSE);
        for _ in 0..20 {
            pauses.next_pause(false, Some(&refused));
        }
        assert_eq!(pauses.next_pause(false, Some(&refused)), MAX_REFUSED_PAUSE);
        assert_eq!(pauses.next_pause(true, Some(&gone)), FIRST_PAUSE);
    }
}
