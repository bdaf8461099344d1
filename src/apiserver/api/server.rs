//! The API of a server on another machine, in place of a store.

use super::{Api, Env, OpenError, Store};
use crate::apiserver::remote::{self, RemoteCluster};
use crate::client::ApiClient;
use std::time::Duration;

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
}
