//! The state of the cluster at one revision, from which loops compute their plans, and the type of these plans.
//!
//! Knows: the rows of all objects with the few fields that loops search by ([`Row`]), what the machine last reported ([`Facts`]),
//! the time, and the random seed. [`Plan`] contains everything that a loop may do.
//! Never: decodes an object unless asked, never reads a clock, never changes on its own. Its owner puts rows and facts in; `reconcile` owns
//! the World that loops plan by.
//! Start reading at [`World`], then [`plan`].

pub mod access;
pub mod autoscaler;
pub mod control;
mod derived_cache;
pub mod devices;
mod edited_row;
pub mod facts;
mod followed_objects;
mod generated_name;
pub mod ingress_routes;
pub mod joined_names;
pub mod key_set;
mod label_index;
mod lease_heartbeats;
pub mod limits;
pub mod loop_memory;
mod node_cache;
pub mod node_links;
pub mod orders;
pub mod plan;
pub mod pod_affinity_index;
pub mod pod_term;
pub mod policy;
pub mod pressure;
mod recording;
mod rejected_writes;
pub mod report;
pub mod resources;
pub mod row;
mod row_body;
mod row_metadata;
mod row_part;
pub mod scheduler_profile;
mod scheduling_spec;
mod staged;
pub mod start;
pub mod storage;
pub mod taint;
pub mod terms;
pub mod topology_counts;
pub mod usage;
pub mod volume;
pub mod workload;

pub use control::{AppliedReport, Loop, RowChange, WaitFilter};
pub use facts::{
    AttemptEnd, ContainerFacts, ContainerState, Facts, NodeFacts, OrderedStop, PodFacts, Pods, ProbeFacts, ProbeKind,
    ProbeResult, SourceDigests, StaticPod,
};
pub use generated_name::{NAME_LETTERS, free_name};
use key_set::{KeySet, drop_from};
pub use label_index::{SERVICE_NAME, SLICES};
use lease_heartbeats::LeaseHeartbeats;
pub use loop_memory::{LoopMemory, Memory};
pub use node_cache::NodeSlot;
pub use orders::Orders;
pub use plan::{AppliedFields, Effect, EventType, Plan, PlannedEvent, ProbeRun, Propagation, Write, WriteVerb};
pub use pod_affinity_index::{AffinityStrength, AffinityTerms};
pub use pod_term::PodTerm;
pub use report::Report;
pub use resources::{NodeFields, NodeLoad, ResourceRequests};
pub use row::{AffinityKind, IndexFields, Phase, PodFields, Row};
pub use row_part::SEEN_WITH_EACH_POD;
pub use scheduling_spec::scheduling_spec;
pub use start::{ContainerUser, ProcessNamespace, ProcessRights, RestartDecision, SimulatedScript, Start};
pub use taint::Taint;
pub use topology_counts::{CountedPods, TopologyCounts, TopologyDomains};
pub use workload::{ReplicaStatus, WorkloadFields};

use crate::kinds::KindRegistry;
use crate::kinds::shared::certificate_request::CertificateRequest;
use crate::object::{Key, Resource, Str, Time};
use hashbrown::HashMap;
use jiff::SignedDuration;
use scheduler_profile::SchedulerProfile;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One resource's rows, by namespace and name.
type Rows = BTreeMap<(Str, Str), Arc<Row>>;

/// Maximum number of processes and threads of one pod, unless a setting gives another.
pub const DEFAULT_MAX_PIDS: i64 = 4096;

/// Settings of the cluster that plans follow.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// N of the 127.N.0.0/16 that the cluster's addresses are taken from: pods 127.N.1.0 to 127.N.127.255,
    /// Services 127.N.128.0 to 127.N.191.255, load balancers above, and Ingresses at 127.N.255.1.
    pub network: u8,
    /// Certificate of the authority of the API server, PEM; empty for none.
    pub root_ca: Str,
    /// Address of an API server for pods, to which the Service `kubernetes` leads while no other server is advertised.
    pub pod_api: Option<Str>,
    /// Signs the tokens in Secrets; `None` in simulations.
    pub claim_signer: Option<ClaimSigner>,
    /// Signs certificates; `None` in simulations.
    pub certificate_signer: Option<CertificateSigner>,
    /// First pause of the restart backoff in seconds (Kubernetes: 10).
    pub backoff_seconds: i64,
    /// Longest pause of the restart backoff in seconds (Kubernetes: 300).
    pub backoff_cap_seconds: i64,
    /// Time that a container without a readiness probe runs before it is ready; zero in simulations.
    pub ready_after: SignedDuration,
    /// Whether the control plane is ending with the processes on this machine: running ones are stopped, none is started.
    pub closing: bool,
    /// Whether this machine can give a container a private view of files.
    pub private_files: bool,
    /// Maximum number of processes and threads of one pod; `None` for no limit.
    pub pids_per_pod: Option<i64>,
    /// Thresholds at which a node of this machine evicts pods.
    pub eviction: pressure::EvictionThresholds,
    /// Bytes of memory that this machine has.
    pub memory_bytes: i64,
    /// Why limits of pods are not enforced on this machine; `None` when they are.
    pub limits_unavailable: Option<Str>,
    /// The profiles of the scheduler, by the names that pods ask for it.
    pub profiles: Arc<[SchedulerProfile]>,
    /// The user and the group that this control plane, and so its processes, run as.
    pub runs_as: (u32, u32),
    /// The lowest port that processes of pods may bind on this machine.
    pub lowest_port: u16,
    /// Content of this machine's `/etc/resolv.conf`.
    pub resolv_conf: Str,
    /// Whether pods have their own addresses on this machine; otherwise they share its network, as with `hostNetwork`.
    pub pod_network: bool,
    /// Whether connections of pods on the machine's network to Services are directed: on a node of another Kubernetes, the addresses of
    /// Services lead nowhere.
    pub host_uses_services: bool,
}

/// Signs claims. It gives the same token for equal claims, so that plans stay functions of the World.
#[derive(Clone)]
pub struct ClaimSigner(Arc<SignClaims>);

type SignClaims = dyn Fn(&Value) -> Option<String> + Send + Sync;

impl ClaimSigner {
    /// Signs with this function.
    pub fn new(sign: impl Fn(&Value) -> Option<String> + Send + Sync + 'static) -> ClaimSigner {
        ClaimSigner(Arc::new(sign))
    }

    /// Returns the token with these claims.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        self.0(claims)
    }
}

impl std::fmt::Debug for ClaimSigner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ClaimSigner")
    }
}

/// A certificate that is to be signed.
pub struct CertificateOrder<'a> {
    /// The subject, the names and the key.
    pub request: &'a CertificateRequest,
    /// `client auth`, `digital signature`.
    pub usages: &'a [String],
    /// Lifetime in seconds, from now on.
    pub seconds: i64,
    /// The time.
    pub now: Time,
}

/// Signs certificates with the authority of the cluster, as PEM; or says why it cannot.
#[derive(Clone)]
pub struct CertificateSigner(Arc<SignCertificate>);

type SignCertificate = dyn Fn(&CertificateOrder<'_>) -> Result<String, String> + Send + Sync;

impl CertificateSigner {
    /// Signs with this function.
    pub fn new(
        sign: impl Fn(&CertificateOrder<'_>) -> Result<String, String> + Send + Sync + 'static,
    ) -> CertificateSigner {
        CertificateSigner(Arc::new(sign))
    }

    /// Returns the certificate.
    pub fn sign(&self, order: &CertificateOrder<'_>) -> Result<String, String> {
        self.0(order)
    }
}

impl std::fmt::Debug for CertificateSigner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("CertificateSigner")
    }
}

impl Default for ClusterSettings {
    fn default() -> ClusterSettings {
        ClusterSettings {
            network: 77,
            root_ca: Str::default(),
            pod_api: None,
            claim_signer: None,
            certificate_signer: None,
            backoff_seconds: 10,
            backoff_cap_seconds: 300,
            ready_after: SignedDuration::ZERO,
            closing: false,
            private_files: true,
            pids_per_pod: Some(DEFAULT_MAX_PIDS),
            eviction: pressure::EvictionThresholds::default(),
            memory_bytes: 0,
            limits_unavailable: None,
            profiles: Arc::new([SchedulerProfile::default()]),
            runs_as: (0, 0),
            lowest_port: 0,
            resolv_conf: "".into(),
            pod_network: true,
            host_uses_services: false,
        }
    }
}

/// Everything at one revision.
pub struct World {
    /// The store's revision that these rows are the state of.
    pub revision: u64,
    /// The current time, as plans see it.
    pub now: Time,
    /// Changes with every tick; the only source of randomness for a plan.
    pub seed: u64,
    /// Last reports of the machine.
    pub facts: Facts,
    /// The last orders to the machine about the network and watched files.
    pub orders: Orders,
    /// The memory of loops.
    pub loop_memory: LoopMemory,
    /// The cluster's own settings.
    pub settings: ClusterSettings,
    /// The kinds of the objects.
    pub kinds: KindRegistry,
    rows: BTreeMap<Resource, Rows>,
    /// The same rows by key, for fast lookups.
    by_key: HashMap<Key, Arc<Row>>,
    /// Whether the texts of pods at rest are kept as differences to those of siblings.
    packs_texts: bool,
    /// Dependents by the uid of an owner.
    dependents: HashMap<Str, KeySet>,
    /// Dependents that block the deletion of their owner, by the uid of the owner.
    blocking_dependents: HashMap<Str, KeySet>,
    /// Number of rows that were looked up by their key.
    #[cfg(test)]
    pub lookups: std::cell::Cell<usize>,
    /// The nodes that are not Ready.
    unready: BTreeSet<Key>,
    /// Pods by the node they are bound to; unbound ones under the empty name.
    by_node: HashMap<Str, KeySet>,
    /// Pods by their address, without ended ones, which have released theirs.
    by_address: HashMap<Str, KeySet>,
    /// Pods without a node by the node that they were promised.
    pods_nominated_to: HashMap<Str, KeySet>,
    /// Affinity terms of pods that are on nodes.
    affinity_terms: pod_affinity_index::PodAffinityIndex,
    /// Rows by label and without a controller, for selectors.
    select: label_index::LabelIndex,
    /// The nodes, each with the sum of its pods' requests.
    node_cache: node_cache::NodeCache,
    /// Counts of pods per topology domain, computed on demand.
    counts_cache: RefCell<topology_counts::TopologyCountsCache>,
    /// Cached results of loops.
    memory: derived_cache::TypedMemory,
    /// Live uids, for the garbage collector.
    uids: HashMap<Str, Key>,
    /// Heartbeats of nodes, as their Leases bring them.
    lease_heartbeats: LeaseHeartbeats,
    /// Staged keys, in order.
    staged: Vec<Key>,
    /// The row that each write of the plan being staged replaced, newest last.
    undo: Vec<(Key, Option<Arc<Row>>)>,
    /// Staged rows as they were before the stage was opened.
    originals: HashMap<Key, Option<Arc<Row>>>,
}

impl World {
    /// An empty World.
    pub fn new(now: Time) -> World {
        World {
            revision: 0,
            now,
            seed: 0,
            facts: Facts::default(),
            orders: Orders::default(),
            loop_memory: LoopMemory::default(),
            settings: ClusterSettings::default(),
            kinds: KindRegistry::default(),
            rows: BTreeMap::new(),
            by_key: HashMap::new(),
            packs_texts: false,
            dependents: HashMap::new(),
            blocking_dependents: HashMap::new(),
            #[cfg(test)]
            lookups: std::cell::Cell::default(),
            unready: BTreeSet::new(),
            by_node: HashMap::new(),
            node_cache: node_cache::NodeCache::default(),
            counts_cache: RefCell::default(),
            by_address: HashMap::new(),
            pods_nominated_to: HashMap::new(),
            affinity_terms: pod_affinity_index::PodAffinityIndex::default(),
            select: label_index::LabelIndex::default(),
            memory: derived_cache::TypedMemory::default(),
            uids: HashMap::new(),
            lease_heartbeats: LeaseHeartbeats::default(),
            staged: Vec::new(),
            undo: Vec::new(),
            originals: HashMap::new(),
        }
    }

    /// The row of one object.
    pub fn get(&self, key: &Key) -> Option<&Arc<Row>> {
        #[cfg(test)]
        self.lookups.update(|count| count + 1);
        self.by_key.get(key)
    }

    /// The row of one object, by the parts of its key.
    pub fn find(&self, resource: &'static str, namespace: &str, name: &str) -> Option<&Arc<Row>> {
        self.by_key.get(&Key::new(Resource(resource), namespace, name))
    }

    /// Rows of a resource in every namespace, ordered by namespace and name.
    pub fn list(&self, resource: &'static str) -> impl DoubleEndedIterator<Item = &Arc<Row>> {
        self.rows.get(&Resource(resource)).into_iter().flat_map(BTreeMap::values)
    }

    /// Number of objects of a resource.
    pub fn count_of(&self, resource: &'static str) -> usize {
        self.rows.get(&Resource(resource)).map_or(0, BTreeMap::len)
    }

    /// Rows of a resource in one namespace, ordered by name.
    pub fn list_in<'a>(&'a self, resource: &'static str, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Row>> {
        let from = (Str::from(namespace), Str::from(""));
        let rows = self.rows.get(&Resource(resource));
        rows.into_iter().flat_map(move |rows| {
            rows.range(from.clone()..).take_while(move |((at, _), _)| &**at == namespace).map(|(_, row)| row)
        })
    }

    /// Everything in one namespace, ordered by resource and name.
    pub fn content_of<'a>(&'a self, namespace: &'a str) -> Vec<&'a Arc<Row>> {
        self.rows.keys().flat_map(|resource| self.list_in(resource.0, namespace)).collect()
    }

    /// Every row, ordered by resource, namespace and name.
    pub fn all_rows(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.rows.values().flat_map(BTreeMap::values)
    }

    /// The nodes that are not Ready.
    pub fn unready_nodes(&self) -> impl Iterator<Item = &Key> {
        self.unready.iter()
    }

    /// Rows that name this uid as an owner, in order of their keys.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = &Arc<Row>> {
        self.dependents.get(uid).into_iter().flat_map(KeySet::iter).filter_map(|key| self.get(key))
    }

    /// Returns the keys of the rows that name this uid as an owner and block its deletion; `None` when there are none.
    pub fn blocking_dependents(&self, uid: &str) -> Option<&KeySet> {
        self.blocking_dependents.get(uid)
    }

    /// Returns rows of one resource whose controlling owner has this uid.
    pub fn controlled<'a>(&'a self, resource: &'static str, uid: &'a str) -> impl Iterator<Item = &'a Arc<Row>> {
        self.dependents(uid)
            .filter(move |row| row.key.resource == resource && row.controller().is_some_and(|owner| owner.uid == uid))
    }

    /// Pods bound to a node; those bound to none for the empty name.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Row>> {
        self.by_node.get(node).into_iter().flat_map(KeySet::iter).filter_map(|key| self.get(key))
    }

    /// Pods that have this address and have not ended for good.
    pub fn pods_at(&self, address: &str) -> impl Iterator<Item = &Arc<Row>> {
        self.by_address.get(address).into_iter().flat_map(KeySet::iter).filter_map(|key| self.get(key))
    }

    /// Number of pod addresses in use.
    pub fn addresses(&self) -> usize {
        self.by_address.len()
    }

    /// The unbound pods that are nominated for a node (`status.nominatedNodeName`).
    pub fn pods_nominated_to(&self, node: &str) -> impl Iterator<Item = &Arc<Row>> {
        self.pods_nominated_to.get(node).into_iter().flat_map(KeySet::iter).filter_map(|key| self.get(key))
    }

    /// The object that has this uid, if it lives.
    pub fn by_uid(&self, uid: &str) -> Option<&Arc<Row>> {
        self.get(self.uids.get(uid)?)
    }

    /// Puts a committed object by its text, replacing the row of its key.
    pub fn put(&mut self, key: Key, text: Str) {
        let mut row = Row::from_text(key.clone(), text);
        self.lease_heartbeats.note(&row, self.now);
        self.share_parts(&mut row);
        if let Some(base) = self.base_of(&row).cloned() {
            row.pack(&base);
        }
        self.replace(key, Some(Arc::new(row)));
    }

    /// Shares the parts of a new row with one of the same owner.
    fn share_parts(&self, row: &mut Row) {
        if let Some(sibling) = self.siblings(row).next() {
            row.share(sibling);
        }
    }

    /// Returns the text of a sibling to which that of a row at rest can be a difference. Only a few siblings are asked.
    fn base_of(&self, row: &Row) -> Option<&Str> {
        const ASKED: usize = 4;
        let is_packed = self.packs_texts && row.is_at_rest();
        if is_packed { self.siblings(row).take(ASKED).find_map(|sibling| sibling.base()) } else { None }
    }

    /// From now on, keeps the texts of pods at rest as differences to those of siblings: for a World that lives long.
    pub fn pack_texts(&mut self) {
        self.packs_texts = true;
    }

    /// Returns the other rows of a row's kind that have its first owner.
    fn siblings<'a>(&'a self, row: &Row) -> impl Iterator<Item = &'a Arc<Row>> + use<'a> {
        let (own, resource) = (row.key.clone(), row.key.resource);
        let dependents = row.owners.first().and_then(|owner| self.dependents.get(owner.uid.as_str()));
        let keys = dependents.into_iter().flat_map(move |keys| keys.list(resource));
        keys.filter(move |key| **key != own).filter_map(|key| self.get(key))
    }

    /// Returns the time, by this machine's clock, at which the last renewal of a node's Lease was seen.
    pub fn lease_heartbeat(&self, node: &str) -> Option<Time> {
        self.lease_heartbeats.last_seen(node)
    }

    /// Takes an object away.
    pub fn remove(&mut self, key: &Key) {
        self.lease_heartbeats.forget(key);
        self.replace(key.clone(), None);
    }

    /// Remembers a removed node until its loop has reported the removal.
    fn note_removed_node(&mut self, key: &Key, node: Option<&Row>) {
        let removed = &mut self.loop_memory.removed_nodes;
        if let Some(node) = node.filter(|_| removed.len() < loop_memory::MAX_REMOVED_NODES) {
            removed.insert(key.clone(), node.uid.clone());
        }
    }

    fn replace(&mut self, key: Key, row: Option<Arc<Row>>) -> Option<Arc<Row>> {
        let place = (key.namespace.clone(), key.name.clone());
        let rows = self.rows.entry(key.resource).or_default();
        let old = match &row {
            Some(row) => {
                rows.insert(place, row.clone());
                self.by_key.insert(key.clone(), row.clone())
            }
            None => {
                rows.remove(&place);
                self.loop_memory.refusals.forget_object(&key);
                self.by_key.remove(&key)
            }
        };
        if let Some(old) = &old {
            self.unindex(old, row.as_deref());
        }
        if let Some(row) = &row {
            self.index(row, old.as_deref());
        }
        match (key.resource.0, &row) {
            ("nodes", Some(row)) => {
                let promised = self.pods_nominated_to.get(&row.key.name).map_or(0, KeySet::len);
                self.node_cache.put(row, promised);
                self.loop_memory.removed_nodes.remove(&key);
            }
            ("nodes", None) => {
                self.node_cache.remove(&key.name);
                self.note_removed_node(&key, old.as_deref());
            }
            ("namespaces", _) => self.drop_domain_counts(),
            _ => {}
        }
        old
    }

    /// Updates the indexes for a row that replaces another one. Entries that both share stay as they are.
    fn index(&mut self, row: &Row, before: Option<&Row>) {
        let known = |owners: &Row| owners.owners == row.owners;
        for owner in row.owners.iter().filter(|_| !before.is_some_and(known)) {
            self.dependents.entry(owner.uid.as_str().into()).or_default().insert(row.key.clone());
            if owner.block_owner_deletion {
                self.blocking_dependents.entry(owner.uid.as_str().into()).or_default().insert(row.key.clone());
            }
        }
        if row.node().is_some_and(|node| node.ready != Some(true)) {
            self.unready.insert(row.key.clone());
        }
        if let Some(pod) = row.pod() {
            let node = pod.node.clone().unwrap_or_else(|| "".into());
            let lives = !pod.phase.is_terminal();
            if lives && pod.node.is_some() {
                self.node_cache.update_load(&node, |load| load.add(&pod.requests));
                self.affinity_terms.add(row, pod);
                self.update_domain_counts(row, 1);
            }
            if before.is_none_or(|before| node_of(before) != node_of(row)) {
                self.by_node.entry(node).or_default().insert(row.key.clone());
            }
            if let Some(nominated) = pod.nominated.as_ref().filter(|_| lives && pod.node.is_none()) {
                let promised = self.pods_nominated_to.entry(nominated.clone()).or_default();
                promised.insert(row.key.clone());
                self.node_cache.set_nominated_count(nominated, promised.len());
            }
            if let Some(address) = pod.address() {
                self.by_address.entry(address.clone()).or_default().insert(row.key.clone());
            }
        }
        self.select.add(row, before);
        if before.is_none_or(|before| before.uid != row.uid) {
            self.uids.insert(row.uid.clone(), row.key.clone());
        }
    }

    fn unindex(&mut self, row: &Row, after: Option<&Row>) {
        let stays = |owners: &Row| owners.owners == row.owners;
        for owner in row.owners.iter().filter(|_| !after.is_some_and(stays)) {
            drop_from(&mut self.dependents, &*owner.uid, &row.key);
            drop_from(&mut self.blocking_dependents, &*owner.uid, &row.key);
        }
        self.unready.remove(&row.key);
        if let Some(pod) = row.pod() {
            let node = pod.node.as_deref().unwrap_or("");
            if let Some(node) = pod.node.as_ref().filter(|_| !pod.phase.is_terminal()) {
                self.node_cache.update_load(node, |load| load.subtract(&pod.requests));
                self.affinity_terms.drop(row, pod);
                self.update_domain_counts(row, -1);
            }
            if after.is_none_or(|after| node_of(after) != node_of(row)) {
                drop_from(&mut self.by_node, node, &row.key);
            }
            if let Some(nominated) = &pod.nominated {
                drop_from(&mut self.pods_nominated_to, nominated, &row.key);
                self.node_cache
                    .set_nominated_count(nominated, self.pods_nominated_to.get(nominated).map_or(0, KeySet::len));
            }
            if let Some(address) = pod.address() {
                drop_from(&mut self.by_address, address, &row.key);
            }
        }
        self.select.drop(row, after);
        if after.is_none_or(|after| after.uid != row.uid) && self.uids.get(&row.uid) == Some(&row.key) {
            self.uids.remove(&row.uid);
        }
    }
}

/// The node that a pod is bound to, empty for an unbound pod; `None` for an object that is not a pod.
fn node_of(row: &Row) -> Option<&str> {
    row.pod().map(|pod| pod.node.as_deref().unwrap_or(""))
}
