//! Lists of maps with a merge key, and lists of scalars: finding, parting and ordering their elements.

use super::{Fields, MergeError, Merged, PATCH, malformed};
use serde_json::Value;

/// What tells the elements of a list apart.
#[derive(Clone, Copy)]
pub(super) enum Identity {
    /// A field of each map.
    Key(&'static str),
    /// The element itself.
    Scalar,
}

impl Identity {
    pub(super) fn same(self, a: &Value, b: &Value) -> bool {
        match self {
            Identity::Key(key) => a.get(key).is_some_and(|value| b.get(key) == Some(value)),
            Identity::Scalar => a == b,
        }
    }

    pub(super) fn position(self, list: &[Value], element: &Value) -> Option<usize> {
        list.iter().position(|other| self.same(other, element))
    }

    /// Every map must have the key.
    pub(super) fn check(self, list: &[Value]) -> Merged<()> {
        let Identity::Key(key) = self else { return Ok(()) };
        list.iter().find(|element| element.get(key).is_none()).map_or(Ok(()), |element| Err(no_merge_key(element, key)))
    }
}

pub(super) fn no_merge_key(element: &Value, key: &str) -> MergeError {
    MergeError::Malformed(format!("map: {element} does not contain declared merge key: {key}"))
}

/// Whether the elements of two lists are maps; they must be of one sort, and not lists.
pub(super) fn holds_maps(a: &[Value], b: &[Value]) -> Merged<bool> {
    let mut all = a.iter().chain(b);
    let maps = all.clone().next().is_some_and(Value::is_object);
    if all.clone().any(Value::is_array) {
        return malformed("lists of lists are not supported");
    }
    if all.any(|element| element.is_object() != maps) {
        return malformed("list element types are not identical");
    }
    Ok(maps)
}

pub(super) fn is_deletion(element: &Value) -> bool {
    element.get(PATCH).is_some_and(|directive| directive == "delete")
}

/// The element of a patch that deletes an element of a list.
pub(super) fn deletion(key: &str, value: &Value) -> Value {
    let mut fields = Fields::new();
    fields.insert(PATCH.into(), "delete".into());
    fields.insert(key.into(), value.clone());
    Value::Object(fields)
}

/// Sorted as another list has them; deletions go last.
pub(super) fn in_order_of(list: Vec<Value>, order: &[Value], identity: Identity) -> Vec<Value> {
    let (deletions, mut sorted): (Vec<_>, Vec<_>) = list.into_iter().partition(is_deletion);
    sorted.sort_by_key(|element| identity.position(order, element).unwrap_or(usize::MAX));
    sorted.extend(deletions);
    sorted
}

/// Puts a merged list in order: elements of the patch stand as it orders them, those that only the server knows keep
/// their place among the ones that both know, and what is new comes before what the server has after it.
pub(super) fn arranged(merged: Vec<Value>, patch: &[Value], server: &[Value], identity: Identity) -> Vec<Value> {
    let (ours, theirs): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|element| identity.position(patch, element).is_some());
    let ours = in_order_of(ours, patch, identity);
    let theirs = in_order_of(theirs, server, identity);
    let place = |element: &Value| identity.position(server, element);
    let mut all = Vec::with_capacity(ours.len() + theirs.len());
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    loop {
        let next = match (theirs.peek(), ours.peek()) {
            (None, None) => return all,
            (Some(_), None) => theirs.next(),
            (None, Some(_)) => ours.next(),
            (Some(their), Some(our)) => match (place(their), place(our)) {
                (Some(their), Some(our)) if their < our => theirs.next(),
                _ => ours.next(),
            },
        };
        all.extend(next);
    }
}

/// Without repetitions; the first of each stays.
pub(super) fn distinct(list: Vec<Value>) -> Vec<Value> {
    let mut seen = std::collections::HashSet::new();
    list.into_iter().filter(|element| seen.insert(element.to_string())).collect()
}
