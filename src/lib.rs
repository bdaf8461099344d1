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
