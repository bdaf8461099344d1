//! kloop: Kubernetes' control plane as one binary over one SQLite file, running manifests as local processes.
//!
//! The house, from the ground up; a room may name only rooms on lower floors (a test reads the sources and enforces it):
//!
//! | floor | rooms |
//! |---|---|
//! | words | [`object`], then [`kinds`], then [`world`]: pure |
//! | thought | [`controllers`], [`scheduler`], [`kubelet`], [`network`], [`show`]: pure |
//! | hands | [`store`], [`runtime`] |
//! | front | [`apiserver`] |
//! | motion | [`reconcile`] |
//! | doors | [`cli`], [`serve`] |

// The documentation is the map of the house for those who work in it: its pages name private items too.
#![allow(rustdoc::private_intra_doc_links)]

pub mod apiserver;
pub mod cli;
pub mod controllers;
pub mod kinds;
pub mod kubelet;
pub mod network;
pub mod object;
pub mod reconcile;
pub mod runtime;
pub mod scheduler;
pub mod serve;
pub mod show;
pub mod store;
pub mod world;
