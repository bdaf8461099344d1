//! A client of a Kubernetes API server: requests, lists in pages, watches, and streams to containers.
//!
//! Knows: kubeconfig entries, credentials, kept connections (HTTP/2 if the server supports it), limits of time and size, and kubectl's
//! messages about a server that does not answer. Calls block; one thread per client does the transfers of all calling threads.
//! Never: knows a kind, decides what to send, touches a state file. Start reading at [`ApiClient`].

mod address;
mod body;
mod connection;
mod credentials;
mod error;
mod exec_plugin;
mod forward;
mod kubeconfig;
mod list;
mod reflector;
mod request;
mod request_log;
mod socket;
pub mod standard_error;
mod tls_files;
mod transfer;
mod watch;
pub mod websocket;

pub use address::ServerAddress;
pub use body::ClientBody;
pub use credentials::{Credentials, HeaderCredentials, ImpersonatedUser};
pub use error::{ClientError, ClientResult};
pub use exec_plugin::{ExecPlugin, PluginPolicy};
pub use forward::{ForwardListener, RequestRule};
pub use kubeconfig::ServerConfig;
pub use list::ListedObjects;
pub use reflector::{ReflectedChange, ReflectedContent, Reflectors};
pub use request::{ClientReply, ClientRequest, PatchFormat};
pub use request_log::RequestLog;
pub use socket::{ChannelSocket, SocketMessage, SocketSender};
pub use watch::{ClientWatch, WatchLine};

use connection::ServerConnections;
use std::sync::Arc;
use transfer::TransferThread;

/// A client of one server with one identity. Clones share connections and the thread, which ends with the last of them.
#[derive(Clone)]
pub struct ApiClient {
    connections: Arc<ServerConnections>,
    transfers: Arc<TransferThread>,
}

impl ApiClient {
    /// Makes a client. Connects with the first request.
    pub fn new(config: ServerConfig) -> ClientResult<ApiClient> {
        let connections = Arc::new(ServerConnections::new(config)?);
        let transfers = TransferThread::start().map_err(|error| ClientError::Local(error.to_string()))?;
        Ok(ApiClient { connections, transfers: Arc::new(transfers) })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ServerConfig {
        self.connections.config()
    }

    /// Makes a request and waits for the answer. An answer that is not a success is an error.
    pub fn send(&self, request: ClientRequest) -> ClientResult<ClientReply> {
        let connections = self.connections.clone();
        self.transfers.wait(async move { request::send(&connections, request).await })?
    }

    /// Starts a watch. `path` has the query of the watch, without `watch=true`.
    pub fn watch(&self, path: &str) -> ClientResult<ClientWatch> {
        let (connections, path) = (self.connections.clone(), path.to_owned());
        self.transfers
            .wait(async move { watch::open(&connections, &path).await })?
            .map(|watch| watch.start(&self.transfers))
    }

    /// Makes a GET request whose answer is read in pieces, without a limit of time and size.
    pub fn open_body(&self, path: &str) -> ClientResult<ClientBody> {
        let (connections, path) = (self.connections.clone(), path.to_owned());
        let opened = self.transfers.wait(async move { body::open(&connections, &path).await })?;
        opened.map(|opened| opened.start(&self.transfers))
    }

    /// Opens a WebSocket for the streams of a container or the ports of a pod. `protocols`: acceptable subprotocols, the best one first.
    pub fn open_socket(&self, path: &str, protocols: &[&str]) -> ClientResult<ChannelSocket> {
        let (connections, path) = (self.connections.clone(), path.to_owned());
        let protocols = protocols.iter().map(|&protocol| protocol.to_owned()).collect();
        let opened = self.transfers.wait(async move { socket::open(&connections, &path, protocols).await })?;
        opened.map(|opened| opened.start(&self.transfers))
    }

    /// Serves a proxy to the server until `stop` completes. Blocks.
    pub fn serve_proxy(
        &self,
        listener: ForwardListener,
        rule: Arc<RequestRule>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> ClientResult<()> {
        let connections = self.connections.clone();
        let served = self.transfers.wait(async move {
            tokio::select! {
                ended = forward::serve(connections, listener, rule) => ended,
                () = stop => Ok(()),
            }
        })?;
        served.map_err(|error| ClientError::Local(error.to_string()))
    }

    /// Reads all pages of a list. `path` may have selectors in its query.
    pub fn list(&self, path: &str) -> ClientResult<ListedObjects> {
        let (connections, path) = (self.connections.clone(), path.to_owned());
        self.transfers.wait(async move { list::list(&connections, &path).await })?
    }

    /// Changes the number of objects of a page of a list; 0 for whole lists.
    pub fn set_page_size(&self, size: u32) {
        self.connections.set_page(size);
    }

    /// Creates an empty set of reflectors.
    pub fn reflectors(&self) -> Reflectors {
        Reflectors::new(self.connections.clone(), self.transfers.clone())
    }
}
