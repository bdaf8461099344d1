//! etcd: a client for the few calls that kloop needs, and the shared log of a cluster on it.
//!
//! Knows: gRPC over HTTP/2, TLS, users, several members. Never: knows an object, or touches the database. Start reading at
//! [`log::EtcdLog`].

pub mod address;
pub mod client;
pub mod connection;
pub mod log;
pub mod message;
