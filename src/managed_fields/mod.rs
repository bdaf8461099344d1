//! Field managers: the owner of each field of an object, as recorded in `metadata.managedFields`, and server-side apply.
//!
//! Knows: sets of fields ([`fields`]), which lists and maps have an owner for each of their parts ([`granularity`]), how objects are compared, merged
//! and cut by that ([`typed`]), and what an apply ([`apply`]) or another write ([`update`]) makes of the owners.
//! Never: reads or writes a store. Objects that only loops write have no managed fields.
//! Start reading at [`apply::applied`].

pub mod apply;
mod entries;
pub mod fields;
mod granularity;
pub mod last_applied;
mod typed;
pub mod update;

pub use entries::{are_same, is_applied, is_tracked, migrate};

#[cfg(test)]
mod tests;

/// A field manager, as `metadata.managedFields` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldManager {
    /// `kubectl-create`.
    pub name: String,
    /// The part of the object that is written, `status` or `scale`; empty for the object itself.
    pub subresource: &'static str,
}
