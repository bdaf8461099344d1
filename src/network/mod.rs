//! The network: routes of Services, and DNS names.
//!
//! Selects the endpoints of a Service like kube-proxy ([`routes`]), resolves DNS names of Services and pods
//! ([`names`]), matches requests to Ingresses ([`ingress`]), forwards host ports to pods ([`host_ports`]), and resolves
//! NetworkPolicies ([`policy`]). Never: transfers data. Routes are effects; the runtime redirects connections and
//! answers DNS queries. Start reading at [`LOOP`].

mod host_ports;
pub mod ingress;
pub mod names;
mod node_links;
pub mod policy;
mod routes;
#[cfg(test)]
mod testing;

pub use host_ports::LOOP as HOST_PORTS;
pub use ingress::LOOP as INGRESS;
pub use node_links::{CONDITION as LINKS_CONDITION, LOOP as NODE_LINKS};
pub use policy::LOOP as POLICIES;
pub use routes::LOOP;

/// Every loop of this module, in the order of execution.
pub const ALL: [&crate::world::Loop; 5] = [&POLICIES, &NODE_LINKS, &LOOP, &INGRESS, &HOST_PORTS];
