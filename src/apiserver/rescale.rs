//! Rescale: an object gets the number of replicas of a Scale (`/scale`).

use super::authorization::check_verb;
use super::scale::desired_replicas;
use super::transaction::Transaction;
use super::update::{UpdatePart, write_update};
use super::{ApiResult, WriteOptions, WriteReply, read};
use crate::kinds::Kind;
use crate::object::{Key, Object};

/// Gives an object as many replicas as a Scale says; that may rely on a revision and a uid.
pub fn rescale(
    txn: &mut dyn Transaction,
    kind: &Kind,
    key: &Key,
    wish: &Object,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    check_verb(txn, "update", "scale", key)?;
    let mut object = read::exact(txn, key)?;
    object.set(&kind.replicas().0, desired_replicas(wish)?);
    for part in ["resourceVersion", "uid"] {
        if let Some(relied) = wish.text(&["metadata", part]).filter(|text| !text.is_empty()) {
            object.set(&["metadata", part], relied);
        }
    }
    write_update(txn, kind, &object, UpdatePart::Scale, options)
}
