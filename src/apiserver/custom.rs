//! Custom resources in the API server: each write uses the definition that its transaction reads, not one that the process cached before.

use super::ApiResult;
use super::transaction::Transaction;
use crate::kinds::custom::{CustomDefinition, DEFINITIONS, Uncompiled};
use crate::kinds::shared::expressions;
use crate::kinds::{Kind, KindRegistry, custom_resource_definition};
use crate::object::{Key, Object, Status, condition};
use crate::store::{OpenMode, Store, StoreError, StoreRead};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

/// A registry of the kinds of a state file, whose definitions are read when a custom kind is first needed. It ignores an error of opening
/// the file, because the command that opened the file before has reported it.
pub fn kinds_in(path: &Path) -> KindRegistry {
    let path = path.to_owned();
    KindRegistry::with_source(Box::new(move || {
        let texts = || -> Option<Vec<String>> {
            let store = Store::open(&path, OpenMode::Existing).ok()?;
            let definitions = store.read().ok()?.list(DEFINITIONS, None).ok()?;
            Some(definitions.into_iter().map(|stored| stored.body.to_string()).collect())
        };
        texts().unwrap_or_default()
    }))
}

/// Registers all current definitions, and unregisters removed ones. Definitions may be large, so one is in memory at a time, and an
/// unchanged one is not decoded.
pub fn register_definitions(kinds: &KindRegistry, read: &dyn StoreRead) -> std::result::Result<(), StoreError> {
    let known = kinds.custom_kinds().into_iter().filter_map(|kind| kind.custom);
    let known: BTreeMap<&str, &CustomDefinition> = known.map(|custom| (&*custom.definition, custom)).collect();
    let mut current = BTreeSet::new();
    read.scan(DEFINITIONS, None, &mut |stored| {
        let is_known = known.get(&*stored.key.name).is_some_and(|custom| *custom.mark.0 == *stored.uid);
        if kinds.is_changed(&stored.uid, stored.revision) || !is_known {
            kinds.register(&stored.body);
        }
        current.insert(stored.key.name);
        ControlFlow::Continue(())
    })?;
    let gone = known.keys().filter(|definition| !current.contains(**definition));
    gone.for_each(|definition| kinds.unregister(definition));
    Ok(())
}

/// Registers the definition of a custom kind again if it was written since the last read, and forgets it when it is gone. Definitions may
/// be large, so an unchanged one is not decoded.
pub fn refresh(
    kinds: &KindRegistry,
    read: &dyn StoreRead,
    custom: &CustomDefinition,
) -> std::result::Result<(), StoreError> {
    let Some(stored) = read.get(&Key::new(DEFINITIONS, "", &custom.definition))? else {
        kinds.unregister(&custom.definition);
        return Ok(());
    };
    if kinds.is_changed(&stored.uid, stored.revision) || *stored.uid != *custom.mark.0 {
        kinds.register(&stored.body);
    }
    Ok(())
}

/// Refuses a new custom object while its definition waits for the deletion of the old ones.
pub fn check_not_going(txn: &dyn Transaction, kind: &Kind, name: &str) -> ApiResult<()> {
    let Some(custom) = kind.custom else { return Ok(()) };
    let definition = txn.get_shared(&Key::new(DEFINITIONS, "", &custom.definition))?;
    let is_going = |definition: &Object| {
        let conditions = definition.items(&["status", "conditions"]);
        definition.deletion().is_some() || condition::is_true(conditions, "Terminating")
    };
    if !definition.is_some_and(|definition| is_going(&definition)) {
        return Ok(());
    }
    let why = "create not allowed while custom resource definition is terminating";
    Err(Status::forbidden(kind.resource, name, why))
}

/// The kind in this version as its current definition declares it, with the schemas that a write needs; 404 when it is no longer served.
pub fn current<'k>(txn: &dyn Transaction, kind: &'k Kind, api_version: &str) -> ApiResult<&'k Kind> {
    let Some(custom) = kind.custom else { return Ok(kind) };
    let gone = || Status::unknown_resource();
    let key = Key::new(DEFINITIONS, "", &custom.definition);
    let definition = txn.get_shared(&key)?.ok_or_else(gone)?;
    let mark = (definition.uid().to_owned(), definition.generation());
    let is_current = |kind: &&Kind| kind.custom.is_some_and(|custom| custom.mark == mark);
    let known = Some(kind).filter(is_current).or_else(|| txn.kinds().by_resource(kind.resource).filter(is_current));
    let current = match known {
        Some(kind) => kind,
        None => txn.kinds().register(&definition.0.to_string()).ok_or_else(gone)?,
    };
    current.custom.into_iter().for_each(|custom| custom.set_schemas(&definition));
    Ok(current.custom.and_then(|custom| custom.variant(api_version)).unwrap_or(current))
}

/// Sets the schemas of a custom kind, which completing its stored objects needs.
pub fn load_schemas(txn: &dyn Transaction, kind: &Kind) -> ApiResult<()> {
    let Some(custom) = kind.custom.filter(|custom| !custom.has_schemas()) else { return Ok(()) };
    if let Some(definition) = txn.get_shared(&Key::new(DEFINITIONS, "", &custom.definition))? {
        custom.set_schemas(&definition);
    }
    Ok(())
}

/// Completes stored objects of a kind by the schemas that it has now.
pub fn complete_stored(txn: &dyn Transaction, kind: &Kind, objects: &mut [Object]) -> ApiResult<()> {
    let Some(custom) = kind.custom.filter(|_| !txn.is_remote()) else { return Ok(()) };
    load_schemas(txn, kind)?;
    objects.iter_mut().for_each(|object| custom.complete_stored(object));
    Ok(())
}

/// Completes stored objects, and shows them in the version of their kind that clients prefer, unless a webhook has to convert them.
pub fn present_stored(txn: &dyn Transaction, kind: &Kind, objects: &mut [Object]) -> ApiResult<()> {
    let Some(custom) = kind.custom.filter(|_| !txn.is_remote()) else { return Ok(()) };
    complete_stored(txn, kind, objects)?;
    if custom.conversion.is_none() {
        let preferred = kind.api_version();
        objects.iter_mut().for_each(|object| custom.relabel(object, &preferred));
    }
    Ok(())
}

/// Ends a write whose validation needs patterns or rules that are not compiled yet, where the transaction makes it again with them:
/// nothing is compiled under the write lock.
pub fn defer_compilation(
    txn: &mut dyn Transaction,
    kind: &Kind,
    api_version: &str,
    object: &Object,
    old: Option<&Object>,
) -> ApiResult<()> {
    let needed = match kind.custom {
        Some(custom) => custom.uncompiled(api_version, object),
        None if kind.resource == DEFINITIONS => custom_resource_definition::uncompiled(object, old),
        None => expressions::find_uncompiled(kind.resource, object),
    };
    defer(txn, needed)
}

/// Ends a write that needs parts which are not compiled yet, where the transaction makes it again with them.
pub fn defer(txn: &mut dyn Transaction, needed: Vec<Uncompiled>) -> ApiResult<()> {
    if needed.is_empty() || !txn.defer_compilation(needed) {
        return Ok(());
    }
    Err(Status::bug("the expressions are not compiled yet"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::create::create;
    use crate::apiserver::{Api, WriteOptions};
    use crate::kinds::custom_resource_definition::KIND;
    use serde_json::json;

    #[test]
    fn definitions_are_learnt_and_forgotten() {
        let mut api = Api::in_memory("test").unwrap();
        let kinds = KindRegistry::default();
        let definition = Object(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.sea.dev"},
            "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        }));
        let learn = |api: &Api| api.read(|snapshot| register_definitions(&kinds, snapshot)).unwrap();
        let knows = || kinds.by_kind("sea.dev/v1", "Boat").is_some();
        learn(&api);
        assert!(!knows());
        api.write(false, |txn| create(txn, &KIND, &definition, &WriteOptions::default())).unwrap();
        learn(&api);
        assert!(knows());
        // A reader of an older state had unregistered the kind.
        kinds.unregister("boats.sea.dev");
        learn(&api);
        assert!(knows(), "an unchanged definition is learnt again");
        learn(&Api::in_memory("test").unwrap());
        assert!(!knows());
    }
}
