//! The thread that tells the server what the node has found out: statuses and ends of pods, and events.
//!
//! Knows: it compares the node's state with what the server was told, so that nothing is lost while the server is away or this process
//! starts again. Never: changes the node's state. Start reading at [`Upstream::run`].

use super::merge::status_patch;
use super::node_context::NodeContext;
use super::stored_copy::ACTOR;
use crate::apiserver::Api;
use crate::client::{ClientError, ClientRequest, PatchFormat};
use crate::object::{Key, Object, Resource};
use crate::store::{ChangeKind, OpenMode, StoreRead, WakeHint, watch_hint};
use serde_json::{Value, json};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time without a look at the state.
const PAUSE: Duration = Duration::from_millis(500);
/// Interval between looks at all pods; in between those that have changed.
const LOOK_AT_ALL: Duration = Duration::from_secs(5);
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after the server did not answer.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Entries of the log that are read at once.
const BATCH: usize = 1000;
/// Maximum number of events that wait for the server; older ones are dropped.
const MOST_EVENTS: usize = 1000;

const PODS: Resource = Resource("pods");
const EVENTS: Resource = Resource("events");

/// Sends news to the server.
pub struct Upstream {
    context: Arc<NodeContext>,
    api: Api,
    hint: Option<WakeHint>,
    /// The revision of the state up to which events were read.
    revision: u64,
    events: VecDeque<Object>,
    /// Names of events that the server has.
    sent_events: HashSet<String>,
    /// Uids of pods to look at.
    changed: HashSet<Key>,
    looked_at_all: Option<Instant>,
    problem: Option<String>,
}

impl Upstream {
    /// Opens the node's state; sends nothing yet.
    pub fn open(context: Arc<NodeContext>) -> Result<Upstream, String> {
        let api = Api::open(&context.state, OpenMode::Existing, "upstream").map_err(|error| error.to_string())?;
        let revision = api.read(|snapshot| snapshot.revision()).map_err(|status| status.message)?;
        let hint = watch_hint(api.store());
        Ok(Upstream {
            context,
            api,
            hint,
            revision,
            events: VecDeque::new(),
            sent_events: HashSet::new(),
            changed: HashSet::new(),
            looked_at_all: None,
            problem: None,
        })
    }

    /// Sends news until the node stops.
    pub fn run(mut self) {
        while !self.context.is_stopping() {
            self.read_log();
            let sent = self.send_statuses().and_then(|()| self.send_ends()).and_then(|()| self.send_events());
            let failed = sent.is_err();
            self.note(sent);
            match &self.hint {
                _ if failed => std::thread::sleep(AFTER_FAILURE),
                Some(hint) => _ = hint.wait(PAUSE),
                None => std::thread::sleep(PAUSE),
            }
        }
    }

    fn note(&mut self, outcome: Result<(), ClientError>) {
        // The heartbeats tell that the server is away.
        let problem = outcome.err().filter(|error| !error.is_temporary()).map(|error| error.to_string());
        if problem != self.problem
            && let Some(text) = &problem
        {
            self.context.log(&format!("cannot report to the server, and will again: {text}"));
        }
        self.problem = problem;
    }

    /// Reads which pods have changed, and new events.
    fn read_log(&mut self) {
        loop {
            let entries = match self.api.store().read().and_then(|snapshot| snapshot.log_after(self.revision, BATCH)) {
                Ok(entries) => entries,
                Err(_) => {
                    // The log was compacted: all pods are looked at, and events in between are lost.
                    self.looked_at_all = None;
                    self.revision = self.api.read(|snapshot| snapshot.revision()).unwrap_or(self.revision);
                    return;
                }
            };
            let Some(last) = entries.last() else { return };
            self.revision = last.revision;
            for entry in entries.into_iter().filter(|entry| *entry.actor != *ACTOR) {
                let key = &entry.change.stored().key;
                if key.resource == PODS {
                    self.changed.insert(key.clone());
                } else if let (EVENTS, ChangeKind::Put(stored)) = (key.resource, &entry.change) {
                    self.events.extend(serde_json::from_str(&stored.body).ok().map(Object));
                }
            }
            while self.events.len() > MOST_EVENTS {
                self.events.pop_front();
            }
        }
    }

    fn find(&self, key: &Key) -> Option<Object> {
        let stored = self.api.read(|snapshot| snapshot.get(key)).ok()??;
        serde_json::from_str(&stored.body).ok().map(Object)
    }

    /// Sends the statuses that the server does not know.
    fn send_statuses(&mut self) -> Result<(), ClientError> {
        if self.looked_at_all.is_none_or(|at| at.elapsed() >= LOOK_AT_ALL) {
            self.looked_at_all = Some(Instant::now());
            let pods = self.api.read(|snapshot| snapshot.list(PODS, None)).unwrap_or_default();
            self.changed.extend(pods.into_iter().map(|stored| stored.key));
        }
        for key in self.changed.iter().cloned().collect::<Vec<_>>() {
            if let Some(pod) = self.find(&key) {
                self.send_status(&key, &pod)?;
            }
            self.changed.remove(&key);
        }
        Ok(())
    }

    fn send_status(&self, key: &Key, pod: &Object) -> Result<(), ClientError> {
        let Some(known) = self.context.pods.get(pod.uid()) else { return Ok(()) };
        let status = &pod.0["status"];
        let Some(patch) = status_patch(status, &known.known_status) else { return Ok(()) };
        let body = json!({"metadata": {"uid": pod.uid()}, "status": patch});
        let path = format!("{}/status", pod_path(key));
        match self.context.client().send(ClientRequest::patch(path, PatchFormat::Strategic, &body).within(TIMEOUT)) {
            Ok(_) => {}
            Err(error) if error.is_temporary() => return Err(error),
            // Gone, or another pod of the same name: the mirror will see it.
            Err(error) if matches!(error.code(), 404 | 409) => {}
            Err(error) => self.context.log(&format!("the server refuses the status of {}: {error}", key.path())),
        }
        self.context.pods.change(pod.uid(), |known| known.known_status = status.clone());
        Ok(())
    }

    /// Removes pods at the server whose processes have ended.
    fn send_ends(&self) -> Result<(), ClientError> {
        let finished = self.context.pods.finished(|key, uid| self.find(key).is_some_and(|pod| pod.uid() == uid));
        for (uid, key) in finished {
            let options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
            });
            match self.context.client().send(ClientRequest::delete(pod_path(&key), &options).within(TIMEOUT)) {
                Ok(_) => {}
                Err(error) if error.is_temporary() => return Err(error),
                Err(error) if matches!(error.code(), 404 | 409) => {}
                Err(error) => self.context.log(&format!("the server does not remove {}: {error}", key.path())),
            }
            self.context.pods.change(&uid, |pod| pod.is_removed = true);
        }
        Ok(())
    }

    /// Sends events in their order. An event that the server refuses is dropped.
    fn send_events(&mut self) -> Result<(), ClientError> {
        while let Some(event) = self.events.front() {
            match self.send_event(event) {
                Err(error) if error.is_temporary() => return Err(error),
                _ => {}
            }
            if let Some(event) = self.events.pop_front() {
                if self.sent_events.len() >= MOST_EVENTS {
                    self.sent_events.clear();
                }
                self.sent_events.insert(event.name().to_owned());
            }
        }
        Ok(())
    }

    fn send_event(&self, event: &Object) -> Result<(), ClientError> {
        let client = self.context.client();
        let folder = format!("/api/v1/namespaces/{}/events", event.namespace());
        if self.sent_events.contains(event.name()) {
            let fields = ["count", "lastTimestamp", "series", "message"];
            let changed: serde_json::Map<String, Value> =
                fields.iter().filter_map(|field| Some(((*field).to_owned(), event.0.get(*field)?.clone()))).collect();
            let path = format!("{folder}/{}", event.name());
            let patch = ClientRequest::patch(path, PatchFormat::Merge, &Value::Object(changed)).within(TIMEOUT);
            match client.send(patch) {
                Err(error) if error.code() == 404 => {}
                sent => return sent.map(drop),
            }
        }
        let mut event = event.clone();
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            event.unset(&["metadata", field]);
        }
        client.send(ClientRequest::post(folder, &event.0).within(TIMEOUT)).map(drop)
    }
}

fn pod_path(key: &Key) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", key.namespace, key.name)
}
