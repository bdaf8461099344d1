//! The Node and the Lease of a joined node at its server: made when it joins, kept up by heartbeats.
//!
//! Knows: another machine must not take the node's name while the first one lives. Never: changes labels, taints or the spec of a Node
//! that is there. Start reading at [`register`], then [`Heartbeat`].

use super::merge::without_heartbeats;
use super::node_context::NodeContext;
use crate::client::{ApiClient, ClientError, ClientRequest, PatchFormat};
use crate::object::time::Shift;
use crate::object::{Object, Time, time};
use crate::reconcile::node::{LINK, MACHINE};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of heartbeats, and the time for which one counts (kubelet: nodeLeaseDurationSeconds).
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i64 = 40;
/// Interval at which the whole status is reported although nothing has changed.
const REPORT_INTERVAL: Duration = Duration::from_secs(300);
/// Time limit of a heartbeat's requests.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval between checks for changes and for the end of the node.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the path of a Node.
pub fn node_path(node: &str) -> String {
    format!("/api/v1/nodes/{node}")
}

fn lease_path(node: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
}

/// Registers the node, or takes up the Node of an earlier run. `machine`: the identity of this machine and state. Returns the Node as the
/// server has it.
pub fn register(client: &ApiClient, node: &Object, machine: &str) -> Result<Object, String> {
    let name = node.name();
    let get = || client.send(ClientRequest::get(node_path(name))).and_then(|reply| reply.json());
    match get() {
        Ok(found) => take_up(client, Object(found), machine).and_then(|found| announce_link(client, found, node)),
        Err(error) if error.code() == 404 => {
            let mut node = node.clone();
            node.set(&["metadata", "annotations", MACHINE], machine);
            let made = client.send(ClientRequest::post("/api/v1/nodes", &node.0)).and_then(|reply| reply.json());
            made.map(Object).map_err(|error| format!("cannot register the node {name}: {error}"))
        }
        Err(error) => Err(format!("cannot read the node {name}: {error}")),
    }
}

/// Tells the server where the machine accepts links, if the existing Node has another address.
fn announce_link(client: &ApiClient, found: Object, node: &Object) -> Result<Object, String> {
    let (known, link) = (found.annotation(LINK), node.annotation(LINK));
    if known == link {
        return Ok(found);
    }
    let patch = json!({"metadata": {"annotations": {LINK: link}}});
    let told = client.send(ClientRequest::patch(node_path(found.name()), PatchFormat::Merge, &patch));
    let told = told.and_then(|reply| reply.json());
    told.map(Object).map_err(|error| format!("cannot tell where node {} accepts links: {error}", found.name()))
}

/// Takes over an existing Node, unless another machine has it.
fn take_up(client: &ApiClient, found: Object, machine: &str) -> Result<Object, String> {
    let name = found.name();
    match found.annotation(MACHINE) {
        Some(owner) if owner == machine => return Ok(found),
        _ if !is_alive(client, name)? => {}
        None => {
            return Err(format!(
                "there is a node {name} already, and it is alive: choose another name with --node-name, or remove it first (kubectl \
                 delete node {name})"
            ));
        }
        Some(_) => {
            return Err(format!(
                "there is a node {name} already, of another machine that is alive: choose another name with --node-name, or remove that \
                 node first (kubectl delete node {name})"
            ));
        }
    }
    let patch = json!({"metadata": {"annotations": {MACHINE: machine}}});
    let taken = client.send(ClientRequest::patch(node_path(name), PatchFormat::Merge, &patch));
    let taken = taken.and_then(|reply| reply.json());
    taken.map(Object).map_err(|error| format!("cannot take over the node {name}, whose machine is away: {error}"))
}

/// Whether a node has sent a heartbeat a short time ago. Fails when the server does not say.
fn is_alive(client: &ApiClient, node: &str) -> Result<bool, String> {
    let lease = match client.send(ClientRequest::get(lease_path(node))).and_then(|reply| reply.json()) {
        Ok(lease) => lease,
        Err(error) if error.code() == 404 => return Ok(false),
        Err(error) => return Err(format!("cannot read the Lease of the node {node}, whose name is taken: {error}")),
    };
    let renewed = time::from_json(&lease["spec"]["renewTime"]);
    Ok(renewed.is_some_and(|renewed| renewed.later(SignedDuration::from_secs(LEASE_SECONDS)) > Time::now()))
}

/// The heartbeats of a node.
pub struct Heartbeat {
    context: Arc<NodeContext>,
    /// Uid of the Node.
    uid: String,
    /// Reads the Node's status in the node's own state.
    read_status: Box<dyn FnMut() -> Option<Value> + Send>,
    reported: Option<(Value, Instant)>,
    /// The problem of the heartbeats that was logged.
    problem: Option<String>,
    /// The reason why the server refuses the status, and the time of the next attempt.
    status_problem: Option<(String, Instant)>,
}

impl Heartbeat {
    /// Sends none yet.
    pub fn new(
        context: Arc<NodeContext>,
        uid: &str,
        read_status: Box<dyn FnMut() -> Option<Value> + Send>,
    ) -> Heartbeat {
        Heartbeat { context, uid: uid.to_owned(), read_status, reported: None, problem: None, status_problem: None }
    }

    /// Sends heartbeats until the node stops, and the status whenever it has changed.
    pub fn run(mut self) {
        let mut last_beat: Option<Instant> = None;
        while !self.context.is_stopping() {
            if last_beat.is_none_or(|at| at.elapsed() >= HEARTBEAT_INTERVAL) {
                last_beat = Some(Instant::now());
                let beat = self.beat();
                self.note(beat);
            }
            self.report_status(Instant::now());
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    /// Logs that the server cannot be reached, and that it can be reached again.
    fn note(&mut self, outcome: Result<(), ClientError>) {
        match outcome {
            Ok(()) => {
                if self.problem.take().is_some() {
                    self.context.log("the server answers again");
                }
            }
            Err(error) => {
                let text = error.to_string();
                if self.problem.as_ref() != Some(&text) {
                    self.context.log(&format!("cannot send the heartbeat (pods keep running): {text}"));
                    self.problem = Some(text);
                }
            }
        }
    }

    /// Renews the Lease, or creates it.
    fn beat(&self) -> Result<(), ClientError> {
        let (client, node) = (self.context.client(), &self.context.node);
        let spec = json!({
            "holderIdentity": node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": time::micro(Time::now()),
        });
        let patch = ClientRequest::patch(lease_path(node), PatchFormat::Merge, &json!({"spec": spec}));
        match client.send(patch.within(HEARTBEAT_TIMEOUT)) {
            Err(error) if error.code() == 404 => {
                let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": self.uid});
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": node, "namespace": "kube-node-lease", "ownerReferences": [owner]}, "spec": spec,
                });
                let path = lease_path(node);
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                client.send(ClientRequest::post(folder, &lease).within(HEARTBEAT_TIMEOUT)).map(drop)
            }
            sent => sent.map(drop),
        }
    }

    /// Reports the Node's status if it has changed, or if it was not reported for a while.
    fn report_status(&mut self, now: Instant) {
        if self.status_problem.as_ref().is_some_and(|(_, next)| now < *next) {
            return;
        }
        let Some(status) = (self.read_status)() else { return };
        let content = without_heartbeats(&status);
        let is_known = |(known, at): &(Value, Instant)| *known == content && now.duration_since(*at) < REPORT_INTERVAL;
        if self.reported.as_ref().is_some_and(is_known) {
            return;
        }
        let path = format!("{}/status", node_path(&self.context.node));
        let patch = ClientRequest::patch(path, PatchFormat::Strategic, &json!({"status": status}));
        match self.context.client().send(patch.within(HEARTBEAT_TIMEOUT)) {
            Ok(_) => {
                self.reported = Some((content, now));
                self.status_problem = None;
            }
            // The heartbeats already report that the server does not answer.
            Err(error) if error.status().is_none() && error.is_temporary() => {}
            Err(error) => self.note_status_problem(error.to_string(), now),
        }
    }

    /// Logs why the server refuses the status, once, and delays the next attempt.
    fn note_status_problem(&mut self, text: String, now: Instant) {
        if self.status_problem.as_ref().is_none_or(|(known, _)| *known != text) {
            self.context.log(&format!("the server refuses the status of node {}: {text}", self.context.node));
        }
        self.status_problem = Some((text, now + HEARTBEAT_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestServer;
    use super::*;

    #[test]
    fn refused_status_is_logged_and_sent_again_after_a_while() {
        let server = TestServer::start(|method, path| match (method, path) {
            ("PATCH", "/api/v1/nodes/n/status") => (422, Value::Null),
            _ => (200, json!({})),
        });
        let folder = tempfile::tempdir().unwrap();
        let (context, lines) = server.context(folder.path());
        let mut heartbeat = Heartbeat::new(context, "uid", Box::new(|| Some(json!({"phase": "x"}))));
        let start = Instant::now();
        for (passed, sent) in [
            (Duration::ZERO, 1),
            (HEARTBEAT_INTERVAL - CHECK_INTERVAL, 1),
            (HEARTBEAT_INTERVAL, 2),
            (HEARTBEAT_INTERVAL + CHECK_INTERVAL, 2),
        ] {
            heartbeat.report_status(start + passed);
            assert_eq!(server.count("/status"), sent, "after {passed:?}");
        }
        let lines = lines.lock().unwrap();
        assert!(lines.len() == 1 && lines[0].starts_with("the server refuses the status of node n: "), "{lines:?}");
    }

    #[test]
    fn node_whose_lease_cannot_be_read_is_not_taken_over() {
        let node = json!({"metadata": {"name": "n", "annotations": {MACHINE: "other"}}});
        let take = |lease: (u16, Value)| {
            let found = node.clone();
            let server = TestServer::start(move |method, path| match (method, path) {
                ("GET", path) if path.contains("/leases/") => lease.clone(),
                _ => (200, found.clone()),
            });
            register(&server.client(), &Object(node.clone()), "own").map(|_| server.count("/leases/"))
        };
        for code in [403, 500] {
            let error = take((code, Value::Null)).unwrap_err();
            assert!(error.starts_with("cannot read the Lease of the node n"), "{error}");
        }
        let renewed = |time: Time| (200, json!({"spec": {"renewTime": time::micro(time)}}));
        assert!(take(renewed(Time::now())).unwrap_err().contains("of another machine that is alive"));
        assert_eq!(take(renewed(Time::UNIX_EPOCH)), Ok(1));
        assert_eq!(take((404, Value::Null)), Ok(1));
    }
}
