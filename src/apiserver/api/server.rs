//! The API of a server on another machine, in place of a store.
//!
//! Knows: readers of a whole state get a copy of the server's objects in the API's own store, which watches can keep up to date.
//! Start reading at [`Api::copy_objects`].

use super::{Api, Env, OpenError, Store, StoreError, WRITE_LOCK_TIMEOUT, refused};
use crate::apiserver::ApiResult;
use crate::apiserver::remote::{self, RemoteCluster};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::stored_copy::CopyTxn;
use crate::client::{ApiClient, ReflectedContent};
use crate::kinds::{self, Kind};
use crate::object::{Object, Reason};
use crate::store::meta_keys::NETWORK;
use std::time::Duration;

/// The writer of a copy's objects.
const SERVER: &str = "server";
/// The network of a copy, out of which simulated pods get their addresses.
const COPY_NETWORK: &str = "2";

/// The contents of a copy of a server's objects.
pub struct ServerCopy {
    /// Kinds that the user may not list, and which are missing.
    pub forbidden: Vec<&'static Kind>,
    /// Kinds that were listed, with the revisions of their lists, at which watches start.
    pub listed: Vec<(&'static Kind, String)>,
}

impl Api {
    /// The API of a server on another machine. Its store is empty. `timeout`: the limit of each request.
    pub fn with_server(client: ApiClient, timeout: Option<Duration>) -> std::result::Result<Api, OpenError> {
        let (kinds, remote) = (remote::kinds_of(&client, |_| {}), Some(RemoteCluster::new(client, timeout)));
        Ok(Api { kinds, remote, ..Api::with_store(Store::in_memory()?, "", Env::System) })
    }

    /// The API server that has the objects in place of the store.
    pub fn remote(&self) -> Option<&RemoteCluster> {
        self.remote.as_ref()
    }

    /// Copies the server's objects into this API's own store, for readers of a whole state. The copy has revisions of its own.
    pub fn copy_objects(&mut self) -> ApiResult<ServerCopy> {
        let mut copy = ServerCopy { forbidden: Vec::new(), listed: Vec::new() };
        let Some(cluster) = &self.remote else { return Ok(copy) };
        let mut objects = Vec::new();
        let mut kinds: Vec<_> = self.kinds.all().collect();
        // The lists have different revisions. Pods are listed last, so that no workload is newer than its pods.
        kinds.sort_by_key(|kind| kind.resource == kinds::pod::KIND.resource);
        for kind in kinds {
            match cluster.list_at_revision(kind, None, &[]) {
                Ok((listed, revision)) => {
                    objects.extend(listed.into_iter().map(|object| (kind, object)));
                    copy.listed.push((kind, revision));
                }
                Err(status) if status.reason == Reason::Forbidden => copy.forbidden.push(kind),
                // The server does not have this kind, or only lets it be created.
                Err(status) if [Reason::NotFound, Reason::MethodNotAllowed].contains(&status.reason) => {}
                Err(status) => return Err(status),
            }
        }
        self.change_copy(|copy| {
            copy.set_meta(NETWORK, COPY_NETWORK)?;
            objects.into_iter().try_for_each(|(kind, object)| copy.put(kind, object))
        })?;
        Ok(copy)
    }

    /// Takes changes of a kind's collection into the copy.
    pub fn update_copy(&mut self, kind: &'static Kind, changes: Vec<ReflectedContent>) -> ApiResult<()> {
        self.change_copy(|copy| changes.into_iter().try_for_each(|change| apply_change(copy, kind, change)))
    }

    fn change_copy(&mut self, change: impl FnOnce(&mut CopyTxn<'_>) -> Result<(), StoreError>) -> ApiResult<()> {
        let wrong = |error: StoreError| refused(&error);
        let mut copy = CopyTxn::new(self.store.write(WRITE_LOCK_TIMEOUT).map_err(wrong)?, SERVER);
        change(&mut copy).map_err(wrong)?;
        copy.commit().map_err(|error| refused(&error.into()))
    }
}

/// Takes a change of a collection into the copy.
fn apply_change(copy: &mut CopyTxn<'_>, kind: &Kind, change: ReflectedContent) -> Result<(), StoreError> {
    match change {
        ReflectedContent::Replaced(items) => {
            let objects: Vec<Object> = items.into_iter().map(Object).collect();
            let listed = objects.iter().map(|object| key_of(kind, object)).collect();
            let stored = copy.list(kind.resource)?;
            copy.remove_unlisted(stored, &listed)?;
            objects.into_iter().try_for_each(|object| copy.put(kind, object))
        }
        ReflectedContent::Line(line) => {
            let object = Object(line.object);
            match line.event.as_str() {
                "DELETED" => copy.remove(&key_of(kind, &object), object.uid()),
                "ADDED" | "MODIFIED" => copy.put(kind, object),
                _ => Ok(()),
            }
        }
        // The copy stays as it is meanwhile.
        ReflectedContent::Failed(_) => Ok(()),
    }
}
