//! kubectl's merging: lists by key, several owners of one object.
//!
//! Knows: strategic merge patches (how they are applied and how they are made from two or three versions of an
//! object) and the three-way merge of custom resources; `schema` says how a type's fields merge; the rules of the
//! built-in kinds are in `kinds::merge_rules`.
//! Never: which objects these are. The rules are apimachinery's `strategicpatch`, down to the order of lists.
//! Start reading at [`three_way_strategic`].

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

/// A merge that cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// The patch is malformed: a merge key is missing, a directive unknown.
    Malformed(String),
    /// Another writer changed the same field differently, and the patch may not overwrite it.
    Conflict(String),
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::Malformed(text) | MergeError::Conflict(text) => f.write_str(text),
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
