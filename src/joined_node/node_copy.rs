//! The copy of the server's objects that a node needs: the collections that it watches, and how changes are written to the node's state.
//!
//! Knows: which collections a node reads, and which of them a server may refuse; a new pod is stored after the objects that it needs.
//! Never: sends a request to the server. Start reading at [`NodeCopy::apply`].

use super::collection_changes::{self, CollectionChange, LINKED_NODES, LINKED_PODS, NODES, PODS};
use super::node_context::JoinedFacts;
use super::references::{PodReference, find_references};
use super::stored_copy::{self, ensure_namespace};
use crate::apiserver::stored_copy::CopyTxn;
use crate::client::{ClientError, ReflectedChange, ReflectedContent, Reflectors};
use crate::object::Object;
use crate::store::{Store, StoreError};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Collections that a node reads as a whole: the name of each reflector is the resource.
const COLLECTIONS: [(&str, &str); 6] = [
    ("services", "/api/v1/services"),
    (SLICES, "/apis/discovery.k8s.io/v1/endpointslices"),
    (POLICIES, "/apis/networking.k8s.io/v1/networkpolicies"),
    ("namespaces", "/api/v1/namespaces"),
    ("runtimeclasses.node.k8s.io", "/apis/node.k8s.io/v1/runtimeclasses"),
    ("images.kloop.dev", "/apis/kloop.dev/v1alpha1/images"),
];
/// The name of the collection by which Services are routed.
const SLICES: &str = "endpointslices.discovery.k8s.io";
/// The name of the collection of NetworkPolicies: pods of other machines are copied once there is one.
const POLICIES: &str = "networkpolicies.networking.k8s.io";
/// Time that a new pod waits for the objects that it needs; then the kubelet reports the missing objects.
const NEEDED_OBJECTS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the write lock.
const LOCK: Duration = Duration::from_secs(30);
/// Maximum number of Secrets and ConfigMaps that are watched one by one.
const MAX_REFERENCES: usize = 5000;

/// Watches of collections at the server.
pub trait CollectionWatches {
    /// Starts a watch, unless one of this name runs. `path` may have selectors in its query.
    fn start(&mut self, name: &str, path: &str);

    /// Ends a watch. Changes that it has reported before may still arrive.
    fn stop(&mut self, name: &str);

    /// The names of the running watches.
    fn running(&self) -> Vec<String>;
}

impl CollectionWatches for Reflectors {
    fn start(&mut self, name: &str, path: &str) {
        Reflectors::start(self, name, path);
    }

    fn stop(&mut self, name: &str) {
        Reflectors::stop(self, name);
    }

    fn running(&self) -> Vec<String> {
        self.names().map(str::to_owned).collect()
    }
}

/// The name of a collection, and its change.
type NamedChange = (Arc<str>, CollectionChange);

/// The copy of the server's objects.
pub struct NodeCopy {
    facts: Arc<JoinedFacts>,
    /// Pods that wait for the objects that they need, since then.
    waiting: HashMap<String, (Object, Instant)>,
    /// The needed objects by pod uid.
    references: HashMap<String, BTreeSet<PodReference>>,
    /// Collections that were read, or refused.
    settled: HashSet<String>,
    /// Collections that cannot be read.
    problems: HashMap<String, ReflectorProblem>,
}

impl NodeCopy {
    /// Creates a copy without objects.
    pub fn new(facts: Arc<JoinedFacts>) -> NodeCopy {
        let (waiting, references, settled, problems) = Default::default();
        NodeCopy { facts, waiting, references, settled, problems }
    }

    /// Starts the watches of all collections that the node needs.
    pub fn start_watches(&mut self, watches: &mut dyn CollectionWatches) {
        let node = &self.facts.node;
        watches.start(PODS, &format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"));
        watches.start(NODES, &format!("/api/v1/nodes?fieldSelector=metadata.name%3D{node}"));
        if self.facts.traits.is_linked {
            watches.start(LINKED_NODES, "/api/v1/nodes");
        }
        for (name, path) in COLLECTIONS {
            watches.start(name, path);
        }
        self.start_references(watches);
    }

    /// Restarts all watches: each collection is listed again.
    pub fn start_again(&mut self, watches: &mut dyn CollectionWatches) {
        self.settled.clear();
        self.start_watches(watches);
    }

    fn start_references(&mut self, watches: &mut dyn CollectionWatches) {
        let needed: BTreeSet<&PodReference> = self.references.values().flatten().take(MAX_REFERENCES).collect();
        let names: HashSet<String> = needed.iter().map(|needed| reflector_name(needed)).collect();
        let is_single = |name: &str| name.contains('/');
        let outdated = watches.running().into_iter().filter(|name| is_single(name) && !names.contains(name));
        for name in outdated {
            watches.stop(&name);
            self.settled.remove(&name);
        }
        for needed in needed {
            let PodReference { resource, namespace, name } = needed;
            let path = format!("/api/v1/namespaces/{namespace}/{resource}?fieldSelector=metadata.name%3D{name}");
            watches.start(&reflector_name(needed), &path);
        }
    }

    /// Writes changes to the node's state, in one transaction. `fetch_tokens` is called with each new pod before it is written.
    pub fn apply(
        &mut self,
        store: &mut Store,
        watches: &mut dyn CollectionWatches,
        changes: Vec<ReflectedChange>,
        fetch_tokens: &dyn Fn(&Object),
    ) -> Result<(), String> {
        let mut writes = Vec::new();
        for ReflectedChange { source, content } in changes {
            match content {
                ReflectedContent::Failed(error) => self.note_problem(&source, &error),
                ReflectedContent::Replaced(items) => {
                    self.problems.remove(&*source);
                    self.settled.insert(source.to_string());
                    writes.push((source, CollectionChange::All(items.into_iter().map(Object).collect())));
                }
                ReflectedContent::Line(line) if line.event == "DELETED" => {
                    writes.push((source, CollectionChange::Gone(Object(line.object))));
                }
                ReflectedContent::Line(line) => writes.push((source, CollectionChange::Put(Object(line.object)))),
            }
        }
        if writes.is_empty() && self.waiting.is_empty() {
            return Ok(());
        }
        self.note_policies(watches, &writes);
        self.note_pods(&writes, fetch_tokens);
        self.start_references(watches);
        self.write(store, writes)
    }

    /// Starts to copy the pods of other machines when there is a NetworkPolicy, which selects pods by their labels.
    fn note_policies(&mut self, watches: &mut dyn CollectionWatches, writes: &[NamedChange]) {
        let has_policy = writes.iter().any(|(source, change)| **source == *POLICIES && change.brings_any());
        if has_policy && self.facts.traits.is_linked {
            let node = &self.facts.node;
            watches.start(LINKED_PODS, &format!("/api/v1/pods?fieldSelector=spec.nodeName!%3D{node}"));
        }
    }

    /// Notes the objects that new pods need, and fetches their tokens.
    fn note_pods(&mut self, writes: &[NamedChange], fetch_tokens: &dyn Fn(&Object)) {
        for (_, change) in writes.iter().filter(|(source, _)| **source == *PODS) {
            match change {
                CollectionChange::All(pods) => {
                    let there: HashSet<&str> = pods.iter().map(Object::uid).collect();
                    let known = self.facts.pods.uids().into_iter().chain(self.references.keys().cloned());
                    let gone: Vec<String> = known.filter(|uid| !there.contains(uid.as_str())).collect();
                    gone.iter().for_each(|uid| self.forget_pod(uid));
                    pods.iter().for_each(|pod| self.note_pod(pod, fetch_tokens));
                }
                CollectionChange::Put(pod) => self.note_pod(pod, fetch_tokens),
                CollectionChange::Gone(pod) => self.forget_pod(pod.uid()),
            }
        }
    }

    fn forget_pod(&mut self, uid: &str) {
        self.references.remove(uid);
        self.waiting.remove(uid);
        self.facts.pods.remove(uid);
    }

    fn note_pod(&mut self, pod: &Object, fetch_tokens: &dyn Fn(&Object)) {
        let is_new = !self.references.contains_key(pod.uid());
        let needed = find_references(pod.namespace(), &pod.0["spec"]);
        self.references.insert(pod.uid().to_owned(), needed);
        if is_new {
            self.waiting.insert(pod.uid().to_owned(), (pod.clone(), Instant::now()));
            fetch_tokens(pod);
        } else if let Some((waiting, _)) = self.waiting.get_mut(pod.uid()) {
            *waiting = pod.clone();
        }
    }

    /// Whether the objects that a pod needs have been read.
    fn is_ready(&self, uid: &str, since: Instant) -> bool {
        let needed = self.references.get(uid).into_iter().flatten();
        since.elapsed() >= NEEDED_OBJECTS_TIMEOUT
            || needed.into_iter().all(|needed| self.settled.contains(&reflector_name(needed)))
    }

    fn write(&mut self, store: &mut Store, writes: Vec<NamedChange>) -> Result<(), String> {
        let ready: Vec<String> = self
            .waiting
            .iter()
            .filter(|(uid, (_, since))| self.is_ready(uid, *since))
            .map(|(uid, _)| uid.clone())
            .collect();
        let ready: Vec<Object> = ready.iter().filter_map(|uid| self.waiting.remove(uid)).map(|(pod, _)| pod).collect();
        let facts = self.facts.clone();
        let txn = store.write(LOCK).map_err(|error| error.to_string())?;
        let mut copy = stored_copy::begin(txn);
        let written = writes.into_iter().try_for_each(|(source, change)| {
            let is_held = |object: &Object| *source == *PODS && self.waiting.contains_key(object.uid());
            collection_changes::write(&mut copy, &facts, &source, change, is_held)
        });
        written.and_then(|()| self.write_ready(&mut copy, ready)).map_err(|error| error.to_string())?;
        copy.commit().map_err(|error| error.to_string())
    }

    /// Writes the pods whose objects exist.
    fn write_ready(&self, copy: &mut CopyTxn<'_>, pods: Vec<Object>) -> Result<(), StoreError> {
        for pod in pods {
            if !self.settled.contains("namespaces") {
                ensure_namespace(copy, pod.namespace())?;
            }
            collection_changes::write(copy, &self.facts, PODS, CollectionChange::Put(pod), |_| false)?;
        }
        Ok(())
    }

    /// Logs why a collection cannot be read, once. A server that refuses one that is not needed everywhere is not a problem.
    fn note_problem(&mut self, source: &str, error: &ClientError) {
        // The heartbeats already report that the server does not answer.
        if error.is_temporary() {
            return;
        }
        let is_refused = matches!(error.code(), 403 | 404);
        let problem = self.problems.entry(source.to_owned()).or_insert_with(ReflectorProblem::new);
        if is_refused && source.contains('/') && problem.since.elapsed() < NEEDED_OBJECTS_TIMEOUT {
            // Kubernetes' node authorizer permits the objects of new pods with a delay.
            return;
        }
        if is_refused {
            self.settled.insert(source.to_owned());
        }
        let text = describe_problem(source, error);
        if problem.text != text {
            problem.text.clone_from(&text);
            if !text.is_empty() {
                self.facts.log(&text);
            }
        }
    }
}

/// The reason why a reflector cannot read its collection.
struct ReflectorProblem {
    since: Instant,
    /// The text that was logged last.
    text: String,
}

impl ReflectorProblem {
    fn new() -> ReflectorProblem {
        ReflectorProblem { since: Instant::now(), text: String::new() }
    }
}

/// Returns the message for users about a collection that cannot be read; empty if it is not needed.
fn describe_problem(source: &str, error: &ClientError) -> String {
    match error.code() {
        403 if source == SLICES => "the server lets no node read EndpointSlices: Services lead nowhere from the pods of this node\n\
             hint: kubectl create clusterrolebinding kloop:node-proxier --clusterrole=system:node-proxier --group=system:nodes \
             lets all nodes read them"
            .to_owned(),
        // A kubelet reads neither these, nor does every server have them.
        403 | 404 if COLLECTIONS.iter().any(|(name, _)| *name == source) => String::new(),
        _ => format!("cannot watch {source}: {error}"),
    }
}

fn reflector_name(needed: &PodReference) -> String {
    format!("{}/{}/{}", needed.resource, needed.namespace, needed.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use crate::object::Resource;

    #[test]
    fn collections_have_the_paths_of_their_kinds() {
        for (name, path) in COLLECTIONS {
            let kind = kinds::by_resource(Resource(name)).expect(name);
            let root = if kind.resource.group().is_empty() { "api" } else { "apis" };
            assert_eq!(path, format!("/{root}/{}/{}", kind.api_version(), kind.resource.plural()));
        }
    }
}
