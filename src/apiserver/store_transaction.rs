//! The store as the API server's pipeline sees it: a transaction that writes, and a view that only reads.
//!
//! Knows: how stored texts become objects, which leases and APIServices are computed and not stored, and the kinds and allocations that a
//! transaction has changed. Never: decides when to commit; [`super::Api`] does. Start reading at [`WriteTxn`].

use super::ApiResult;
use super::aggregation::API_SERVICES;
use super::authorization::cache::AccessCache;
use super::authorization::check_verb;
use super::env::Env;
use super::local_api_services;
use super::outside::{Asked, AuditAnnotation, WebhookQuestion, WriteInputs};
use super::rules::addresses::{ServiceAllocation, ServiceAllocations};
use super::rules::freed_space::frees_space;
use super::rules::node_leases::{self, LEASES, NAMESPACE};
use super::seen_objects::SeenObjects;
use super::stored::{is_stored, object_of, objects_of, part_of, refused};
use super::transaction::{ObjectVisitor, PageReader, Transaction};
use super::user::User;
use crate::kinds::KindRegistry;
use crate::kinds::custom::{DEFINITIONS, Uncompiled};
use crate::object::sparse::ReadPart;
use crate::object::{Key, Object, Resource, Status, Time};
use crate::store::meta_keys::{HEARD, NETWORK};
use crate::store::{CommitError, ParkedTxn, Store, StoreRead, Txn};
use crate::world::access::index::AccessIndex;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

/// Patterns that are compiled ahead of one write at most: all of them are still kept when it is made again.
const MAX_DEFERRED: usize = 1000;

/// Objects per page of a list: few, so that their memory is used again for the next page.
const PAGE: usize = 100;

pub(super) fn network_of(read: &dyn StoreRead) -> u8 {
    read.meta(NETWORK).ok().flatten().and_then(|text| text.parse().ok()).unwrap_or(77)
}

/// A snapshot as a write transaction that refuses to write.
pub(super) struct ReadView<'a> {
    /// The user whose rights each verb, and each read, has to check.
    pub acting_user: Option<&'a User>,
    /// Whether rights are being checked, for which everything may be read.
    pub is_checking: Cell<bool>,
    pub snapshot: &'a dyn StoreRead,
    pub kinds: &'a KindRegistry,
    pub access_cache: &'a AccessCache,
    pub now: Time,
}

/// A store's transaction as a write transaction.
pub(super) struct WriteTxn<'a> {
    /// The user who writes; `None` for the administrator.
    pub user: Option<Arc<User>>,
    /// Whether each verb has to check the user's rights.
    pub checks_access: bool,
    pub txn: Txn<'a>,
    pub actor: String,
    pub now: Time,
    pub env: &'a mut Env,
    pub network: u8,
    pub wrote: bool,
    /// The cluster's registry. It takes over the kinds of this transaction's definitions at the commit.
    pub committed_kinds: KindRegistry,
    /// The kinds as this transaction has them: with a layer for each definition that it wrote.
    pub kinds: KindRegistry,
    /// Allocations of Services, once they are needed.
    pub holdings: Option<Rc<ServiceAllocations>>,
    /// Whether a write that needs patterns that are not compiled is made again.
    pub defers: bool,
    /// The patterns that the last write needed and that are not compiled.
    pub uncompiled: Vec<Uncompiled>,
    /// Roles and bindings as they were committed last.
    pub access_cache: AccessCache,
    /// The answers and the numbers of the current write's attempts.
    pub inputs: WriteInputs,
    /// Whether webhooks can be called.
    pub asks: bool,
    /// Objects that each of several writes would read again.
    pub seen: SeenObjects,
}

/// A write transaction between two of its writes, without the parts that belong to the writing thread.
pub(super) struct OpenWrite {
    txn: ParkedTxn,
    network: u8,
    wrote: bool,
    committed_kinds: KindRegistry,
    kinds: KindRegistry,
}

impl OpenWrite {
    /// Continues the transaction.
    pub fn resume<'a>(self, store: &'a mut Store, actor: &str, env: &'a mut Env) -> WriteTxn<'a> {
        let OpenWrite { txn, network, wrote, committed_kinds, kinds } = self;
        let write = WriteTxn::with_network(store.resume(txn), actor, env, network, kinds);
        WriteTxn { wrote, committed_kinds, ..write }
    }
}

/// The resource of nodes.
const NODES: Resource = Resource("nodes");

/// The resource whose objects hold addresses.
const SERVICES: Resource = Resource("services");

impl<'a> WriteTxn<'a> {
    /// Makes the first state of a transaction.
    pub fn new(txn: Txn<'a>, actor: &str, env: &'a mut Env, kinds: &KindRegistry) -> WriteTxn<'a> {
        let network = network_of(&txn);
        WriteTxn::with_network(txn, actor, env, network, kinds.clone())
    }

    fn with_network(txn: Txn<'a>, actor: &str, env: &'a mut Env, network: u8, kinds: KindRegistry) -> WriteTxn<'a> {
        WriteTxn {
            user: None,
            checks_access: false,
            txn,
            actor: actor.into(),
            now: env.now(),
            env,
            network,
            wrote: false,
            committed_kinds: kinds.clone(),
            kinds,
            holdings: None,
            defers: false,
            uncompiled: Vec::new(),
            access_cache: AccessCache::default(),
            inputs: WriteInputs::default(),
            asks: false,
            seen: SeenObjects::default(),
        }
    }

    /// Leaves the transaction open for [`OpenWrite::resume`].
    pub fn park(self) -> OpenWrite {
        let WriteTxn { txn, network, wrote, committed_kinds, kinds, .. } = self;
        OpenWrite { txn: txn.park(), network, wrote, committed_kinds, kinds }
    }

    /// Runs one write as a part of the transaction: kept when it succeeds and is not a dry run, undone otherwise. Returns the patterns that
    /// it needed and that are not compiled, too: with some of them it is undone.
    pub fn make_part<T, E>(
        &mut self,
        dry_run: bool,
        write: impl FnOnce(&mut dyn Transaction) -> Result<T, E>,
    ) -> ApiResult<(Result<T, E>, Vec<Uncompiled>)> {
        self.inputs.begin();
        let part = self.txn.begin_part().map_err(|error| refused(&error))?;
        let (kinds_before, wrote_before) = (self.kinds.clone(), self.wrote);
        let outcome = write(self);
        let missing = std::mem::take(&mut self.uncompiled);
        let is_kept = outcome.is_ok() && !dry_run && missing.is_empty() && !self.inputs.is_missing();
        self.txn.end_part(part, is_kept).map_err(|error| refused(&error))?;
        if !is_kept {
            self.seen.clear();
            self.holdings = None;
            self.kinds = kinds_before;
            self.wrote = wrote_before;
        }
        Ok((outcome, missing))
    }

    /// Lets the transaction use the store's reserve when the disk is full and this write frees space.
    fn note_freed_space(&mut self, key: &Key, object: &Object) -> ApiResult<()> {
        if self.txn.is_short_of_space() {
            let before = self.txn.get(key).map_err(|error| refused(&error))?.as_ref().map(object_of).transpose()?;
            if frees_space(before.as_ref(), object) {
                self.txn.allow_reserve();
            }
        }
        Ok(())
    }

    /// Updates the caches after a write of the transaction: the objects that were read, and the allocations.
    fn note_written(&mut self, key: &Key, held: Option<ServiceAllocation>) {
        self.seen.forget(key);
        let Some(holdings) = self.holdings.as_mut().filter(|_| key.resource == SERVICES).map(Rc::make_mut) else {
            return;
        };
        match held {
            Some(held) => holdings.put(key, held),
            None => holdings.remove(key),
        }
    }

    /// Commits the writes. The cluster's registry then takes over the definitions among them.
    pub fn commit(self) -> Result<(), CommitError> {
        if self.wrote {
            self.txn.commit()?;
            self.committed_kinds.merge(&self.kinds);
        }
        Ok(())
    }

    /// Like [`WriteTxn::commit`], but a power loss may undo it until the store's next sync.
    pub fn commit_unsynced(self) -> Result<(), CommitError> {
        self.txn.commit_unsynced()?;
        self.committed_kinds.merge(&self.kinds);
        Ok(())
    }
}

impl ReadView<'_> {
    /// Refuses a read to the user as whom a command acts.
    fn check_read(&self, verb: &str, key: &Key) -> ApiResult<()> {
        if self.acting_user.is_none() || self.is_checking.replace(true) {
            return Ok(());
        }
        let checked = check_verb(self, verb, "", key);
        self.is_checking.set(false);
        checked
    }

    fn last_heartbeat(&self) -> Option<Time> {
        self.snapshot.meta(HEARD).ok().flatten()?.parse().ok()
    }

    /// The leases of nodes that are not kept as objects.
    fn node_leases(&self) -> ApiResult<Vec<Object>> {
        let Some(heard) = self.last_heartbeat() else { return Ok(Vec::new()) };
        let nodes = self.list(NODES, None)?;
        Ok(nodes.iter().filter_map(|node| node_leases::lease_for_node(node, heard)).collect())
    }
}

impl Transaction for ReadView<'_> {
    fn get(&self, key: &Key) -> ApiResult<Option<Object>> {
        self.check_read("get", key)?;
        let mut kept = self.snapshot.get(key).map_err(|error| refused(&error))?.as_ref().map(object_of).transpose()?;
        if key.resource == NODES
            && let Some((node, heard)) = kept.as_mut().zip(self.last_heartbeat())
        {
            node_leases::refresh(node, heard);
        }
        if key.resource == API_SERVICES {
            return local_api_services::find(self.kinds, &key.name, kept, || creation_time(self.snapshot));
        }
        match self.last_heartbeat() {
            Some(heard) if kept.is_none() && key.resource == LEASES && &*key.namespace == NAMESPACE => {
                let node = self.get(&Key::new(NODES, "", &key.name))?;
                Ok(node.and_then(|node| node_leases::lease_for_node(&node, heard)))
            }
            _ => Ok(kept),
        }
    }

    fn list(&self, resource: Resource, namespace: Option<&str>) -> ApiResult<Vec<Object>> {
        self.check_read("list", &Key::new(resource, namespace.unwrap_or_default(), ""))?;
        let mut objects = objects_of(self.snapshot.list(resource, namespace).map_err(|error| refused(&error))?)?;
        if resource == NODES
            && let Some(heard) = self.last_heartbeat()
        {
            objects.iter_mut().for_each(|node| node_leases::refresh(node, heard));
        }
        if resource == API_SERVICES {
            local_api_services::add_local(self.kinds, &creation_time(self.snapshot)?, &mut objects);
        }
        if resource == LEASES && namespace.is_none_or(|namespace| namespace == NAMESPACE) {
            let kept =
                |lease: &Object| objects.iter().any(|one| (one.namespace(), one.name()) == (NAMESPACE, lease.name()));
            let computed: Vec<Object> = self.node_leases()?.into_iter().filter(|lease| !kept(lease)).collect();
            objects.extend(computed);
            objects.sort_by(|one, other| (one.namespace(), one.name()).cmp(&(other.namespace(), other.name())));
        }
        Ok(objects)
    }

    fn read_pages(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        part: &ReadPart,
        reader: &mut PageReader<'_>,
    ) -> ApiResult<()> {
        if !is_stored(resource) {
            return reader(self.list(resource, namespace)?);
        }
        self.check_read("list", &Key::new(resource, namespace.unwrap_or_default(), ""))?;
        let (mut page, mut outcome) = (Vec::with_capacity(PAGE), Ok(()));
        let mut visit = |stored| {
            outcome = part_of(&stored, part).and_then(|object| {
                page.push(object);
                if page.len() < PAGE { Ok(()) } else { reader(std::mem::replace(&mut page, Vec::with_capacity(PAGE))) }
            });
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.snapshot.scan(resource, namespace, &mut visit).map_err(|error| refused(&error))?;
        outcome?;
        reader(page)
    }

    fn list_names(&self, resource: Resource, namespace: Option<&str>) -> ApiResult<Vec<(String, String)>> {
        if !is_stored(resource) {
            let place = |object: Object| (object.namespace().to_owned(), object.name().to_owned());
            return Ok(self.list(resource, namespace)?.into_iter().map(place).collect());
        }
        self.check_read("list", &Key::new(resource, namespace.unwrap_or_default(), ""))?;
        self.snapshot.names(resource, namespace).map_err(|error| refused(&error))
    }

    fn exists(&self, key: &Key) -> ApiResult<bool> {
        // Reveals no more than an error would, so no right is needed.
        let was_checking = self.is_checking.replace(true);
        let found = self.get(key);
        self.is_checking.set(was_checking);
        Ok(found?.is_some())
    }

    fn put(&mut self, key: &Key, _object: Object) -> ApiResult<Arc<Object>> {
        Err(read_only(key))
    }

    fn remove(&mut self, key: &Key, _last: Object) -> ApiResult<Arc<Object>> {
        Err(read_only(key))
    }

    fn now(&self) -> Time {
        self.now
    }

    fn random(&mut self) -> u64 {
        0
    }

    fn acting_user(&self) -> Option<&User> {
        self.acting_user
    }

    fn network(&self) -> u8 {
        network_of(self.snapshot)
    }

    fn access_index(&self) -> ApiResult<Arc<AccessIndex>> {
        self.access_cache.find(self.snapshot, true)
    }

    fn pods_need(&self, node: &str, namespace: &str, needed: (&'static str, &str)) -> ApiResult<bool> {
        self.access_cache.pods.need(self.snapshot, node, namespace, needed)
    }

    fn kinds(&self) -> &KindRegistry {
        self.kinds
    }
}

/// The moment at which the cluster was made.
fn creation_time(read: &dyn StoreRead) -> ApiResult<String> {
    let first = read.get(&local_api_services::default_namespace_key()).map_err(|error| refused(&error))?;
    let first = first.as_ref().map(object_of).transpose()?;
    let since = first.as_ref().and_then(|first| first.text(&["metadata", "creationTimestamp"]));
    Ok(since.unwrap_or_default().to_owned())
}

fn read_only(key: &Key) -> Status {
    Status::bug(format_args!("{key}: a write in a read-only look"))
}

impl Transaction for WriteTxn<'_> {
    fn get(&self, key: &Key) -> ApiResult<Option<Object>> {
        if self.seen.is_absent(key) {
            return Ok(None);
        }
        let kept = self.txn.get(key).map_err(|error| refused(&error))?.as_ref().map(object_of).transpose()?;
        if key.resource == API_SERVICES {
            return local_api_services::find(&self.kinds, &key.name, kept, || creation_time(&self.txn));
        }
        if kept.is_none() {
            self.seen.remember_absent(key);
        }
        Ok(kept)
    }

    fn get_shared(&self, key: &Key) -> ApiResult<Option<Arc<Object>>> {
        if let Some(seen) = self.seen.find(key) {
            return Ok(Some(seen));
        }
        let found = self.get(key)?.map(Arc::new);
        found.iter().for_each(|object| self.seen.remember(key, object));
        Ok(found)
    }

    fn exists(&self, key: &Key) -> ApiResult<bool> {
        if key.resource == API_SERVICES {
            return self.get(key).map(|found| found.is_some());
        }
        if self.seen.is_absent(key) {
            return Ok(false);
        }
        // The text is not decoded.
        let is_there = self.seen.find(key).is_some() || self.txn.get(key).map_err(|error| refused(&error))?.is_some();
        if !is_there {
            self.seen.remember_absent(key);
        }
        Ok(is_there)
    }

    fn list(&self, resource: Resource, namespace: Option<&str>) -> ApiResult<Vec<Object>> {
        if let Some(seen) = self.seen.find_list(resource, namespace) {
            return Ok(seen);
        }
        let found = objects_of(self.txn.list(resource, namespace).map_err(|error| refused(&error))?)?;
        self.seen.remember_list(resource, namespace, &found);
        Ok(found)
    }

    fn holdings(&mut self) -> ApiResult<Rc<ServiceAllocations>> {
        if self.holdings.is_none() {
            let mut holdings = ServiceAllocations::default();
            for stored in self.txn.list(SERVICES, None).map_err(|error| refused(&error))? {
                let held = serde_json::from_str(&stored.body);
                holdings.put(&stored.key, held.unwrap_or_default());
            }
            self.holdings = Some(Rc::new(holdings));
        }
        Ok(self.holdings.clone().unwrap_or_default())
    }

    fn put(&mut self, key: &Key, mut object: Object) -> ApiResult<Arc<Object>> {
        self.note_freed_space(key, &object)?;
        let body = |revision: u64| object.text_at(revision);
        let revision = self.txn.put(key, object.uid(), body, &self.actor, self.now).map_err(|error| refused(&error))?;
        object.set(&["metadata", "resourceVersion"], revision.to_string());
        self.wrote = true;
        if key.resource == DEFINITIONS {
            self.kinds = self.kinds.layer();
            self.kinds.register(&object.0.to_string());
        }
        self.note_written(key, (key.resource == SERVICES).then(|| ServiceAllocation::from_service(&object)));
        Ok(Arc::new(object))
    }

    fn remove(&mut self, key: &Key, mut last: Object) -> ApiResult<Arc<Object>> {
        self.txn.allow_reserve();
        let body = |revision: u64| last.text_at(revision);
        let revision = self.txn.remove(key, body, &self.actor, self.now).map_err(|error| refused(&error))?;
        last.set(&["metadata", "resourceVersion"], revision.to_string());
        self.wrote = true;
        if key.resource == DEFINITIONS {
            self.kinds = self.kinds.layer();
            self.kinds.unregister(&key.name);
        }
        self.note_written(key, None);
        Ok(Arc::new(last))
    }

    fn defer_compilation(&mut self, needed: Vec<Uncompiled>) -> bool {
        let is_deferred = self.defers && needed.len() <= MAX_DEFERRED;
        self.uncompiled = if is_deferred { needed } else { Vec::new() };
        is_deferred
    }

    fn visit(&self, resource: Resource, visitor: &mut ObjectVisitor<'_>) -> ApiResult<()> {
        if self.seen.find_list(resource, None).is_some_and(|list| list.is_empty()) {
            return Ok(());
        }
        let found = self.txn.list(resource, None).map_err(|error| refused(&error))?;
        if found.is_empty() {
            self.seen.remember_list(resource, None, &[]);
        }
        for stored in found {
            visitor(&stored.uid, stored.revision, &|| object_of(&stored))?;
        }
        Ok(())
    }

    fn ask(&mut self, question: WebhookQuestion) -> Asked {
        if self.asks { self.inputs.ask(question, self.now) } else { Asked::Unavailable }
    }

    fn annotate(&mut self, annotation: AuditAnnotation) {
        self.inputs.annotate(annotation);
    }

    fn now(&self) -> Time {
        self.inputs.time(self.now)
    }

    fn random(&mut self) -> u64 {
        self.inputs.number(|| self.env.random())
    }

    fn user(&self) -> Option<&User> {
        self.user.as_deref()
    }

    fn request_user(&self) -> Arc<User> {
        self.user.clone().unwrap_or_else(|| Arc::new(User::administrator()))
    }

    fn acting_user(&self) -> Option<&User> {
        self.user.as_deref().filter(|_| self.checks_access)
    }

    fn network(&self) -> u8 {
        self.network
    }

    fn access_index(&self) -> ApiResult<Arc<AccessIndex>> {
        self.access_cache.find(&self.txn, false)
    }

    fn kinds(&self) -> &KindRegistry {
        &self.kinds
    }
}
