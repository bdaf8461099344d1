//! kloop: Kubernetes' control plane as one binary over one SQLite file, running manifests as local processes.
#![doc = include_str!("ARCHITECTURE.md")]
// The documentation is for those who work on the crate: it links private items, too.
#![allow(rustdoc::private_intra_doc_links)]

#[cfg(test)]
#[macro_use]
#[path = "../tests/skips.rs"]
mod skips;
#[cfg(test)]
mod test_cases;

pub mod apiserver;
pub mod cel;
pub mod cli;
pub mod client;
pub mod controllers;
pub mod diagnosis;
pub mod go;
pub mod joined_node;
pub mod kinds;
pub mod kubelet;
pub mod kustomize;
pub mod managed_fields;
pub mod network;
pub mod object;
pub mod reconcile;
pub mod runtime;
pub mod scheduler;
pub mod serve;
pub mod show;
pub mod store;
pub mod world;
