//! The network: routes of Services, and DNS names.
//!
//! Knows: how kube-proxy chooses the endpoints of a Service ([`routes`]), the names that Kubernetes gives to Services
//! and pods ([`names`]), the Service for a request to an Ingress ([`ingress`]), the ports of the machine that lead to
//! pods ([`host_ports`]), and the allowed connections ([`policy`]).
//! Never: carries a byte. Routes go to the machine as effects; the runtime redirects connections and answers DNS
//! queries.
//! Start reading at [`LOOP`].

mod host_ports;
pub mod ingress;
pub mod names;
pub mod policy;
mod routes;

pub use host_ports::LOOP as HOST_PORTS;
pub use ingress::LOOP as INGRESS;
pub use policy::LOOP as POLICIES;
pub use routes::LOOP;

/// Every loop of this module, in the order in which they run.
pub const ALL: [&crate::world::Loop; 4] = [&POLICIES, &LOOP, &INGRESS, &HOST_PORTS];
