//! Custom resources in the API server: a write is made by the definition as it stands in the transaction, whatever this process has
//! heard of it before.

use super::ApiResult;
use super::transaction::Transaction;
use crate::kinds::Kind;
use crate::kinds::custom::{self, CustomDefinition, DEFINITIONS};
use crate::object::{Key, Object, Reason, Status, Str};
use crate::store::{OpenMode, Store, StoreError, StoreRead};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Leaves word that definitions can be read in this store. One that cannot be opened then is told of by whoever opened it before.
pub fn learn_later(path: &Path) {
    let path = path.to_owned();
    custom::learn_later(move || {
        let texts = || -> Option<Vec<String>> {
            let store = Store::open(&path, OpenMode::Existing).ok()?;
            let definitions = store.read().ok()?.list(DEFINITIONS, None).ok()?;
            Some(definitions.into_iter().map(|stored| stored.body.to_string()).collect())
        };
        texts().unwrap_or_default()
    });
}

/// Takes in all definitions as they stand, and forgets those that are gone.
pub fn learn_all(txn: &dyn Transaction) -> ApiResult<()> {
    let definitions = txn.list(DEFINITIONS, None)?;
    for definition in &definitions {
        custom::learn(&definition.0.to_string());
    }
    let stands =
        |custom: &CustomDefinition| definitions.iter().any(|definition| definition.name() == custom.definition);
    let gone = custom::known_kinds().into_iter().filter_map(|kind| kind.custom).filter(|custom| !stands(custom));
    gone.for_each(|custom| custom::forget(&custom.definition));
    Ok(())
}

/// The revisions at which definitions were last read, by uid.
static SEEN: LazyLock<Mutex<HashMap<Str, u64>>> = LazyLock::new(Mutex::default);

/// Takes in the definition of a custom kind where it was written since it was last read here, and forgets it when it is gone. They may
/// be large, so that one that is as it was is not decoded.
pub fn refresh(read: &dyn StoreRead, custom: &CustomDefinition) -> std::result::Result<(), StoreError> {
    let Some(stored) = read.get(&Key::new(DEFINITIONS, "", &custom.definition))? else {
        custom::forget(&custom.definition);
        return Ok(());
    };
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if *stored.uid != *custom.mark.0 || seen.get(&stored.uid) != Some(&stored.revision) {
        custom::learn(&stored.body);
        seen.insert(stored.uid, stored.revision);
    }
    Ok(())
}

/// Nothing new comes while a definition waits for its objects to go.
pub fn check_not_going(txn: &dyn Transaction, kind: &Kind) -> ApiResult<()> {
    let Some(custom) = kind.custom else { return Ok(()) };
    let definition = txn.get_shared(&Key::new(DEFINITIONS, "", &custom.definition))?;
    if definition.is_none_or(|definition| definition.deletion().is_none()) {
        return Ok(());
    }
    let message = "create not allowed while custom resource definition is terminating";
    Err(Status::new(Reason::MethodNotAllowed, message))
}

/// The kind as its definition declares it now, with the schemas that a write needs; 404 when it is not served any more.
pub fn current<'k>(txn: &dyn Transaction, kind: &'k Kind) -> ApiResult<&'k Kind> {
    let Some(custom) = kind.custom else { return Ok(kind) };
    let gone = || Status::new(Reason::NotFound, "the server could not find the requested resource");
    let key = Key::new(DEFINITIONS, "", &custom.definition);
    let definition = txn.get_shared(&key)?.ok_or_else(gone)?;
    let ready = |custom: &CustomDefinition| custom.set_schemas(&definition);
    if custom.mark == (definition.uid().to_owned(), definition.generation()) {
        ready(custom);
        return Ok(kind);
    }
    let learnt: &'static Kind = custom::learn(&definition.0.to_string()).ok_or_else(gone)?;
    learnt.custom.into_iter().for_each(ready);
    Ok(learnt)
}

/// Ends a write of a custom resource whose validation needs patterns that are not compiled yet, where the transaction makes it again
/// with them: nothing is compiled under the write lock.
pub fn defer_patterns(txn: &mut dyn Transaction, kind: &Kind, api_version: &str, object: &Object) -> ApiResult<()> {
    let missing = kind.custom.map(|custom| custom.missing_patterns(api_version, object)).unwrap_or_default();
    if missing.is_empty() || !txn.defer_patterns(missing) {
        return Ok(());
    }
    Err(Status::new(Reason::InternalError, "the patterns of the definition are not compiled yet; this is a bug"))
}
