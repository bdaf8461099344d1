//! What Ingresses ask of the proxy that lets HTTP in, and where that proxy was found to listen.

use crate::object::{Key, Str, Time};

/// Everything that one Ingress asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entrance {
    /// The address where the proxy is to listen; all Ingresses share it.
    pub address: Str,
    /// The older Ingress wins where two want the same.
    pub created: Option<Time>,
    /// Its rules, in its order.
    pub rules: Vec<Rule>,
    /// Where everything goes that no rule speaks of.
    pub default: Option<Backend>,
    /// Who it is, over TLS.
    pub certificates: Vec<Certificate>,
}

/// One path of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The host, maybe with `*.` before it; empty for any.
    pub host: Str,
    /// The path; empty for any.
    pub path: Str,
    /// Whether only the path itself is meant, and nothing below it.
    pub is_exact: bool,
    /// Where to; none for a resource that nothing here knows.
    pub backend: Option<Backend>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// The Service.
    pub service: Key,
    /// Which port of it.
    pub port: BackendPort,
}

/// How a port of a Service is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendPort {
    /// By its number.
    Number(u16),
    /// By its name.
    Name(Str),
}

/// The certificate of some hosts, out of a Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The hosts; none for any.
    pub hosts: Vec<Str>,
    /// The chain (`tls.crt`, PEM).
    pub chain: Vec<u8>,
    /// The private key (`tls.key`, PEM).
    pub key: Vec<u8>,
}

impl std::fmt::Debug for Certificate {
    /// Without the key: what is debugged ends up in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Certificate of {:?}", self.hosts)
    }
}

/// Where the proxy for Ingresses listens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Doors {
    /// For HTTP.
    pub http: Door,
    /// For HTTPS; open while any Ingress has a certificate.
    pub https: Door,
}

/// One port where the proxy listens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Door {
    /// The port; 0 while it is closed.
    pub port: u16,
    /// Why it is not the usual one; empty when it is.
    pub instead: Str,
}
