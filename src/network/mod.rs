//! The network: where the addresses of Services lead, and what names mean.
//!
//! Knows: how kube-proxy chooses the endpoints of a Service ([`routes`]), and which names Kubernetes gives to Services and pods ([`names`]),
//! which Service an Ingress leads a request to ([`ingress`]), which ports of the machine lead to pods ([`host_ports`]), and who may talk to whom ([`policy`]).
//! Never: carries a byte. Routes go to the machine as effects; programs are led along them, and their questions answered, there.
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

/// Every loop of this room, in the order in which they are asked.
pub const ALL: [&crate::world::Loop; 4] = [&POLICIES, &LOOP, &INGRESS, &HOST_PORTS];
