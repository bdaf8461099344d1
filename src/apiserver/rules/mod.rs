//! The pure rules of the pipeline: metadata, names, field managers, freed disk space, addresses of Services, leases of nodes, and Pod
//! Security.

pub mod addresses;
pub mod field_manager;
pub mod freed_space;
pub mod metadata;
pub mod names;
pub mod node_leases;
pub mod pod_security;
