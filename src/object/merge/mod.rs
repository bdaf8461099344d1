//! Merging of objects as in kubectl: lists by key, several writers of one object.
//!
//! Applies strategic merge patches, creates them from two or three versions of an object, and does the three-way merge
//! of custom resources. `schema` defines merge rules of a type's fields; the rules of built-in kinds are in
//! `kinds::merge_rules`. Never: depends on a kind. The rules are those of apimachinery's `strategicpatch`, including
//! the order of lists. Start reading at [`three_way_strategic`].

mod apply;
mod conflict;
mod diff;
mod list;
mod nulls;
pub mod schema;
mod three_way;

pub use apply::{overlay, strategic_merge};
pub use nulls::{null_fields, remove_fields};
pub use schema::{MergeSchema, MergeSchemaRef};
pub use three_way::{three_way_json_merge, three_way_strategic, two_way_strategic};

use serde_json::{Map, Value};
use std::fmt;

type ObjectFields = Map<String, Value>;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Error of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// The patch is malformed, for example without a merge key or with an unknown directive.
    Malformed(String),
    /// A directive has a wrong form.
    InvalidFormat(&'static str),
    /// Another writer changed the same field, and the patch may not overwrite it.
    Conflict(String),
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::Malformed(text) | MergeError::Conflict(text) => f.write_str(text),
            MergeError::InvalidFormat(directive) => write!(f, "invalid patch format of {directive}"),
        }
    }
}

impl std::error::Error for MergeError {}

type MergeResult<T> = Result<T, MergeError>;

fn malformed<T>(message: impl Into<String>) -> MergeResult<T> {
    Err(MergeError::Malformed(message.into()))
}

fn fields(value: &Value) -> MergeResult<ObjectFields> {
    match value {
        Value::Object(fields) => Ok(fields.clone()),
        _ => malformed("invalid object to merge: it is not a map"),
    }
}

#[cfg(test)]
mod tests;
