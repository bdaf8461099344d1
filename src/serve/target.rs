//! Targets of requests that the API server does not answer itself: containers, ports and logs of pods, and other servers.

use crate::apiserver::user::User;
use crate::runtime::https::trust::TlsClientKey;
use crate::runtime::logs::LogReader;
use crate::runtime::session::RequestedStreams;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// The target of a client's streams.
pub enum StreamTarget {
    /// A command or the process of a container.
    Container(ContainerTarget),
    /// Ports of a pod.
    Ports(PortTarget),
    /// The log of a container; `None` when it does not exist yet.
    Log(Option<Box<LogReader>>),
}

/// A container and the requested action.
pub struct ContainerTarget {
    /// The folder of the cluster.
    pub home: PathBuf,
    /// Uid of the pod on this machine.
    pub uid: String,
    /// Name of the container.
    pub container: String,
    /// A command to run; `None` to attach to the container itself.
    pub command: Option<Vec<String>>,
    /// The requested streams.
    pub streams: RequestedStreams,
}

/// The ports of a pod.
#[derive(Clone)]
pub struct PortTarget {
    /// Namespace and name.
    pub pod: String,
    /// Uid of the pod.
    pub uid: String,
    /// The address of the pod, once it has one.
    pub address: Option<IpAddr>,
    /// The ports that the request names.
    pub ports: Vec<u16>,
}

/// Request for another server.
pub struct ProxyTarget {
    /// The address of the server.
    pub place: SocketAddr,
    /// The way in which the connection is protected.
    pub tls: ProxyTls,
    /// The path at that server, undecoded.
    pub path: String,
    /// The path of this server under which the other server is reached, if links in its answers should be rewritten to it.
    pub prefix: Option<String>,
    /// The parameters, encoded; `None` for those of the client.
    pub query: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// The protection of a connection to another server.
pub enum ProxyTls {
    /// No TLS.
    Plain,
    /// TLS with any certificate: the address comes from the cluster itself.
    AnyCertificate,
    /// The TLS of an extension API server.
    Extension(ExtensionTls),
    /// The TLS of a kubelet on another machine.
    Kubelet(KubeletTls),
}

/// The TLS of a kubelet, which both sides prove themselves by.
pub struct KubeletTls {
    /// The cluster's authority, PEM.
    pub authorities: Arc<[u8]>,
    /// The certificate of this server as a client.
    pub own: TlsClientKey,
}

/// The TLS of an extension API server. It receives the user of the request in headers.
pub struct ExtensionTls {
    /// The name that its certificate has to have.
    pub host: String,
    /// Authorities, PEM; `None` for those of the system.
    pub authorities: Option<Arc<[u8]>>,
    /// Whether the certificate is verified.
    pub verifies: bool,
    /// The user.
    pub user: Arc<User>,
}
