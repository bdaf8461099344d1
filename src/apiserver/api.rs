//! The API server of one command: a store, and each verb as one transaction.

use super::aggregation::documents::ExtensionDocuments;
use super::authorization::cache::AccessCache;
use super::conversion::{self, ConversionQuestion};
use super::encoded_bodies::EncodedBodies;
use super::env::Env;
use super::outside::AuditAnnotation;
use super::outside_client::OutsideClient;
use super::packed_documents::PackedDocuments;
use super::remote::{RemoteCluster, RemoteTransaction};
use super::shared_writer::{SharedWriter, WRITE_LOCK_TIMEOUT};
use super::store_transaction::ReadView;
use super::stored::{not_called, object_of, refused};
use super::stored_bodies::{StoredBodies, StoredBody};
use super::tokens::keys::{self, ClusterKeys};
use super::transaction::Transaction;
use super::user::User;
use super::write_rounds::WriteRounds;
use super::{ApiResult, BOOTSTRAP, bootstrap, custom};
use crate::kinds::custom::{ConversionWebhook, DEFINITIONS};
use crate::kinds::{Kind, KindRegistry};
use crate::object::{Key, Object, Reason, Status};
use crate::store::meta_keys::{AUTHORITY, NETWORK, PROFILES};
use crate::store::{OVERTAKEN, OpenError, OpenMode, Store, StoreError, StoreRead, StoreResult};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of networks to try for a new cluster.
const MAX_NETWORK_ATTEMPTS: usize = 32;

/// A store and the API over it.
pub struct Api {
    store: Store,
    actor: String,
    env: Env,
    /// The user for whom it works; `None` for the administrator.
    user: Option<Arc<User>>,
    /// Whether each verb has to check the user's rights.
    checks_access: bool,
    /// Whether a write has been committed.
    wrote: bool,
    /// The kinds of the cluster, as the last commit that this process knows of left them.
    kinds: KindRegistry,
    /// The keys of the cluster, once they were needed.
    keys: Option<Arc<ClusterKeys>>,
    /// Roles and bindings by user.
    access_cache: AccessCache,
    /// Encodings of stored bodies.
    encoded_bodies: EncodedBodies,
    /// Stored bodies of single objects.
    stored_bodies: StoredBodies,
    /// Long documents of the API.
    packed_documents: PackedDocuments,
    /// Called when a write waits long for the lock.
    on_wait: Option<fn(&StoreError)>,
    /// Makes the writes together with those of other threads.
    writer: Option<Arc<SharedWriter>>,
    /// The documents of extension servers; none without a server.
    extension_documents: ExtensionDocuments,
    /// Calls webhooks. `None` in a copy: its writes are private.
    outside: Option<Arc<OutsideClient>>,
    /// Lets others work while a write waits for a webhook.
    turn: Option<Box<dyn WorkTurn>>,
    /// Answers for the next write of a batch.
    next_rounds: Option<WriteRounds>,
    /// The annotations of the last write for the audit log.
    annotations: Vec<AuditAnnotation>,
    /// The API server that has the objects in place of the store.
    remote: Option<RemoteCluster>,
}

/// The turn of a thread among those that may work at the same time.
pub trait WorkTurn: Send {
    /// Gives the turn back for now. An error refuses the write: too many wait already.
    fn pause(&mut self) -> ApiResult<()>;

    /// Waits for the next turn.
    fn resume(&mut self);
}

impl Api {
    /// Opens the cluster's state, and fills a new one with the objects that every cluster has. `actor` names the writer in the log.
    pub fn open(path: &Path, access: OpenMode, actor: &str) -> std::result::Result<Api, OpenError> {
        let mut api = Api::with_store(Store::open(path, access)?, actor, Env::System);
        api.kinds = custom::kinds_in(path);
        api.outside = Some(Arc::default());
        api.fill_when_new(path)?;
        Ok(api)
    }

    /// Shares a registry of kinds: a definition that one API has read is known to all.
    pub fn with_kinds(mut self, kinds: &KindRegistry) -> Api {
        self.kinds = kinds.clone();
        self
    }

    /// Shares an index of roles and bindings.
    pub fn with_access_cache(mut self, cache: &AccessCache) -> Api {
        self.access_cache = cache.clone();
        self
    }

    /// Shares encodings of stored bodies.
    pub fn with_encoded_bodies(mut self, bodies: &EncodedBodies) -> Api {
        self.encoded_bodies = bodies.clone();
        self
    }

    /// Shares stored bodies of single objects.
    pub fn with_stored_bodies(mut self, bodies: &StoredBodies) -> Api {
        self.stored_bodies = bodies.clone();
        self
    }

    /// Returns one object as it is stored at the latest revision, from memory where its body was read before.
    pub fn get_stored(&self, key: &Key) -> StoreResult<Option<StoredBody>> {
        self.stored_bodies.get(&self.store, key)
    }

    /// Returns the encodings of stored bodies.
    pub fn encoded_bodies(&self) -> &EncodedBodies {
        &self.encoded_bodies
    }

    /// Shares long documents.
    pub fn with_packed_documents(mut self, documents: &PackedDocuments) -> Api {
        self.packed_documents = documents.clone();
        self
    }

    /// Returns the long documents that are kept.
    pub fn packed_documents(&self) -> &PackedDocuments {
        &self.packed_documents
    }

    /// Shares a client that calls webhooks.
    pub fn with_outside_client(mut self, client: &Arc<OutsideClient>) -> Api {
        self.outside = Some(client.clone());
        self
    }

    /// Disables webhooks for later writes. The node must exist before the pods of a webhook can run.
    pub fn disable_webhooks(&mut self) {
        self.outside = None;
    }

    /// Sets the turn of the thread that works with this API.
    pub fn set_turn(&mut self, turn: Option<Box<dyn WorkTurn>>) {
        self.turn = turn;
    }

    /// Names the writer in the log from now on.
    pub fn name_writer(&mut self, actor: &str) {
        self.actor = actor.into();
    }

    /// Shares a writer that makes the API's single writes.
    pub fn with_writer(mut self, writer: &Arc<SharedWriter>) -> Api {
        self.writer = Some(writer.clone());
        self
    }

    fn with_store(store: Store, actor: &str, env: Env) -> Api {
        Api {
            store,
            actor: actor.into(),
            env,
            user: None,
            checks_access: false,
            wrote: false,
            kinds: KindRegistry::default(),
            keys: None,
            access_cache: AccessCache::default(),
            encoded_bodies: EncodedBodies::default(),
            stored_bodies: StoredBodies::default(),
            packed_documents: PackedDocuments::default(),
            on_wait: None,
            writer: None,
            annotations: Vec::new(),
            extension_documents: ExtensionDocuments::default(),
            outside: None,
            turn: None,
            next_rounds: None,
            remote: None,
        }
    }

    /// A cluster in memory.
    pub fn in_memory(actor: &str) -> std::result::Result<Api, OpenError> {
        Api::in_memory_with(actor, Env::System)
    }

    /// A cluster in memory; its time and randomness may be simulated.
    pub fn in_memory_with(actor: &str, env: Env) -> std::result::Result<Api, OpenError> {
        let mut api = Api::with_store(Store::in_memory()?, actor, env);
        api.fill_when_new(Path::new(":memory:"))?;
        Ok(api)
    }

    /// Copies a store into memory. Changes of the copy do not reach the store.
    pub fn copy_of(read: &dyn StoreRead, actor: &str, env: Env) -> ApiResult<Api> {
        let mut api = Api::with_store(Store::in_memory().map_err(open_error_status)?, actor, env);
        let now = api.env.now();
        let wrong = |error: StoreError| refused(&error);
        let mut txn = api.store.write(WRITE_LOCK_TIMEOUT).map_err(wrong)?;
        for setting in [NETWORK, PROFILES, AUTHORITY] {
            if let Some(text) = read.meta(setting).map_err(wrong)? {
                txn.set_meta(setting, &text).map_err(wrong)?;
            }
        }
        for stored in read.list_all().map_err(wrong)? {
            let object = object_of(&stored)?;
            if stored.key.resource == DEFINITIONS {
                api.kinds.register(&stored.body);
            }
            txn.put(&stored.key, object.uid(), |revision| object.text_at(revision), actor, now).map_err(wrong)?;
        }
        txn.commit().map_err(|error| refused(&error.into()))?;
        api.fill_when_new(Path::new(":memory:")).map_err(open_error_status)?;
        Ok(api)
    }

    fn fill_when_new(&mut self, path: &Path) -> std::result::Result<(), OpenError> {
        let is_new = self.read(|snapshot| Ok(snapshot.revision()? == 0)).unwrap_or(false);
        if is_new {
            let actor = std::mem::replace(&mut self.actor, BOOTSTRAP.to_owned());
            let filled = self.choose_network().and_then(|()| self.write(false, bootstrap::fill));
            self.actor = actor;
            filled.map_err(|status| match status.exit_code {
                Some(73) => OpenError::Store(StoreError::Full { path: path.into() }),
                _ => OpenError::Store(StoreError::Io { path: path.into(), what: status.message }),
            })?;
        }
        Ok(())
    }

    /// Clusters side by side on one machine take their addresses out of different networks: 127.2.0.0/16 to 127.251.0.0/16.
    fn choose_network(&mut self) -> ApiResult<()> {
        let mut network = 0;
        // Another running cluster may have the same addresses.
        for _ in 0..MAX_NETWORK_ATTEMPTS {
            network = 2 + self.env.random() % 250;
            if self.env.is_network_free(network as u8) {
                break;
            }
        }
        let mut txn = self.store.write(WRITE_LOCK_TIMEOUT).map_err(|error| refused(&error))?;
        if txn.meta(NETWORK).map_err(|error| refused(&error))?.is_some() {
            return Ok(());
        }
        txn.set_meta(NETWORK, &network.to_string()).map_err(|error| refused(&error))?;
        match txn.commit() {
            // The machine that wrote first has chosen.
            Ok(_) | Err(OVERTAKEN) => Ok(()),
            Err(error) => Err(refused(&error.into())),
        }
    }

    /// Writes from here on for this user; `None` for the administrator.
    pub fn set_user(&mut self, user: Option<Arc<User>>) {
        self.user = user;
    }

    /// Acts from here on as this user: each verb checks the user's rights.
    pub fn act_as(&mut self, user: Arc<User>) {
        self.user = Some(user);
        self.checks_access = true;
    }

    /// Sets a function that is called once for each write that waits for another process for longer than two seconds.
    pub fn on_wait(&mut self, report: fn(&StoreError)) {
        self.on_wait = Some(report);
    }

    /// The clock and the random numbers that this API uses.
    pub fn env(&mut self) -> &mut Env {
        &mut self.env
    }

    /// Takes the annotations that admission has given the last write.
    pub fn take_annotations(&mut self) -> Vec<AuditAnnotation> {
        std::mem::take(&mut self.annotations)
    }

    /// The kinds of the cluster.
    pub fn kinds(&self) -> &KindRegistry {
        &self.kinds
    }

    /// The keys of the cluster; makes them when it has none yet.
    pub fn keys(&mut self) -> ApiResult<Arc<ClusterKeys>> {
        if let Some(keys) = &self.keys {
            return Ok(keys.clone());
        }
        let keys = Arc::new(ClusterKeys::load(&mut self.store)?);
        Ok(self.keys.insert(keys).clone())
    }

    /// Adds the default roles and objects that an older state lacks, as Kubernetes does when it starts.
    pub fn reconcile_defaults(&mut self) -> ApiResult<()> {
        if self.read_view(bootstrap::is_reconciled)? {
            return Ok(());
        }
        let actor = std::mem::replace(&mut self.actor, BOOTSTRAP.to_owned());
        let done = self.write(false, bootstrap::reconcile);
        self.actor = actor;
        done.map(drop)
    }

    /// The administrator's token, which outlives every server; makes it when there is none yet.
    pub fn admin_token(&mut self) -> ApiResult<String> {
        keys::admin_token(&mut self.store)
    }

    /// The store, for the modules above that tail its log.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store, for the tick's own transactions.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Reads in one consistent snapshot.
    pub fn read<T>(&self, read: impl FnOnce(&dyn StoreRead) -> std::result::Result<T, StoreError>) -> ApiResult<T> {
        let snapshot = self.store.read().map_err(|error| refused(&error))?;
        read(&snapshot).map_err(|error| refused(&error))
    }

    /// Reads the state as a [`Transaction`], in one snapshot, without writing.
    pub fn read_view<T>(&self, look: impl FnOnce(&dyn Transaction) -> ApiResult<T>) -> ApiResult<T> {
        self.read_for(self.user.as_deref().filter(|_| self.checks_access), look)
    }

    /// Reads the state with the server's own permissions, such as the configuration of admission.
    pub fn read_as_server<T>(&self, look: impl FnOnce(&dyn Transaction) -> ApiResult<T>) -> ApiResult<T> {
        self.read_for(None, look)
    }

    fn read_for<T>(
        &self,
        acting_user: Option<&User>,
        look: impl FnOnce(&dyn Transaction) -> ApiResult<T>,
    ) -> ApiResult<T> {
        let (mut look, mut seen) = (Some(look), None);
        self.show_view(acting_user, &mut |view| seen = look.take().map(|look| look(view)))?;
        seen.unwrap_or_else(|| Err(not_called()))
    }

    /// [`Api::read_for`] without the type of the result, so that it is compiled once.
    fn show_view(&self, acting_user: Option<&User>, look: &mut dyn FnMut(&dyn Transaction)) -> ApiResult<()> {
        if let Some(cluster) = &self.remote {
            look(&RemoteTransaction { cluster, kinds: &self.kinds, dry_run: true });
            return Ok(());
        }
        let snapshot = self.store.read().map_err(|error| refused(&error))?;
        let (kinds, access_cache) = (&self.kinds, &self.access_cache);
        let is_checking = Cell::new(false);
        look(&ReadView { acting_user, is_checking, snapshot: &snapshot, kinds, access_cache, now: self.env.now() });
        Ok(())
    }

    /// Returns objects that were read in another version; a webhook of their definition converts them.
    pub fn converted(&mut self, kind: &Kind, objects: Vec<Object>, api_version: &str) -> ApiResult<Vec<Object>> {
        let Some(webhook) = conversion::webhook(kind) else { return Ok(objects) };
        let needs = |object: &&Object| object.api_version() != api_version;
        let needed: Vec<Object> = objects.iter().filter(needs).cloned().collect();
        let mut converted = Vec::new();
        for batch in conversion::batches(&needed) {
            converted.extend(self.convert_batch(kind, webhook, batch, api_version)?);
        }
        let mut converted = converted.into_iter();
        let place = |object: Object| if needs(&&object) { converted.next().unwrap_or(object) } else { object };
        Ok(objects.into_iter().map(place).collect())
    }

    fn convert_batch(
        &mut self,
        kind: &Kind,
        webhook: &ConversionWebhook,
        batch: &[Object],
        api_version: &str,
    ) -> ApiResult<Vec<Object>> {
        let asked = self.read_view(|txn| {
            custom::current(txn, kind, api_version)?;
            Ok(ConversionQuestion::new(txn, kind, webhook, batch, api_version))
        })?;
        let Some(client) = self.outside.clone() else { return Ok(batch.to_vec()) };
        let (answer, uid) = match asked.question {
            Err(why) => (Err(why), String::new()),
            Ok(question) => {
                if let Some(turn) = &mut self.turn {
                    turn.pause()?;
                }
                let answered = client.ask(question);
                if let Some(turn) = &mut self.turn {
                    turn.resume();
                }
                answered
            }
        };
        conversion::read_answer(kind, batch, api_version, (&asked.url, &answer, &uid))
    }
}

fn open_error_status(error: OpenError) -> Status {
    Status::new(Reason::InternalError, error.to_string())
}

/// A random number from the system.
pub fn random() -> u64 {
    Env::System.random()
}

mod extensions;
mod server;
mod writing;

pub use server::ServerCopy;
#[cfg(test)]
mod tests;
