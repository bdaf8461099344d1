//! Applies a strategic merge patch to an object or another patch.

use super::list::{self, ElementIdentity, ElementPositions};
use super::schema::{ANY, MergeField, MergeSchemaRef, MergeStrategy};
use super::{DELETE_FROM, MergeError, MergeResult, ObjectFields, PATCH, RETAIN_KEYS, SET_ORDER, fields, malformed};
use crate::go::fmt;
use serde_json::Value;

/// The value that a patch applies to.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum MergeTarget {
    /// An object: directives are executed and removed, and so are `null` values.
    Object,
    /// Another patch: directives and `null` values are kept.
    Patch,
    /// An object of a kustomization: like an object, but list elements of the patch come first.
    Kustomized,
}

/// Applies a strategic merge patch to an object of a built-in kind.
pub fn strategic_merge(original: &Value, patch: &Value, schema: MergeSchemaRef) -> MergeResult<Value> {
    merge_map(fields(original)?, fields(patch)?, schema, MergeTarget::Object).map(Value::Object)
}

/// Applies a strategic merge patch as kustomize does: list elements of the patch come first. Without a schema (custom
/// resources), maps are merged and lists replaced.
pub fn overlay(original: &Value, patch: &Value, schema: Option<MergeSchemaRef>) -> MergeResult<Value> {
    merge_map(fields(original)?, fields(patch)?, schema.unwrap_or(&ANY), MergeTarget::Kustomized).map(Value::Object)
}

pub(super) fn merge_map(
    mut original: ObjectFields,
    mut patch: ObjectFields,
    schema: MergeSchemaRef,
    onto: MergeTarget,
) -> MergeResult<ObjectFields> {
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(ObjectFields::new()),
            _ => {
                let kind = fmt::plain(&directive);
                patch.insert(PATCH.to_owned(), directive);
                malformed(format!("unknown patch type: {kind} in map: {}", fmt::plain(&Value::Object(patch))))
            }
        };
    }
    retain_keys(&mut original, &mut patch, onto)?;
    merge_ordered_lists(&mut original, &mut patch, schema, onto)?;
    for (key, change) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            match onto {
                MergeTarget::Patch => {
                    original.insert(key, change);
                }
                MergeTarget::Object | MergeTarget::Kustomized => delete_from_list(&mut original, list, &change)?,
            }
            continue;
        }
        if change.is_null() {
            original.remove(&key);
            if onto == MergeTarget::Patch {
                original.insert(key, change);
            }
            continue;
        }
        let merged = match original.remove(&key) {
            Some(old) => merge_field(old, change, schema.field(&key), onto)?,
            None => strip_directives(change, onto),
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

fn merge_field(old: Value, change: Value, field: MergeField, onto: MergeTarget) -> MergeResult<Option<Value>> {
    match (old, change) {
        (Value::Object(old), Value::Object(change)) if field.strategy != MergeStrategy::Replace => {
            merge_map(old, change, field.of, onto).map(|fields| Some(fields.into()))
        }
        (Value::Array(old), Value::Array(change)) => merge_list(old, change, field, onto).map(|list| Some(list.into())),
        (_, change) => Ok(strip_directives(change, onto)),
    }
}

/// The value for a new field, from a patch: without directives and `null`.
fn strip_directives(change: Value, onto: MergeTarget) -> Option<Value> {
    match change {
        change if onto == MergeTarget::Patch => Some(change),
        Value::Null => None,
        Value::Object(fields) => {
            if fields.get(PATCH).is_some_and(|directive| directive == "delete") {
                return None;
            }
            let plain = fields.into_iter().filter(|(key, _)| !is_directive(key));
            let strip_directives = plain.filter_map(|(key, value)| Some((key, strip_directives(value, onto)?)));
            Some(Value::Object(strip_directives.collect()))
        }
        Value::Array(list) => {
            // `$patch: replace` is a separate list element.
            let is_alone = |element: &Value| element.as_object().is_some_and(|fields| fields.len() == 1);
            let marker =
                |element: &Value| is_replacement(element) && (onto != MergeTarget::Kustomized || is_alone(element));
            let strip_directives =
                list.into_iter().filter(|element| !marker(element)).filter_map(|value| strip_directives(value, onto));
            Some(Value::Array(strip_directives.collect()))
        }
        change => Some(change),
    }
}

fn is_replacement(element: &Value) -> bool {
    element.get(PATCH).is_some_and(|directive| directive == "replace")
}

/// Applies `$patch: replace` in an element that has a merge key, as kustomize does: a new element is added, one that the list has stays as
/// it is. In Kubernetes' own merge the directive always replaces the list.
fn kustomized_element(mut element: Value, server: &ElementPositions, identity: ElementIdentity) -> Value {
    let is_there = server.has(&element);
    let has_key = identity.element_key(&element).is_some();
    if let Value::Object(fields) = &mut element
        && has_key
    {
        fields.remove(PATCH);
        fields.retain(|name, _| !is_there || identity.has_field(name));
    }
    element
}

fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN_KEYS || key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER)
}

/// Applies `$retainKeys`, the list of all keys that the map may have afterwards.
fn retain_keys(original: &mut ObjectFields, patch: &mut ObjectFields, onto: MergeTarget) -> MergeResult<()> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    if onto == MergeTarget::Patch {
        let kept = original.entry(RETAIN_KEYS).or_insert_with(|| retained.clone());
        if *kept != retained {
            return malformed(format!("{kept} and {retained} are not deep equal"));
        }
        return Ok(());
    }
    let wrong = || Err(MergeError::InvalidFormat("retainKeys"));
    let Value::Array(retained) = retained else { return wrong() };
    let is_retained = |key: &str| retained.iter().any(|name| name == key);
    let sets = |(key, value): (&String, &Value)| !value.is_null() && !key.starts_with('$') && !is_retained(key);
    if patch.iter().any(sets) {
        return wrong();
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

fn delete_from_list(original: &mut ObjectFields, name: &str, deleted: &Value) -> MergeResult<()> {
    let Value::Array(deleted) = deleted else {
        return malformed(format!("{DELETE_FROM}{name} is not a list"));
    };
    if let Some(Value::Array(list)) = original.get_mut(name) {
        let deleted = ElementPositions::index(deleted, ElementIdentity::Scalar);
        list.retain(|element| !deleted.has(element));
    }
    Ok(())
}

/// Merges the lists whose order the patch fixes with `$setElementOrder`, and removes them from the patch.
fn merge_ordered_lists(
    original: &mut ObjectFields,
    patch: &mut ObjectFields,
    schema: MergeSchemaRef,
    onto: MergeTarget,
) -> MergeResult<()> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        if onto == MergeTarget::Patch {
            let kept = original.entry(&directive).or_insert_with(|| order.clone());
            if *kept != order {
                return Err(MergeError::InvalidFormat("setElementOrder list"));
            }
        }
        let Value::Array(order) = order else { return malformed(format!("{directive} is not a list")) };
        let name = &directive[SET_ORDER.len()..];
        let field = schema.field(name);
        let server = list_at(original.get(name), name)?;
        let change = list_at(patch.remove(name).as_ref(), name)?;
        let identity = match field.strategy {
            MergeStrategy::ByKey(key) => ElementIdentity::Key(key),
            _ => ElementIdentity::Scalar,
        };
        identity.check(&order)?;
        check_order(change.as_deref().unwrap_or_default(), &order, identity)?;
        let before =
            server_order_in_go(server.as_deref().unwrap_or_default(), change.as_deref().unwrap_or_default(), identity);
        let merged = match (server, change) {
            (None, None) => continue,
            (Some(server), None) => server,
            (None, Some(change)) => match strip_directives(change.into(), onto) {
                Some(Value::Array(list)) => list,
                _ => Vec::new(),
            },
            (Some(server), Some(change)) => merge_list(server, change, field, onto)?,
        };
        identity.check(&merged)?;
        original.insert(name.into(), list::arrange(merged, &order, &before, identity).into());
    }
    Ok(())
}

/// The server's order from which Kubernetes arranges the merged list.
///
/// Kubernetes' Go code deletes and appends in the memory of the server's list, so new elements overwrite the places of
/// deleted ones at its end. Therefore `kubectl apply` puts elements that other clients added before them.
fn server_order_in_go(server: &[Value], change: &[Value], identity: ElementIdentity) -> Vec<Value> {
    let deleted = ElementPositions::index(change.iter().filter(|element| list::is_deletion(element)), identity);
    let known = ElementPositions::index(server, identity);
    let stay = server.iter().filter(|element| !deleted.has(element));
    let new = change.iter().filter(|element| element.get(PATCH).is_none() && !known.has(element));
    stay.chain(new).take(server.len()).cloned().collect()
}

fn list_at(value: Option<&Value>, name: &str) -> MergeResult<Option<Vec<Value>>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list.clone())),
        Some(_) => malformed(format!("{name} is not a list")),
    }
}

/// Checks that the elements of a patch have the order of its order list.
fn check_order(change: &[Value], order: &[Value], identity: ElementIdentity) -> MergeResult<()> {
    let mut rest = order.iter();
    let mut set = change.iter().filter(|element| element.get(PATCH).is_none());
    if set.all(|element| rest.any(|other| identity.is_same(element, other))) {
        return Ok(());
    }
    let [change, order] = [change, order].map(|list| Value::from(list.to_vec()));
    malformed(format!("The order in patch list:\n{change}\n doesn't match $setElementOrder list:\n{order}\n"))
}

fn merge_list(server: Vec<Value>, change: Vec<Value>, field: MergeField, onto: MergeTarget) -> MergeResult<Vec<Value>> {
    if server.is_empty() && change.is_empty() {
        return Ok(server);
    }
    match field.strategy {
        MergeStrategy::ByKey(key) if list::holds_maps(&server, &change)? => {
            merge_maps(server, change, key, field, onto)
        }
        MergeStrategy::ByKey(_) | MergeStrategy::Set => {
            let both = list::distinct(server.iter().cloned().chain(change.iter().cloned()).collect());
            if onto == MergeTarget::Kustomized {
                return Ok(list::sort_like(both, &change, ElementIdentity::Scalar));
            }
            Ok(list::arrange(both, &change, &server, ElementIdentity::Scalar))
        }
        MergeStrategy::Plain | MergeStrategy::Replace => match strip_directives(change.into(), onto) {
            Some(Value::Array(list)) => Ok(list),
            _ => Ok(Vec::new()),
        },
    }
}

fn merge_maps(
    server: Vec<Value>,
    change: Vec<Value>,
    key: &'static str,
    field: MergeField,
    onto: MergeTarget,
) -> MergeResult<Vec<Value>> {
    let identity = match field.second {
        Some((second, default)) if onto == MergeTarget::Kustomized => ElementIdentity::Keys(key, second, default),
        _ => ElementIdentity::Key(key),
    };
    let mut change = change;
    if onto == MergeTarget::Kustomized && change.iter().any(is_replacement) {
        let known = ElementPositions::index(&server, identity);
        change = change
            .into_iter()
            .map(|element| match is_replacement(&element) {
                true => kustomized_element(element, &known, identity),
                false => element,
            })
            .collect();
    }
    let (mut elements, mut directives): (Vec<Value>, Vec<Value>) =
        change.into_iter().partition(|element| element.get(PATCH).is_none());
    let mut replace = false;
    for element in &directives {
        match element[PATCH].as_str().unwrap_or_default() {
            "delete" => identity.check(std::slice::from_ref(element))?,
            "replace" => replace = true,
            "merge" => return malformed("merging lists cannot yet be specified in the patch"),
            other => return malformed(format!("unknown patch type: {other} in map: {}", fmt::plain(element))),
        }
    }
    identity.check(&elements)?;
    if replace {
        return Ok(elements.into_iter().filter_map(|element| strip_directives(element, onto)).collect());
    }
    list::complete(&mut elements, &server, identity);
    list::complete(&mut directives, &server, identity);
    let deleted = ElementPositions::index(&directives, identity);
    let before: Vec<Value> = server.into_iter().filter(|element| !deleted.has(element)).collect();
    let places = ElementPositions::index(&before, identity);
    let mut merged = before.clone();
    for element in &elements {
        match (places.get(element), element) {
            (Some(index), Value::Object(element)) => {
                merged[index] = merge_map(fields(&merged[index])?, element.clone(), field.of, onto)?.into();
            }
            _ => merged.extend(strip_directives(element.clone(), onto)),
        }
    }
    identity.check(&merged)?;
    if onto == MergeTarget::Kustomized {
        return Ok(list::sort_like(merged, &elements, identity));
    }
    Ok(list::arrange(merged, &elements, &before, identity))
}
