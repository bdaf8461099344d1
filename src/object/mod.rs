//! API objects, the type that all other modules exchange.
//!
//! Defines the JSON body and its metadata ([`Object`]), names of objects ([`Key`]), selectors, quantities, times,
//! merging and patching, reading and writing YAML, and Kubernetes' error object ([`Status`]).
//! Never: uses a file, a socket, a clock or a database, or depends on a particular kind.
//! Start reading at [`Object`].

mod api_version;
pub mod condition;
pub mod edit;
mod host_port;
mod ignore_poison;
mod io_error;
pub mod json_scan;
pub mod key;
pub mod label;
pub mod merge;
pub mod meta;
pub mod names;
pub mod patch;
pub mod quantity;
pub mod random;
mod scalar;
pub mod selector;
pub mod sparse;
pub mod status;
pub mod struct_shape;
#[cfg(test)]
pub mod testing;
mod text;
pub mod time;
mod uid;
mod value_path;
pub mod whole_number;
pub mod yaml;

pub use api_version::{api_version, group_of, split_api_version};
pub use host_port::{host_port, strip_port};
pub use ignore_poison::IgnorePoison;
pub use io_error::io_error_text;
pub use key::{Key, Resource};
pub use meta::{LAST_APPLIED, MIRROR, Object, OwnerRef};
pub use quantity::Quantity;
pub use scalar::{scalar_text, scalar_text_or_empty};
pub use selector::{FieldSelector, Selector};
pub use status::{Cause, Misfit, Reason, Status, bug_text};
pub use text::{format_count, format_hex, hash_fnv1a, join_errors};
pub use uid::format_uid;
pub use value_path::value_at_path;

/// A point in time, as in Kubernetes (UTC; usually written with a precision of seconds).
pub type Time = jiff::Timestamp;

/// A short shared string: names, namespaces, labels.
pub type Str = std::sync::Arc<str>;
