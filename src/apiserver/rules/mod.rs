//! The pure rules of the pipeline: metadata, names, field managers, addresses of Services, leases of nodes, and Pod Security.

pub mod addresses;
pub mod field_manager;
pub mod metadata;
pub mod names;
pub mod node_leases;
pub mod pod_security;
