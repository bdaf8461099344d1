//! How each kind looks to people: the columns of `get` and the sections of `describe`.
//!
//! Knows: per kind a [`View`], one file each, found through [`of`]; the cells ([`Cell`]), the description being built
//! ([`Describe`]) and the questions a description asks about other objects ([`Related`]).
//! Never: lays out, aligns or escapes anything; `show` does that. Never decodes a typed view: cells are read from the
//! body, so that objects of a newer or broken form can still be looked at.
//! Start reading at [`View`]; a new kind is one new file and one line in `ALL`.

pub mod age;
pub mod body;
pub mod column;
pub mod containers;
pub mod describe;
pub mod events;
pub mod related;
pub mod volumes;

mod config_map;
mod deployment;
mod event;
mod generic;
mod job;
mod limit_range;
mod namespace;
mod node;
mod pod;
mod pod_resources;
mod replica_set;
mod resource_quota;
mod secret;
mod service;
mod storage;

pub use column::{Cell, Column};
pub use describe::Describe;
pub use related::Related;

use crate::object::{Object, Time};

/// How one kind looks.
pub struct View {
    /// `deployments.apps`.
    pub resource: &'static str,
    /// The columns of its table.
    pub columns: &'static [Column],
    /// One object's cells, one for each column.
    pub cells: fn(&Object, Time) -> Vec<Cell>,
    /// Writes its description.
    pub describe: fn(&Object, &dyn Related, &mut Describe),
}

/// Every kind with a view of its own.
static ALL: &[&View] = &[
    &config_map::VIEW,
    &deployment::VIEW,
    &event::CORE,
    &event::EVENTS,
    &job::VIEW,
    &limit_range::VIEW,
    &namespace::VIEW,
    &node::VIEW,
    &pod::VIEW,
    &replica_set::CONTROLLER,
    &replica_set::VIEW,
    &resource_quota::VIEW,
    &secret::VIEW,
    &service::VIEW,
];

/// The view of a resource, if it has one of its own.
pub fn for_resource(resource: &str) -> Option<&'static View> {
    ALL.iter().copied().find(|view| view.resource == resource)
}

/// The view of a resource; kinds without one show their name and age, and describe themselves field by field.
pub fn of(resource: &str) -> &'static View {
    for_resource(resource).unwrap_or(&generic::VIEW)
}
