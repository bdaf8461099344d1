//! The pure rules of the pipeline: metadata, names, field managers, addresses of Services, and leases of nodes.

pub mod addresses;
pub mod field_manager;
pub mod metadata;
pub mod names;
pub mod node_leases;
