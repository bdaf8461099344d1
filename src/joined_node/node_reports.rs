//! The reports of a node to its server: statuses and ends of pods, and events.
//!
//! Knows: it compares the node's state with what the server was told, so that nothing is lost while the server is away or this process
//! starts again. Never: changes the node's state. Start reading at [`NodeReports::send`].

use super::merge::status_patch;
use super::node_context::JoinedFacts;
use super::stored_copy::ACTOR;
use crate::client::{ClientError, ClientRequest, PatchFormat};
use crate::object::{Key, Object, Resource};
use crate::store::{ChangeKind, Store, StoreRead};
use serde_json::{Value, json};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval for checking all pods; in between only changed pods are checked.
const LOOK_AT_ALL: Duration = Duration::from_secs(5);
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Entries of the log that are read at once.
const BATCH: usize = 1000;
/// Maximum number of events that wait for the server; older ones are dropped.
const MOST_EVENTS: usize = 1000;

const PODS: Resource = Resource("pods");
const EVENTS: Resource = Resource("events");

/// A server to which the node sends reports.
pub trait ReportTarget {
    /// Makes a request, whose answer tells nothing but its success.
    fn send(&self, request: ClientRequest) -> Result<(), ClientError>;
}

/// The news for the server.
pub struct NodeReports {
    facts: Arc<JoinedFacts>,
    /// The revision of the state up to which events were read.
    revision: u64,
    events: VecDeque<Object>,
    /// Names of events that the server has.
    sent_events: HashSet<String>,
    /// Keys of pods to look at.
    changed: HashSet<Key>,
    looked_at_all: Option<Instant>,
}

impl NodeReports {
    /// Reports all pods first, and the events after this revision of the node's state.
    pub fn new(facts: Arc<JoinedFacts>, revision: u64) -> NodeReports {
        let (events, sent_events, changed) = Default::default();
        NodeReports { facts, revision, events, sent_events, changed, looked_at_all: None }
    }

    /// Sends what the server does not know yet, until it does not answer.
    pub fn send(&mut self, store: &Store, server: &dyn ReportTarget) -> Result<(), ClientError> {
        self.read_log(store);
        self.send_statuses(store, server)?;
        self.send_ends(store, server)?;
        self.send_events(server)
    }

    /// Reads which pods have changed, and new events.
    fn read_log(&mut self, store: &Store) {
        loop {
            let entries = match store.read().and_then(|snapshot| snapshot.log_after(self.revision, BATCH)) {
                Ok(entries) => entries,
                Err(_) => {
                    // The log was compacted: all pods are looked at, and events in between are lost.
                    self.looked_at_all = None;
                    self.revision = store.read().and_then(|snapshot| snapshot.revision()).unwrap_or(self.revision);
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

    /// Sends the statuses that the server does not know.
    fn send_statuses(&mut self, store: &Store, server: &dyn ReportTarget) -> Result<(), ClientError> {
        if self.looked_at_all.is_none_or(|at| at.elapsed() >= LOOK_AT_ALL) {
            self.looked_at_all = Some(Instant::now());
            let pods = store.read().and_then(|snapshot| snapshot.list(PODS, None)).unwrap_or_default();
            self.changed.extend(pods.into_iter().map(|stored| stored.key));
        }
        for key in self.changed.iter().cloned().collect::<Vec<_>>() {
            if let Some(pod) = find(store, &key) {
                self.send_status(&key, &pod, server)?;
            }
            self.changed.remove(&key);
        }
        Ok(())
    }

    fn send_status(&self, key: &Key, pod: &Object, server: &dyn ReportTarget) -> Result<(), ClientError> {
        let Some(known) = self.facts.pods.get(pod.uid()) else { return Ok(()) };
        let status = &pod.0["status"];
        let Some(patch) = status_patch(status, &known.known_status) else { return Ok(()) };
        let body = json!({"metadata": {"uid": pod.uid()}, "status": patch});
        let path = format!("{}/status", pod_path(key));
        match server.send(ClientRequest::patch(path, PatchFormat::Strategic, &body).within(TIMEOUT)) {
            Ok(()) => {}
            Err(error) if error.is_temporary() => return Err(error),
            // Gone, or another pod of the same name: the mirror will see it.
            Err(error) if matches!(error.code(), 404 | 409) => {}
            Err(error) => self.facts.log(&format!("the server refuses the status of {}: {error}", key.path())),
        }
        self.facts.pods.change(pod.uid(), |known| known.known_status = status.clone());
        Ok(())
    }

    /// Removes pods at the server whose processes have ended.
    fn send_ends(&self, store: &Store, server: &dyn ReportTarget) -> Result<(), ClientError> {
        let finished = self.facts.pods.finished(|key, uid| find(store, key).is_some_and(|pod| pod.uid() == uid));
        for (uid, key) in finished {
            let options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
            });
            match server.send(ClientRequest::delete(pod_path(&key), &options).within(TIMEOUT)) {
                Ok(()) => {}
                Err(error) if error.is_temporary() => return Err(error),
                Err(error) if matches!(error.code(), 404 | 409) => {}
                Err(error) => self.facts.log(&format!("the server does not remove {}: {error}", key.path())),
            }
            self.facts.pods.change(&uid, |pod| pod.is_removed = true);
        }
        Ok(())
    }

    /// Sends events in their order. An event that the server refuses is dropped.
    fn send_events(&mut self, server: &dyn ReportTarget) -> Result<(), ClientError> {
        while let Some(event) = self.events.front() {
            match self.send_event(event, server) {
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

    fn send_event(&self, event: &Object, server: &dyn ReportTarget) -> Result<(), ClientError> {
        let folder = format!("/api/v1/namespaces/{}/events", event.namespace());
        if self.sent_events.contains(event.name()) {
            let fields = ["count", "lastTimestamp", "series", "message"];
            let changed: serde_json::Map<String, Value> =
                fields.iter().filter_map(|field| Some(((*field).to_owned(), event.0.get(*field)?.clone()))).collect();
            let path = format!("{folder}/{}", event.name());
            let patch = ClientRequest::patch(path, PatchFormat::Merge, &Value::Object(changed)).within(TIMEOUT);
            match server.send(patch) {
                Err(error) if error.code() == 404 => {}
                sent => return sent,
            }
        }
        let mut event = event.clone();
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            event.unset(&["metadata", field]);
        }
        server.send(ClientRequest::post(folder, &event.0).within(TIMEOUT))
    }
}

fn find(store: &Store, key: &Key) -> Option<Object> {
    let stored = store.read().and_then(|snapshot| snapshot.get(key)).ok()??;
    serde_json::from_str(&stored.body).ok().map(Object)
}

fn pod_path(key: &Key) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", key.namespace, key.name)
}
