//! The copy of what a node needs of its server's objects: which collections it watches, and how changes are written to the node's state.
//!
//! Knows: which collections a node reads, and which of them a server may refuse; a new pod is stored after the objects that it needs.
//! Never: talks to the server. Start reading at [`NodeCopy::apply`].

use super::merge;
use super::node_context::JoinedFacts;
use super::references::{PodReference, find_references};
use super::stored_copy::{self, ensure_namespace, remove_other_nodes, remove_other_pods, remove_others};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::stored_copy::CopyTxn;
use crate::client::{ClientError, ReflectedChange, ReflectedContent, Reflectors};
use crate::kinds;
use crate::object::{Object, Resource};
use crate::store::{Store, StoreError};
use serde_json::Value;
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
    ("images.kloop.dev", "/apis/kloop.dev/v1/images"),
];
/// The name of the collection by which Services are routed.
const SLICES: &str = "endpointslices.discovery.k8s.io";
/// The name of the collection of NetworkPolicies: pods of other machines are copied once there is one.
const POLICIES: &str = "networkpolicies.networking.k8s.io";
/// The name of the reflector of the pods of other machines.
const LINKED_PODS: &str = "linked-pods";
/// The names of the reflectors of the node's pods and of the node.
const PODS: &str = "pods";
const NODES: &str = "nodes";
/// The name of the reflector of all Nodes, of which those of linked machines are kept.
const LINKED_NODES: &str = "linked-nodes";

/// Time that a new pod waits for the objects that it needs; then the kubelet reports what is missing.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit of the write lock.
const LOCK: Duration = Duration::from_secs(30);
/// Maximum number of Secrets and ConfigMaps that are watched one by one.
const MOST_REFERENCES: usize = 5000;

/// Watches of collections at the server.
pub trait CollectionWatches {
    /// Starts a watch, unless one of this name runs. `path` may have selectors in its query.
    fn start(&mut self, name: &str, path: &str);

    /// Ends a watch. Changes that it has reported before may still arrive.
    fn stop(&mut self, name: &str);

    /// The names of those that run.
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

/// Changes of a collection: its name, the objects, and whether they are all that it has.
type CollectionChange = (Arc<str>, Vec<Object>, bool);

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
    /// Has read nothing yet.
    pub fn new(facts: Arc<JoinedFacts>) -> NodeCopy {
        let (waiting, references, settled, problems) = Default::default();
        NodeCopy { facts, waiting, references, settled, problems }
    }

    /// Starts the watches of all collections that the node needs.
    pub fn start_watches(&mut self, watches: &mut dyn CollectionWatches) {
        let node = &self.facts.node;
        watches.start(PODS, &format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"));
        watches.start(NODES, &format!("/api/v1/nodes?fieldSelector=metadata.name%3D{node}"));
        if self.facts.is_linked {
            watches.start(LINKED_NODES, "/api/v1/nodes");
        }
        for (name, path) in COLLECTIONS {
            watches.start(name, path);
        }
        self.start_references(watches);
    }

    /// Starts all watches anew: each collection is read again.
    pub fn start_again(&mut self, watches: &mut dyn CollectionWatches) {
        self.settled.clear();
        self.start_watches(watches);
    }

    fn start_references(&mut self, watches: &mut dyn CollectionWatches) {
        let needed: BTreeSet<&PodReference> = self.references.values().flatten().take(MOST_REFERENCES).collect();
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
                    writes.push((source, items.into_iter().map(Object).collect(), true));
                }
                ReflectedContent::Line(line) if line.event == "DELETED" => {
                    writes.push((source, vec![marked_as_gone(Object(line.object))], false));
                }
                ReflectedContent::Line(line) => writes.push((source, vec![Object(line.object)], false)),
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
    fn note_policies(&mut self, watches: &mut dyn CollectionWatches, writes: &[CollectionChange]) {
        let has_policy = writes.iter().any(|(source, objects, _)| **source == *POLICIES && !objects.is_empty());
        if has_policy && self.facts.is_linked {
            let node = &self.facts.node;
            watches.start(LINKED_PODS, &format!("/api/v1/pods?fieldSelector=spec.nodeName!%3D{node}"));
        }
    }

    /// Notes the objects that new pods need, and fetches their tokens.
    fn note_pods(&mut self, writes: &[CollectionChange], fetch_tokens: &dyn Fn(&Object)) {
        for (_, pods, is_whole) in writes.iter().filter(|(source, ..)| **source == *PODS) {
            if *is_whole {
                let there: HashSet<&str> = pods.iter().map(Object::uid).collect();
                self.references.retain(|uid, _| there.contains(uid.as_str()));
                self.waiting.retain(|uid, _| there.contains(uid.as_str()));
                self.facts.pods.uids().iter().filter(|uid| !there.contains(uid.as_str())).for_each(|uid| {
                    self.facts.pods.remove(uid);
                });
            }
            for pod in pods {
                if is_gone(pod) {
                    self.references.remove(pod.uid());
                    self.waiting.remove(pod.uid());
                    self.facts.pods.remove(pod.uid());
                    continue;
                }
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
        }
    }

    /// Whether the objects that a pod needs have been read.
    fn is_ready(&self, uid: &str, since: Instant) -> bool {
        let needed = self.references.get(uid).into_iter().flatten();
        since.elapsed() >= PATIENCE || needed.into_iter().all(|needed| self.settled.contains(&reflector_name(needed)))
    }

    fn write(&mut self, store: &mut Store, writes: Vec<CollectionChange>) -> Result<(), String> {
        let ready: Vec<String> = self
            .waiting
            .iter()
            .filter(|(uid, (_, since))| self.is_ready(uid, *since))
            .map(|(uid, _)| uid.clone())
            .collect();
        let ready: Vec<Object> = ready.iter().filter_map(|uid| self.waiting.remove(uid)).map(|(pod, _)| pod).collect();
        let held: HashSet<String> = self.waiting.keys().cloned().collect();
        let facts = self.facts.clone();
        let has_namespaces = self.settled.contains("namespaces");
        let txn = store.write(LOCK).map_err(|error| error.to_string())?;
        let mut copy = stored_copy::begin(txn);
        for (source, objects, is_whole) in writes {
            let is_pods = *source == *PODS;
            match &*source {
                // Without its Node the node could not end its pods.
                NODES => {}
                LINKED_NODES if is_whole => {
                    remove_other_nodes(&mut copy, &objects, &facts.node).map_err(|error| error.to_string())?
                }
                PODS if is_whole => remove_other_pods(&mut copy, &objects, |node| node == facts.node)
                    .map_err(|error| error.to_string())?,
                LINKED_PODS if is_whole => remove_other_pods(&mut copy, &objects, |node| node != facts.node)
                    .map_err(|error| error.to_string())?,
                source if is_whole => remove_others(&mut copy, source, &objects).map_err(|error| error.to_string())?,
                _ => {}
            }
            for object in objects.into_iter().filter(|object| !is_pods || !held.contains(object.uid())) {
                write_one(&mut copy, &facts, &source, object).map_err(|error| error.to_string())?;
            }
        }
        for pod in ready {
            if !has_namespaces {
                ensure_namespace(&mut copy, pod.namespace()).map_err(|error| error.to_string())?;
            }
            write_one(&mut copy, &facts, PODS, pod).map_err(|error| error.to_string())?;
        }
        copy.commit().map_err(|error| error.to_string())
    }

    /// Logs why a collection cannot be read, once. A server that refuses one that is not needed everywhere is no problem.
    fn note_problem(&mut self, source: &str, error: &ClientError) {
        // The heartbeats tell that the server is away.
        if error.is_temporary() {
            return;
        }
        let is_refused = matches!(error.code(), 403 | 404);
        let problem = self.problems.entry(source.to_owned()).or_insert_with(ReflectorProblem::new);
        if is_refused && source.contains('/') && problem.since.elapsed() < PATIENCE {
            // The authorizer of Kubernetes learns with a delay what the node's pods need.
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

/// Returns what users have to know about a collection that cannot be read; empty where nothing is missing.
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

/// Field that marks the last state of an object that is gone.
const GONE: &str = "kloop.dev/gone";

fn marked_as_gone(mut object: Object) -> Object {
    object.0[GONE] = Value::Bool(true);
    object
}

fn is_gone(object: &Object) -> bool {
    object.0.get(GONE).is_some()
}

/// Writes one object as the node keeps it.
fn write_one(copy: &mut CopyTxn<'_>, facts: &JoinedFacts, source: &str, object: Object) -> Result<(), StoreError> {
    if source == LINKED_NODES {
        return write_linked_node(copy, facts, object);
    }
    if source == LINKED_PODS {
        return write_linked_pod(copy, object);
    }
    let resource = source.split('/').next().unwrap_or(source);
    let Some(kind) = kinds::by_resource(Resource::intern(resource)) else { return Ok(()) };
    let key = key_of(kind, &object);
    if is_gone(&object) && source == NODES {
        facts.log("the server has removed this node: its pods end there; `kloop node join` registers it again");
        return Ok(());
    }
    if is_gone(&object) {
        return copy.remove(&key, object.uid());
    }
    let local = copy.get(&key)?;
    let merged = match source {
        PODS => {
            let is_local = local.as_ref().is_some_and(|local| local.uid() == object.uid());
            if !facts.pods.put(&object, &key, is_local) {
                return Ok(());
            }
            merge::merge_pod(object, local.as_ref())
        }
        NODES => merge::merge_node(object, local.as_ref(), facts.is_simulated),
        _ => merge::copy(object),
    };
    copy.put_over(kind, &key, merged, local.as_ref())
}

/// Writes the Node of another machine as far as it is about its link.
fn write_linked_node(copy: &mut CopyTxn<'_>, facts: &JoinedFacts, object: Object) -> Result<(), StoreError> {
    let kind = &kinds::node::KIND;
    let key = key_of(kind, &object);
    match merge::copy_linked_node(&object).filter(|_| !is_gone(&object)) {
        _ if *key.name == *facts.node => Ok(()),
        Some(node) => {
            let local = copy.get(&key)?;
            copy.put_over(kind, &key, node, local.as_ref())
        }
        None => copy.remove(&key, object.uid()),
    }
}

/// Writes a pod of another machine as far as NetworkPolicies are about it.
fn write_linked_pod(copy: &mut CopyTxn<'_>, object: Object) -> Result<(), StoreError> {
    let kind = &kinds::pod::KIND;
    let key = key_of(kind, &object);
    if is_gone(&object) {
        return copy.remove(&key, object.uid());
    }
    let local = copy.get(&key)?;
    copy.put_over(kind, &key, merge::copy_linked_pod(&object), local.as_ref())
}
