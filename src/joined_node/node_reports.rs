//! The reports of a node to its server: statuses and ends of pods, and events.
//!
//! Knows: it compares the pods in the node's state with the reports that the server has received, so that statuses and ends of pods are
//! sent when the server is back, and after a restart of this process. Events wait in memory. Events are lost that are unsent when this
//! process ends, or compacted in the node's state before they were read; and the oldest ones when more than 1000 wait. Never: changes the
//! node's state. Start reading at [`NodeReports::send`].

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
const COMPARE_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Entries of the log that are read at once.
const BATCH: usize = 1000;
/// Maximum number of events that wait for the server; older ones are dropped.
const MAX_EVENTS: usize = 1000;

const PODS: Resource = Resource("pods");
const EVENTS: Resource = Resource("events");

/// A server to which the node sends reports.
pub trait ReportTarget {
    /// Sends a request, of whose answer only success or failure matters.
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
    /// Keys of pods to check.
    changed: HashSet<Key>,
    compared_all: Option<Instant>,
}

impl NodeReports {
    /// Reports all pods first, and the events after this revision of the node's state.
    pub fn new(facts: Arc<JoinedFacts>, revision: u64) -> NodeReports {
        let (events, sent_events, changed) = Default::default();
        NodeReports { facts, revision, events, sent_events, changed, compared_all: None }
    }

    /// Sends the reports that the server does not have yet. Stops when the server does not answer. A report that the server refuses for
    /// the moment waits for the next call, and the others are sent; returns the first such refusal.
    pub fn send(&mut self, store: &Store, server: &dyn ReportTarget) -> Result<(), ClientError> {
        self.read_log(store);
        let mut refusal = None;
        self.send_statuses(store, server, &mut refusal)?;
        self.send_ends(store, server, &mut refusal)?;
        self.send_events(server, &mut refusal)?;
        refusal.map_or(Ok(()), Err)
    }

    /// Reads which pods have changed, and new events.
    fn read_log(&mut self, store: &Store) {
        loop {
            let entries = match store.read().and_then(|snapshot| snapshot.log_after(self.revision, BATCH)) {
                Ok(entries) => entries,
                Err(_) => {
                    // The log was compacted: all pods are compared again, and the events in between are lost.
                    self.compared_all = None;
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
            while self.events.len() > MAX_EVENTS {
                self.events.pop_front();
            }
        }
    }

    /// Sends the statuses that the server does not know.
    fn send_statuses(
        &mut self,
        store: &Store,
        server: &dyn ReportTarget,
        refusal: &mut Option<ClientError>,
    ) -> Result<(), ClientError> {
        if self.compared_all.is_none_or(|at| at.elapsed() >= COMPARE_INTERVAL) {
            // After a failed read, the next round checks again.
            if let Ok(pods) = store.read().and_then(|snapshot| snapshot.list(PODS, None)) {
                self.compared_all = Some(Instant::now());
                self.changed.extend(pods.into_iter().map(|stored| stored.key));
            }
        }
        for key in self.changed.iter().cloned().collect::<Vec<_>>() {
            let sent = find(store, &key).map_or(Ok(()), |pod| self.send_status(&key, &pod, server));
            match sent {
                Ok(()) => _ = self.changed.remove(&key),
                Err(error) => note_refusal(error, refusal)?,
            }
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
    fn send_ends(
        &self,
        store: &Store,
        server: &dyn ReportTarget,
        refusal: &mut Option<ClientError>,
    ) -> Result<(), ClientError> {
        let finished = self.facts.pods.finished(|key, uid| find(store, key).is_some_and(|pod| pod.uid() == uid));
        for (uid, key) in finished {
            let options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
            });
            match server.send(ClientRequest::delete(pod_path(&key), &options).within(TIMEOUT)) {
                Ok(()) => {}
                Err(error) if error.is_temporary() => {
                    note_refusal(error, refusal)?;
                    continue;
                }
                Err(error) if matches!(error.code(), 404 | 409) => {}
                Err(error) => self.facts.log(&format!("the server does not remove {}: {error}", key.path())),
            }
            self.facts.pods.change(&uid, |pod| pod.is_removed = true);
        }
        Ok(())
    }

    /// Sends events in their order. An event that the server refuses permanently is dropped; one that it refuses temporarily moves to
    /// the end of the queue, unless a later version of it waits there.
    fn send_events(&mut self, server: &dyn ReportTarget, refusal: &mut Option<ClientError>) -> Result<(), ClientError> {
        for _ in 0..self.events.len() {
            let Some(event) = self.events.front() else { break };
            let sent = self.send_event(event, server);
            let temporary = sent.err().filter(ClientError::is_temporary);
            let is_busy = temporary.as_ref().is_some_and(|error| error.code() == 429);
            if let Some(error) = temporary {
                note_refusal(error, refusal)?;
                self.move_first_to_end();
            } else if let Some(event) = self.events.pop_front() {
                self.note_sent(&event);
            }
            if is_busy {
                // The server limits how many events it takes: the others wait, too.
                break;
            }
        }
        Ok(())
    }

    fn move_first_to_end(&mut self) {
        let Some(event) = self.events.pop_front() else { return };
        let is_same = |later: &Object| (later.namespace(), later.name()) == (event.namespace(), event.name());
        if !self.events.iter().any(is_same) {
            self.events.push_back(event);
        }
    }

    fn note_sent(&mut self, event: &Object) {
        if self.sent_events.len() >= MAX_EVENTS {
            self.sent_events.clear();
        }
        self.sent_events.insert(event.name().to_owned());
    }

    /// Creates the event at the server; updates it if the server has it already.
    fn send_event(&self, event: &Object, server: &dyn ReportTarget) -> Result<(), ClientError> {
        let folder = format!("/api/v1/namespaces/{}/events", event.namespace());
        if self.sent_events.contains(event.name()) {
            match server.send(event_patch(&folder, event)) {
                Err(error) if error.code() == 404 => {}
                sent => return sent,
            }
        }
        let mut new = event.clone();
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            new.unset(&["metadata", field]);
        }
        match server.send(ClientRequest::post(folder.clone(), &new.0).within(TIMEOUT)) {
            // Sent by an earlier run, or dropped from the list of sent events.
            Err(error) if error.code() == 409 => server.send(event_patch(&folder, event)),
            sent => sent,
        }
    }
}

/// Returns the request that updates an event which the server has.
fn event_patch(folder: &str, event: &Object) -> ClientRequest {
    let fields = ["count", "lastTimestamp", "series", "message"];
    let changed: serde_json::Map<String, Value> =
        fields.iter().filter_map(|field| Some(((*field).to_owned(), event.0.get(*field)?.clone()))).collect();
    let path = format!("{folder}/{}", event.name());
    ClientRequest::patch(path, PatchFormat::Merge, &Value::Object(changed)).within(TIMEOUT)
}

/// Remembers the first refusal. Returns an error that ends the pass: without an answer of the server, other requests would fail, too.
fn note_refusal(error: ClientError, refusal: &mut Option<ClientError>) -> Result<(), ClientError> {
    if error.status().is_none() {
        return Err(error);
    }
    refusal.get_or_insert(error);
    Ok(())
}

fn find(store: &Store, key: &Key) -> Option<Object> {
    let stored = store.read().and_then(|snapshot| snapshot.get(key)).ok()??;
    serde_json::from_str(&stored.body).ok().map(Object)
}

fn pod_path(key: &Key) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", key.namespace, key.name)
}

#[cfg(test)]
mod tests {
    use super::super::node_context::NodeTraits;
    use super::super::stored_copy;
    use super::*;
    use crate::apiserver::{Api, WriteOptions, create};
    use crate::kinds;
    use crate::object::Status;
    use std::cell::RefCell;
    use std::time::Duration;

    /// Answers requests whose path contains a text with an error of this code, and notes all requests.
    #[derive(Default)]
    struct Server {
        errors: Vec<(&'static str, u16)>,
        requests: RefCell<Vec<String>>,
    }

    impl ReportTarget for Server {
        fn send(&self, request: ClientRequest) -> Result<(), ClientError> {
            let name = request.path.trim_start_matches("/api/v1/namespaces/default/");
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let named =
                body["metadata"]["name"].as_str().map_or_else(|| name.to_owned(), |own| format!("{name}/{own}"));
            let line = format!("{} {named}", request.method);
            self.requests.borrow_mut().push(line.clone());
            match self.errors.iter().find(|(text, _)| line.contains(text)) {
                Some((_, 0)) => Err(ClientError::Late { server: "s".into() }),
                Some((_, code)) => Err(ClientError::from(Status::from_answer(*code, b""))),
                None => Ok(()),
            }
        }
    }

    /// A node with two pods that run and one that has ended.
    struct Scene {
        api: Api,
        reports: NodeReports,
    }

    impl Scene {
        fn new() -> Scene {
            let facts = Arc::new(JoinedFacts::new("n", NodeTraits::default(), Box::new(|_| {})));
            let mut api = Api::in_memory("kubelet").unwrap();
            let mut copy = stored_copy::begin(api.store_mut().write(Duration::from_secs(1)).unwrap());
            stored_copy::ensure_namespace(&mut copy, "default").unwrap();
            for name in ["a", "b", "ended"] {
                let mut pod = Object(json!({
                    "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
                    "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "i"}]}, "status": {"phase": "Pending"},
                }));
                let key = Key::new(PODS, "default", name);
                if name == "ended" {
                    pod.set(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
                    facts.pods.put(&pod, &key, true);
                    continue;
                }
                facts.pods.put(&pod, &key, true);
                pod.set(&["status", "phase"], "Running");
                copy.put_over(&kinds::pod::KIND, &key, pod, None).unwrap();
            }
            copy.commit().unwrap();
            let revision = api.store().read().unwrap().revision().unwrap();
            Scene { api, reports: NodeReports::new(facts, revision) }
        }

        fn record_event(&mut self, name: &str) {
            let event = Object(json!({
                "metadata": {"name": name, "namespace": "default"}, "reason": "Started", "type": "Normal", "count": 1,
                "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"}, "source": {"component": "kubelet"},
            }));
            let kind = kinds::by_resource(EVENTS).unwrap();
            self.api.write(false, |txn| create::create(txn, kind, &event, &WriteOptions::default())).unwrap();
        }

        /// Sends once; returns the requests, and the code of the error.
        fn send(&mut self, errors: &[(&'static str, u16)]) -> (Vec<String>, Option<u16>) {
            let server = Server { errors: errors.to_vec(), requests: RefCell::default() };
            let sent = self.reports.send(self.api.store(), &server);
            let mut requests = server.requests.into_inner();
            requests.sort();
            (requests, sent.err().map(|error| error.code()))
        }
    }

    #[test]
    fn refused_report_does_not_keep_others_from_the_server() {
        let mut scene = Scene::new();
        ["x", "y"].iter().for_each(|name| scene.record_event(name));
        let all = ["DELETE pods/ended", "PATCH pods/a/status", "PATCH pods/b/status", "POST events/x", "POST events/y"];
        let refused = [("pods/a/", 500), ("pods/b/", 429), ("ended", 503), ("events/x", 500)];
        let (requests, code) = scene.send(&refused);
        assert_eq!(requests, all);
        assert!(matches!(code, Some(500 | 429)), "the first refusal");
        let (requests, code) = scene.send(&[]);
        assert_eq!(
            (&requests[..], code),
            (&all.map(String::from)[..4], None),
            "those that were refused are sent again"
        );
        assert_eq!(scene.send(&[]), (Vec::new(), None));
    }

    #[test]
    fn server_that_does_not_answer_is_asked_once() {
        let mut scene = Scene::new();
        let (requests, code) = scene.send(&[("", 0)]);
        assert_eq!((requests.len(), code), (1, Some(0)));
        assert_eq!(scene.send(&[]).0.len(), 3);
    }

    #[test]
    fn events_wait_while_the_server_limits_them() {
        let mut scene = Scene::new();
        scene.send(&[]);
        ["x", "y", "z"].iter().for_each(|name| scene.record_event(name));
        assert_eq!(scene.send(&[("events", 429)]).0, ["POST events/x"]);
        assert_eq!(scene.send(&[("events/y", 500)]).0, ["POST events/x", "POST events/y", "POST events/z"]);
        assert_eq!(scene.send(&[]).0, ["POST events/y"]);
    }

    #[test]
    fn event_that_the_server_has_already_is_updated() {
        let mut scene = Scene::new();
        scene.send(&[]);
        scene.record_event("x");
        assert_eq!(scene.send(&[("POST events", 409)]).0, ["PATCH events/x", "POST events/x"]);
    }
}
