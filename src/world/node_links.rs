//! Links between the machines of a cluster, over which pods reach the pods of other machines.
//!
//! Never: opens a connection. Start reading at [`NodeLink`].

use super::policy::Cidr;
use crate::object::Str;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Another machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLink {
    /// The node's name.
    pub node: Str,
    /// The block of its pods' addresses.
    pub pods: Cidr,
    /// The address at which it accepts links.
    pub address: SocketAddr,
}

/// This machine's end of the links between machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkEnd {
    /// The address at which it accepts links.
    pub address: SocketAddr,
    /// The block of its own pods' addresses.
    pub pods: Cidr,
}

/// This machine's own end of all links. All texts are PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkIdentity {
    /// The address at which it accepts links.
    pub address: SocketAddr,
    /// The block of its own pods' addresses.
    pub pods: Cidr,
    /// The certificate that it shows to other machines as their client (`system:node:NAME`), and its key.
    pub client_certificate: Str,
    /// The key of that certificate.
    pub client_key: Str,
    /// The certificate that it shows as a server, valid for the address.
    pub server_certificate: Str,
    /// The key of that certificate.
    pub server_key: Str,
    /// The cluster's authority.
    pub authority: Str,
}

impl std::fmt::Debug for LinkIdentity {
    /// Leaves out the keys, because debug output ends up in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LinkIdentity of {} at {}", self.pods, self.address)
    }
}
