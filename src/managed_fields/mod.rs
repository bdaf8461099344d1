//! Field managers: the owner of each field of an object, as recorded in `metadata.managedFields`, and server-side apply.
//!
//! [`fields`] defines sets of fields, [`granularity`] which lists and maps have an owner for each part, [`typed`]
//! compares, merges and prunes objects accordingly, and [`apply`] and [`update`] compute the owners after an apply or
//! another write. Never: reads or writes a store. Objects that only loops write have no managed fields. Start reading
//! at [`apply::applied`].

pub mod apply;
mod entries;
mod expected_form;
pub mod fields;
mod granularity;
pub mod last_applied;
mod typed;
mod unowned;
pub mod update;

pub use entries::{are_same, drop_managers, find_problem, is_applied, is_tracked, migrate};
pub use unowned::merge_without_owner;

#[cfg(test)]
mod tests;

/// The subresource whose entries have no time: Kubernetes converts them from a Scale, and drops it there (`managedfields.ScaleHandler`).
const TIMELESS: &str = "scale";

/// A field manager in `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldManager {
    /// The name, such as `kubectl-create`.
    pub name: String,
    /// The written subresource, such as `status` or `scale`; empty for the object itself.
    pub subresource: &'static str,
}
