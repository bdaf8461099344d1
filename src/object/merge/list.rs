//! Finds, splits and orders elements of lists of maps with a merge key, and of lists of scalars.

use super::{MergeError, MergeResult, ObjectFields, PATCH, malformed};
use crate::go::fmt;
use itertools::Itertools;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The key that identifies elements of a list.
#[derive(Clone, Copy)]
pub(super) enum ElementIdentity {
    /// A field of each map.
    Key(&'static str),
    /// Two fields of each map, and the default of the second one.
    Keys(&'static str, &'static str, &'static str),
    /// The element itself.
    Scalar,
}

impl ElementIdentity {
    /// Returns the identity of an element; elements with equal identities are the same.
    pub(super) fn element_key(self, element: &Value) -> Option<String> {
        match self {
            ElementIdentity::Key(key) => element.get(key).map(Value::to_string),
            ElementIdentity::Keys(key, second, default) => {
                let (first, second) = (element.get(key)?, element.get(second));
                Some(second.map_or_else(|| format!("{first} {default:?}"), |second| format!("{first} {second}")))
            }
            ElementIdentity::Scalar => Some(element.to_string()),
        }
    }

    pub(super) fn is_same(self, a: &Value, b: &Value) -> bool {
        self.element_key(a).is_some_and(|name| self.element_key(b) == Some(name))
    }

    /// Whether this field of a map is part of its identity.
    pub(super) fn has_field(self, name: &str) -> bool {
        match self {
            ElementIdentity::Key(key) => name == key,
            ElementIdentity::Keys(key, second, _) => name == key || name == second,
            ElementIdentity::Scalar => false,
        }
    }

    /// Checks that every map has the key.
    pub(super) fn check(self, list: &[Value]) -> MergeResult<()> {
        let (ElementIdentity::Key(key) | ElementIdentity::Keys(key, ..)) = self else { return Ok(()) };
        list.iter().find(|element| element.get(key).is_none()).map_or(Ok(()), |element| Err(no_merge_key(element, key)))
    }
}

/// Position of each element of a list; the first one of duplicates.
pub(super) struct ElementPositions {
    identity: ElementIdentity,
    places: HashMap<String, usize>,
}

impl ElementPositions {
    pub(super) fn index<'a>(list: impl IntoIterator<Item = &'a Value>, identity: ElementIdentity) -> ElementPositions {
        let mut places = HashMap::new();
        for (place, element) in list.into_iter().enumerate() {
            if let Some(name) = identity.element_key(element) {
                places.entry(name).or_insert(place);
            }
        }
        ElementPositions { identity, places }
    }

    pub(super) fn get(&self, element: &Value) -> Option<usize> {
        self.places.get(&self.identity.element_key(element)?).copied()
    }

    pub(super) fn has(&self, element: &Value) -> bool {
        self.get(element).is_some()
    }
}

fn no_merge_key(element: &Value, key: &str) -> MergeError {
    MergeError::Malformed(format!("map: {} does not contain declared merge key: {key}", fmt::plain(element)))
}

/// Sets a missing second key to that of the list's element, if the first key is unique in both the patch and the list.
pub(super) fn complete(patch: &mut [Value], list: &[Value], identity: ElementIdentity) {
    let ElementIdentity::Keys(key, second, _) = identity else { return };
    let names: Vec<Option<Value>> = patch.iter().map(|element| element.get(key).cloned()).collect();
    for (element, name) in patch.iter_mut().zip(&names) {
        let mut same = list.iter().filter(|other| other.get(key) == name.as_ref());
        let (Some(only), None) = (same.next(), same.next()) else { continue };
        let is_alone = names.iter().filter(|other| *other == name).count() == 1;
        if let (Value::Object(fields), Some(known), true) = (element, only.get(second), is_alone) {
            fields.entry(second).or_insert_with(|| known.clone());
        }
    }
}

/// Whether the elements of two lists are maps. Mixed types and nested lists are errors.
pub(super) fn holds_maps(a: &[Value], b: &[Value]) -> MergeResult<bool> {
    let mut all = a.iter().chain(b);
    let Some(first) = all.clone().next() else { return Ok(false) };
    if first.is_array() {
        return malformed("lists of lists are not supported");
    }
    if all.any(|element| type_of(element) != type_of(first)) {
        let lists = fmt::plain(&json!([a, b]));
        return malformed(format!("list element types are not identical: {lists}"));
    }
    Ok(first.is_object())
}

/// A number for the type that Go gives to a value.
fn type_of(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(number) if number.is_f64() => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    }
}

pub(super) fn is_deletion(element: &Value) -> bool {
    element.get(PATCH).is_some_and(|directive| directive == "delete")
}

/// Creates the element of a patch that deletes a list element.
pub(super) fn deletion(key: &str, value: &Value) -> Value {
    let mut fields = ObjectFields::new();
    fields.insert(PATCH.into(), "delete".into());
    fields.insert(key.into(), value.clone());
    Value::Object(fields)
}

/// Sorts elements in the order of another list; deletions go last.
pub(super) fn sort_like(list: Vec<Value>, order: &[Value], identity: ElementIdentity) -> Vec<Value> {
    let (deletions, mut sorted): (Vec<_>, Vec<_>) = list.into_iter().partition(is_deletion);
    let order = ElementPositions::index(order, identity);
    sorted.sort_by_cached_key(|element| order.get(element).unwrap_or(usize::MAX));
    sorted.extend(deletions);
    sorted
}

/// Orders a merged list. Elements of the patch have the patch's order. Elements that only the server has keep their
/// position relative to common ones. New elements come before later ones of the server.
pub(super) fn arrange(merged: Vec<Value>, patch: &[Value], server: &[Value], identity: ElementIdentity) -> Vec<Value> {
    let in_patch = ElementPositions::index(patch, identity);
    let (ours, theirs): (Vec<_>, Vec<_>) = merged.into_iter().partition(|element| in_patch.has(element));
    let ours = sort_like(ours, patch, identity);
    let theirs = sort_like(theirs, server, identity);
    let places = ElementPositions::index(server, identity);
    let mut all = Vec::with_capacity(ours.len() + theirs.len());
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    loop {
        let next = match (theirs.peek(), ours.peek()) {
            (None, None) => return all,
            (Some(_), None) => theirs.next(),
            (None, Some(_)) => ours.next(),
            (Some(their), Some(our)) => match (places.get(their), places.get(our)) {
                (Some(their), Some(our)) if their < our => theirs.next(),
                _ => ours.next(),
            },
        };
        all.extend(next);
    }
}

/// Removes duplicates and keeps the first of each.
pub(super) fn distinct(list: Vec<Value>) -> Vec<Value> {
    list.into_iter().unique_by(Value::to_string).collect()
}
