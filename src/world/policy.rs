//! NetworkPolicies with their selectors resolved to addresses: which addresses may talk to which.

use crate::object::Str;
use std::net::Ipv4Addr;

/// The rules of one NetworkPolicy, resolved to addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkPolicyRules {
    /// Addresses of the pods that the policy selects, in order.
    pub subjects: Vec<Ipv4Addr>,
    /// Peers that may connect to the pods; `None` when the policy has no ingress part.
    pub ingress: Option<Vec<PolicyRule>>,
    /// Peers that the pods may connect to; `None` when the policy has no egress part.
    pub egress: Option<Vec<PolicyRule>>,
}

/// One rule: these peers, on these ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// The peers; `None` for all peers.
    pub peers: Option<Vec<PolicyPeer>>,
    /// The ports; none for all of them.
    pub ports: Option<Vec<PortRange>>,
}

/// The other side of a connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyPeer {
    /// One pod.
    Pod(Ipv4Addr),
    /// A block of addresses without some smaller ones.
    Block {
        /// The block.
        cidr: Cidr,
        /// Blocks excluded from it.
        except: Vec<Cidr>,
    },
}

/// A block of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Cidr {
    /// Its first address.
    pub address: Ipv4Addr,
    /// Prefix length in bits.
    pub bits: u8,
}

impl Cidr {
    /// Whether the block contains an address.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (u32::from(self.address) ^ u32::from(address)) & self.mask() == 0
    }

    /// The lowest address of the block.
    pub fn first(&self) -> Ipv4Addr {
        (u32::from(self.address) & self.mask()).into()
    }

    fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.bits.min(32))).unwrap_or(0)
    }
}

impl std::str::FromStr for Cidr {
    type Err = ();

    /// `10.0.0.0/8`; a plain address is a block of one.
    fn from_str(text: &str) -> Result<Cidr, ()> {
        let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
        let bits = bits.parse().ok().filter(|bits| *bits <= 32).ok_or(())?;
        Ok(Cidr { address: address.parse().map_err(|_| ())?, bits })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Ports of one protocol, from the first to the last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRange {
    /// `tcp`, `udp`, `sctp`.
    pub protocol: Str,
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
    /// The only address to which they apply, because a named port may have different numbers in different pods.
    pub on: Option<Ipv4Addr>,
}

/// A connection that was refused for the sake of policies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct DeniedConnection {
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// Destination, such as `127.9.1.5:5432`.
    pub to: String,
    /// Whether the client's policies forbid the connection (egress) or the server's (ingress).
    pub is_egress: bool,
    /// `NAMESPACE/NAME` of the policies that apply; none of them allows the connection.
    pub policies: Vec<String>,
}
