//! Presentation of each kind: the columns of `get` and the sections of `describe`.
//!
//! Each kind has a [`KindView`] in one file, to which its [`Kind`] refers. It produces cells
//! ([`TableCell`]) and a description ([`Describe`]), which can look up other objects ([`RelatedObjects`]). Never: lays
//! out, aligns or escapes text; `show` does. Never: decodes a typed form; cells are read from the body, so that objects
//! of a newer or malformed form can be shown. Start reading at [`KindView`]; a kind that has only columns is one entry
//! of `table_only`.

pub mod age;
pub mod body;
pub mod column;
pub mod containers;
pub mod custom;
pub mod describe;
pub mod events;
pub mod related;
pub mod volumes;

pub mod autoscaler;
pub mod certificate_signing_request;
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

use crate::kinds::Kind;
use crate::object::sparse::{FieldMask, ReadPart};
use crate::object::{Object, Time};

/// Returns the paths of the fields that the cells of Kubernetes' columns read. Only the kind with the longest lists has them; `None` for
/// the others, whose cells may read all of it.
pub fn paths_read_by_cells(kind: &Kind) -> Option<&'static [&'static str]> {
    (kind.resource.0 == "pods").then_some(pod::READ_BY_CELLS)
}

/// Returns the part of a stored body that the cells of a kind read, those of kloop's own columns only on request. The columns of a custom
/// kind may read all of it.
pub fn part_read_by_cells(kind: &Kind, has_own_columns: bool) -> ReadPart {
    match paths_read_by_cells(kind) {
        _ if kind.custom.is_some() => ReadPart::Whole,
        Some(paths) if !has_own_columns => ReadPart::Fields(FieldMask::from_paths(paths)),
        // A name such as `env` is also a key of labels, selectors and data, so that fields are not left out by name alone.
        _ => ReadPart::Unmanaged,
    }
}

/// Presentation of one kind.
pub struct KindView {
    /// The columns of its table.
    pub columns: &'static [Column],
    /// The cells of an object, one for each column.
    pub cells: fn(&Object, Time) -> Vec<TableCell>,
    /// Writes the description of an object.
    pub describe: fn(&Object, &dyn RelatedObjects, &mut Describe),
}
