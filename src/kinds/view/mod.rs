//! Presentation of each kind: the columns of `get` and the sections of `describe`.
//!
//! Knows: per kind a [`KindView`], one file each, which its [`Kind`](super::Kind) names; the cells ([`TableCell`]), the description being built
//! ([`Describe`]) and the questions a description asks about other objects ([`RelatedObjects`]).
//! Never: lays out, aligns or escapes anything; `show` does that. Never decodes a typed view: cells are read from the
//! body, so that objects of a newer or broken form can still be looked at.
//! Start reading at [`KindView`]; a kind that only has columns is one entry of `table_only`.

pub mod age;
pub mod body;
pub mod column;
pub mod containers;
pub mod custom;
pub mod describe;
pub mod events;
pub mod pod_resources;
pub mod related;
pub mod volumes;

pub mod autoscaler;
pub mod config_map;
pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod device;
pub mod disruption_budget;
pub mod endpoints;
pub mod event;
pub mod generic;
pub mod image;
pub mod ingress;
pub mod job;
pub mod limit_range;
pub mod namespace;
pub mod network_policy;
pub mod networking;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod priority_class;
pub mod rbac;
pub mod replica_set;
pub mod resource_quota;
pub mod secret;
pub mod service;
pub mod service_account;
pub mod stateful_set;
pub mod storage;
pub mod table_only;

pub use column::{Column, TableCell};
pub use describe::Describe;
pub use image::{brief as brief_words, words as view_words};
pub use related::RelatedObjects;

use crate::object::{Object, Time};

/// Presentation of one kind.
pub struct KindView {
    /// The columns of its table.
    pub columns: &'static [Column],
    /// One object's cells, one for each column.
    pub cells: fn(&Object, Time) -> Vec<TableCell>,
    /// Writes its description.
    pub describe: fn(&Object, &dyn RelatedObjects, &mut Describe),
}
