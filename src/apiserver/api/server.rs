//! The API of a server on another machine, in place of a store.

use super::{Api, Env, OpenError, PATIENCE, Store, StoreError, refused};
use crate::apiserver::remote::{self, RemoteCluster};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::{ApiResult, NETWORK};
use crate::client::ApiClient;
use crate::kinds::Kind;
use crate::object::Reason;
use std::time::Duration;

/// The writer of a copy's objects.
const SERVER: &str = "server";
/// The network of a copy, out of which simulated pods get their addresses.
const COPY_NETWORK: &str = "2";

impl Api {
    /// The API of a server on another machine. Its store is empty. `timeout`: the limit of each request.
    pub fn with_server(client: ApiClient, timeout: Option<Duration>) -> std::result::Result<Api, OpenError> {
        let (kinds, remote) = (remote::kinds_of(&client), Some(RemoteCluster::new(client, timeout)));
        Ok(Api { kinds, remote, ..Api::with_store(Store::in_memory()?, "", Env::System) })
    }

    /// The API server that has the objects in place of the store.
    pub fn remote(&self) -> Option<&RemoteCluster> {
        self.remote.as_ref()
    }

    /// Copies the server's objects into this API's own store, for readers of a whole state. Returns the kinds that the user may not list,
    /// and which are missing in the copy. The copy has revisions of its own.
    pub fn copy_objects(&mut self) -> ApiResult<Vec<&'static Kind>> {
        let Some(cluster) = &self.remote else { return Ok(Vec::new()) };
        let (mut forbidden, mut objects) = (Vec::new(), Vec::new());
        for kind in self.kinds.all() {
            match cluster.list_at_revision(kind, None, &[]) {
                Ok((listed, _)) => objects.extend(listed.into_iter().map(|object| (kind, object))),
                Err(status) if status.reason == Reason::Forbidden => forbidden.push(kind),
                // The server does not have this kind, or only lets it be created.
                Err(status) if [Reason::NotFound, Reason::MethodNotAllowed].contains(&status.reason) => {}
                Err(status) => return Err(status),
            }
        }
        let now = self.env.now();
        let wrong = |error: StoreError| refused(&error);
        let mut txn = self.store.write(PATIENCE).map_err(wrong)?;
        txn.set_meta(NETWORK, COPY_NETWORK).map_err(wrong)?;
        for (kind, object) in &objects {
            let key = key_of(kind, object);
            txn.put(&key, object.uid(), |revision| object.text_at(revision), SERVER, now).map_err(wrong)?;
        }
        txn.commit().map_err(|error| refused(&error.into()))?;
        Ok(forbidden)
    }
}
