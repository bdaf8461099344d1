//! Ways into the cluster from the rest of the machine: the HTTP routes of Ingresses, the host ports of pods, and the addresses on which
//! kloop could or could not listen.

use super::policy::Cidr;
use crate::object::{Key, Str, Time};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Everything that one Ingress configures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressRoute {
    /// The address where the proxy is to listen; all Ingresses share it.
    pub address: Str,
    /// The older Ingress wins where two want the same.
    #[serde(with = "moment")]
    pub created: Option<Time>,
    /// Its rules, in its order.
    pub rules: Vec<IngressPath>,
    /// Backend for requests that match no rule (`spec.defaultBackend`).
    pub default: Option<IngressBackend>,
    /// TLS certificates to present.
    pub certificates: Vec<IngressCertificate>,
}

/// One path of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressPath {
    /// The host, maybe with `*.` before it; empty for any.
    pub host: Str,
    /// The path; empty for any.
    pub path: Str,
    /// Whether the path matches exactly (`pathType: Exact`) and not as a prefix.
    pub is_exact: bool,
    /// Destination; `None` for a resource backend, which kloop does not support.
    pub backend: Option<IngressBackend>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressBackend {
    /// The Service.
    pub service: Key,
    /// The Service port.
    pub port: BackendPort,
}

/// A Service port by name or by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackendPort {
    /// The port with this number.
    Number(u16),
    /// The port with this name.
    Name(Str),
}

/// The certificate of some hosts, out of a Secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressCertificate {
    /// The hosts; none for any.
    pub hosts: Vec<Str>,
    /// The chain (`tls.crt`, PEM).
    pub chain: Vec<u8>,
    /// The private key (`tls.key`, PEM).
    pub key: Vec<u8>,
}

impl std::fmt::Debug for IngressCertificate {
    /// Leaves out the private key, because debug output ends up in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Certificate of {:?}", self.hosts)
    }
}

/// Addresses on which the Ingress proxy listens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressListeners {
    /// For HTTP.
    pub http: IngressListener,
    /// For HTTPS; open while any Ingress has a certificate.
    pub https: IngressListener,
}

/// One port where the proxy listens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressListener {
    /// The port; 0 while it is closed.
    pub port: u16,
    /// Reason why the port is not the default; empty for the default.
    pub instead: Str,
}

/// The address of the Service `kubernetes`: the first of the Services' range.
pub fn api_server(network: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, network, 128, 1)
}

/// Address at which a control plane serves the API to pods.
pub fn pod_api(network: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, network, 255, 2)
}

/// The block of the addresses of pods on the machine of the control plane: 127.N.1.1 to 127.N.63.254.
pub fn own_pods(network: u8) -> Cidr {
    Cidr { address: Ipv4Addr::new(127, network, 0, 0), bits: 18 }
}

/// The range that Services get their addresses from.
pub fn service_range(network: u8) -> String {
    format!("127.{network}.128.0/18")
}

/// Address of the cluster's DNS resolver (port 53), where the machine lets kloop listen there.
pub fn resolver(network: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, network, 255, 53)
}

/// A port of the machine that leads to a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    /// Address on the machine to listen on.
    pub at: SocketAddrV4,
    /// Whether this is a UDP port.
    pub is_udp: bool,
    /// Address and port inside the pod to forward to.
    pub to: SocketAddrV4,
}

/// Offset from a pod port that the machine reserves for root to the port that is bound in its place. The sums lie above Linux's ephemeral
/// ports.
pub const LOW_PORTS_MOVED_BY: u16 = 61_440;

/// A port of the pod's own address that a program could not bind, or for which it got another port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BindReport {
    /// The port.
    pub port: u16,
    /// Whether this is a UDP port.
    pub is_udp: bool,
    /// The program that listens there on every address of the machine; `None` when the port is reserved for root.
    pub holder: Option<String>,
    /// The port that is bound in its place; `None` when none is. Shims of earlier versions do not report one.
    #[serde(default)]
    pub moved_to: Option<u16>,
}

/// A place where it is not possible to listen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedListener {
    /// The address that could not be bound.
    pub at: SocketAddrV4,
    /// Whether this is a UDP port.
    pub is_udp: bool,
    /// Whether only root may bind the port.
    pub is_reserved: bool,
    /// The machine's words.
    pub why: String,
}

/// A time as text.
mod moment {
    use super::{Deserialize, Time};
    use serde::{Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(time: &Option<Time>, to: S) -> Result<S::Ok, S::Error> {
        time.map(|time| time.to_string()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.and_then(|text| text.parse().ok()))
    }
}
