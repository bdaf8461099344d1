//! A cluster behind the API server of another machine, as a transaction: reads are requests, and writes are sent whole.
//!
//! Knows: objects come in the version of kloop's catalogue, with the server's uids and resourceVersions; custom kinds come from the
//! server's definitions, once a command names a kind that is not built in. Never: defaults, admits or validates a write, since the server
//! does. Start reading at [`RemoteCluster`].

pub mod discovery;
mod requests;

pub use requests::{collection_path, object_path};

use super::forward::{ForwardedAction, ForwardedWrite};
use super::transaction::Transaction;
use super::{ApiResult, WriteReply};
use crate::apiserver::env::Env;
use crate::client::{ApiClient, ClientError, ClientReply, ClientRequest, ClientWatch};
use crate::kinds::{Kind, KindRegistry};
use crate::object::{Key, Object, Reason, Resource, Status, Time};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The path of the definitions of custom kinds.
const DEFINITIONS_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The API server of a cluster, with a cache of a command's reads.
pub struct RemoteCluster {
    client: ApiClient,
    /// Time limit of each request; `None` for the client's own.
    timeout: Option<Duration>,
    /// Objects as they were read or answered last, by which a write that changes nothing is known.
    seen: RefCell<HashMap<Key, Object>>,
}

/// Returns the kinds of a server: the built-in ones, and those that its definitions declare. `report` is called when those cannot be read.
pub fn kinds_of(client: &ApiClient, report: fn(&ClientError)) -> KindRegistry {
    let client = client.clone();
    KindRegistry::with_source(Box::new(move || match client.list(DEFINITIONS_PATH) {
        Ok(listed) => listed.items.iter().map(Value::to_string).collect(),
        Err(error) => {
            // Without the right to read definitions, only built-in kinds are known.
            if error.code() != 403 {
                report(&error);
            }
            Vec::new()
        }
    }))
}

impl RemoteCluster {
    /// Connects with the first request.
    pub fn new(client: ApiClient, timeout: Option<Duration>) -> RemoteCluster {
        RemoteCluster { client, timeout, seen: RefCell::default() }
    }

    /// The client of the server.
    pub fn client(&self) -> &ApiClient {
        &self.client
    }

    /// Makes a request.
    pub fn send(&self, mut request: ClientRequest) -> ApiResult<ClientReply> {
        request.timeout = self.timeout.unwrap_or(request.timeout);
        self.client.send(request).map_err(|error| refusal(&self.client, error))
    }

    fn get(&self, kind: &Kind, key: &Key) -> ApiResult<Option<Object>> {
        let path = object_path(kind, &kind.api_version(), (&key.namespace, &key.name), "");
        let body = match self.send(ClientRequest::get(path)) {
            Ok(reply) => self.parse(&reply)?,
            // The server names the object that it does not have; without a name, it does not have the kind.
            Err(status) if status.reason == Reason::NotFound && !status.name.is_empty() => {
                self.seen.borrow_mut().remove(key);
                return Ok(None);
            }
            Err(status) => return Err(self.unserved(kind, status)),
        };
        let object = Object(body);
        self.seen.borrow_mut().insert(key.clone(), object.clone());
        Ok(Some(object))
    }

    fn list(&self, kind: &Kind, namespace: Option<&str>, query: &[(&str, String)]) -> ApiResult<Vec<Object>> {
        self.list_at_revision(kind, namespace, query).map(|(objects, _)| objects)
    }

    /// Lists objects by the selectors of a request. Also returns the revision of the list, at which a watch can start.
    pub fn list_at_revision(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        query: &[(&str, String)],
    ) -> ApiResult<(Vec<Object>, String)> {
        let path = collection_path(kind, &kind.api_version(), namespace.unwrap_or_default());
        let request = ClientRequest::get(path);
        let request = query.iter().fold(request, |request, (name, value)| request.query(name, value));
        let listed = self.client.list(&request.path).map_err(|error| refusal(&self.client, error));
        let listed = listed.map_err(|status| self.unserved(kind, status))?;
        let item_kind = listed.kind.strip_suffix("List").unwrap_or(kind.kind).to_owned();
        let complete = |item: Value| {
            let mut object = Object(item);
            if object.kind().is_empty() {
                object.set(&["apiVersion"], listed.api_version.as_str());
                object.set(&["kind"], item_kind.as_str());
            }
            object
        };
        Ok((listed.items.into_iter().map(complete).collect(), listed.resource_version))
    }

    /// Starts a watch from a revision on.
    pub fn watch(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        query: &[(&str, String)],
        revision: &str,
    ) -> ApiResult<ClientWatch> {
        let path = collection_path(kind, &kind.api_version(), namespace.unwrap_or_default());
        let request = ClientRequest::get(path).query("resourceVersion", revision).query("allowWatchBookmarks", "true");
        let request = query.iter().fold(request, |request, (name, value)| request.query(name, value));
        let watch = self.client.watch(&request.path).map_err(|error| refusal(&self.client, error));
        watch.map_err(|status| self.unserved(kind, status))
    }

    fn write(&self, write: &ForwardedWrite<'_>, dry_run: bool) -> ApiResult<WriteReply> {
        let reply = self.send(requests::write_request(write, dry_run));
        let reply = reply.map_err(|status| self.unserved(write.kind, status))?;
        let object = Object(self.parse(&reply)?);
        let seen = self.seen.borrow().get(&write.key).cloned();
        if object.kind() == "Status" || matches!(write.action, ForwardedAction::Delete(_)) {
            // A deletion answers with the object while it waits for something, else with a Status.
            let last = if object.kind() == "Status" { seen.unwrap_or(object) } else { object };
            return Ok(WriteReply::changed(last, reply.warnings));
        }
        let changed = seen.as_ref() != Some(&object);
        if write.subresource.is_empty() && !dry_run {
            let key = Key { name: object.name().into(), ..write.key.clone() };
            self.seen.borrow_mut().insert(key, object.clone());
        }
        Ok(WriteReply { object: Arc::new(object), warnings: reply.warnings, changed })
    }

    fn parse(&self, reply: &ClientReply) -> ApiResult<Value> {
        reply.json().map_err(|error| refusal(&self.client, error))
    }

    /// Returns the error for a kind that the server does not have, or not in this version.
    fn unserved(&self, kind: &Kind, status: Status) -> Status {
        if status.reason != Reason::NotFound || !status.name.is_empty() || status.exit_code.is_some() {
            return status;
        }
        let message = format!(
            "error: the server {} doesn't have a resource type {:?} in version {}",
            self.client.config().address,
            kind.resource.plural(),
            kind.api_version()
        );
        own_words(status.reason, message)
    }
}

/// Makes the error of a request that has no result, with kubectl's text.
pub fn refusal(client: &ApiClient, error: ClientError) -> Status {
    match error {
        ClientError::Refused(status) if status.reason == Reason::Unauthorized => {
            let message = format!(
                "error: You must be logged in to the server ({})\nhint: the server {} does not accept the token or certificate of this \
                 user",
                status.message,
                client.config().address
            );
            own_words(Reason::Unauthorized, message)
        }
        ClientError::Refused(status) => *status,
        ClientError::Config(why) => own_words(Reason::BadRequest, format!("error: {why}")),
        other => own_words(Reason::ServiceUnavailable, other.to_string()),
    }
}

/// An error of this command, not of the server; it is printed without a prefix about the server.
fn own_words(reason: Reason, message: String) -> Status {
    Status { exit_code: Some(1), ..Status::new(reason, message) }
}

/// Reads and writes of a [`RemoteCluster`].
pub struct RemoteTransaction<'a> {
    /// The cluster.
    pub cluster: &'a RemoteCluster,
    /// Its kinds.
    pub kinds: &'a KindRegistry,
    /// Whether the server keeps nothing.
    pub dry_run: bool,
}

impl RemoteTransaction<'_> {
    fn kind(&self, resource: Resource) -> ApiResult<&'static Kind> {
        let missing = || Status::unknown_resource();
        self.kinds.by_resource(resource).ok_or_else(missing)
    }
}

impl Transaction for RemoteTransaction<'_> {
    fn get(&self, key: &Key) -> ApiResult<Option<Object>> {
        self.cluster.get(self.kind(key.resource)?, key)
    }

    fn exists(&self, key: &Key) -> ApiResult<bool> {
        match self.get(key) {
            // Most users may not read namespaces: then they are taken to exist.
            Err(status) if status.reason == Reason::Forbidden && key.resource.0 == "namespaces" => Ok(true),
            found => Ok(found?.is_some()),
        }
    }

    fn list(&self, resource: Resource, namespace: Option<&str>) -> ApiResult<Vec<Object>> {
        self.cluster.list(self.kind(resource)?, namespace, &[])
    }

    fn list_selected(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        query: &[(&'static str, String)],
    ) -> Option<ApiResult<Vec<Object>>> {
        Some(self.cluster.list(kind, namespace, query))
    }

    fn forward(&mut self, write: &ForwardedWrite<'_>) -> Option<ApiResult<WriteReply>> {
        Some(self.cluster.write(write, self.dry_run))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn kinds(&self) -> &KindRegistry {
        self.kinds
    }

    fn put(&mut self, key: &Key, _object: Object) -> ApiResult<Arc<Object>> {
        Err(unsent(key))
    }

    fn remove(&mut self, key: &Key, _last: Object) -> ApiResult<Arc<Object>> {
        Err(unsent(key))
    }

    fn now(&self) -> Time {
        Time::now()
    }

    fn random(&mut self) -> u64 {
        Env::System.random()
    }

    fn network(&self) -> u8 {
        0
    }
}

/// The error of a write that has no form as a request.
fn unsent(key: &Key) -> Status {
    let message = format!("this change of {} {:?} cannot be sent to a server", key.resource, &*key.name);
    Status::new(Reason::MethodNotAllowed, message)
}
