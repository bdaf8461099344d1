//! Rescale: an object gets the number of replicas of a Scale (`/scale`).

use super::authorization::check_verb;
use super::scale::desired_replicas;
use super::transaction::Transaction;
use super::update::{UpdatePart, write_update};
use super::{ApiResult, WriteOptions, WriteReply, conversion, read};
use crate::kinds::Kind;
use crate::object::{Key, Object};

/// Sets an object's replicas to those of a Scale, in a version of its kind. The Scale may contain a revision and a uid as preconditions.
pub fn rescale(
    txn: &mut dyn Transaction,
    (kind, api_version): (&Kind, &str),
    key: &Key,
    wish: &Object,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    check_verb(txn, "update", "scale", key)?;
    let stored = read::exact(txn, key)?;
    let mut object = conversion::convert(txn, kind, &stored, api_version)?.into_owned();
    object.set(&kind.replicas().0, desired_replicas(wish)?);
    for part in ["resourceVersion", "uid"] {
        if let Some(relied) = wish.text(&["metadata", part]).filter(|text| !text.is_empty()) {
            object.set(&["metadata", part], relied);
        }
    }
    write_update(txn, kind, &object, UpdatePart::Scale, options)
}
