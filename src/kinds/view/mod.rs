//! Presentation of each kind: the columns of `get` and the sections of `describe`.
//!
//! Knows: per kind a [`KindView`], one file each, found through [`view_for`]; the cells ([`TableCell`]), the description being built
//! ([`Describe`]) and the questions a description asks about other objects ([`RelatedObjects`]).
//! Never: lays out, aligns or escapes anything; `show` does that. Never decodes a typed view: cells are read from the
//! body, so that objects of a newer or broken form can still be looked at.
//! Start reading at [`KindView`]; a new kind is one new file and one line in `ALL`; one that only has columns is one entry of `table_only`.

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

mod autoscaler;
mod config_map;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption_budget;
mod endpoints;
mod event;
mod generic;
mod image;
mod ingress;
mod job;
mod limit_range;
mod namespace;
mod network_address;
mod network_policy;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
pub mod pod;
mod priority_class;
mod rbac;
mod replica_set;
mod resource_quota;
mod secret;
mod service;
mod service_account;
mod stateful_set;
mod storage;
mod table_only;

pub use column::{Column, TableCell};
pub use describe::Describe;
pub use image::{brief as brief_words, words as view_words};
pub use related::RelatedObjects;

use crate::object::{Object, Time};

/// Presentation of one kind.
pub struct KindView {
    /// `deployments.apps`.
    pub resource: &'static str,
    /// The columns of its table.
    pub columns: &'static [Column],
    /// One object's cells, one for each column.
    pub cells: fn(&Object, Time) -> Vec<TableCell>,
    /// Writes its description.
    pub describe: fn(&Object, &dyn RelatedObjects, &mut Describe),
}

/// Every kind with a view of its own.
static ALL: &[&KindView] = &[
    &autoscaler::VIEW,
    &config_map::VIEW,
    &cron_job::VIEW,
    &daemon_set::VIEW,
    &deployment::VIEW,
    &disruption_budget::VIEW,
    &endpoints::ENDPOINTS,
    &endpoints::SLICE,
    &event::CORE,
    &event::EVENTS,
    &image::VIEW,
    &ingress::CLASS,
    &ingress::VIEW,
    &job::VIEW,
    &limit_range::VIEW,
    &namespace::VIEW,
    &network_address::IP_ADDRESS,
    &network_address::SERVICE_CIDR,
    &network_policy::VIEW,
    &node::VIEW,
    &persistent_volume::VIEW,
    &persistent_volume_claim::VIEW,
    &pod::VIEW,
    &priority_class::VIEW,
    &rbac::BINDING,
    &rbac::CLUSTER_BINDING,
    &rbac::CLUSTER_ROLE,
    &rbac::ROLE,
    &replica_set::CONTROLLER,
    &replica_set::VIEW,
    &resource_quota::VIEW,
    &secret::VIEW,
    &service::VIEW,
    &service_account::VIEW,
    &stateful_set::VIEW,
    &storage::ATTACHMENT,
    &storage::ATTRIBUTES,
    &storage::CLASS,
    &storage::CSI_CAPACITY,
    &storage::CSI_DRIVER,
    &storage::CSI_NODE,
];

/// The view of a resource, if it has one of its own.
pub fn for_resource(resource: &str) -> Option<&'static KindView> {
    ALL.iter().copied().chain(table_only::ALL).find(|view| view.resource == resource)
}

/// The view of a resource; kinds without one show their name and age, and describe themselves field by field.
pub fn view_for(resource: &str) -> &'static KindView {
    for_resource(resource).unwrap_or(&generic::VIEW)
}
