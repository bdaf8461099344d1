//! The pure rules of the pipeline: what happens to metadata, names and generations.

pub mod addresses;
pub mod field_manager;
pub mod metadata;
pub mod names;
pub mod node_leases;
