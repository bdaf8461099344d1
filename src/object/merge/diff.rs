//! Creates the strategic patch between two versions of an object.

use super::list::{self, ElementIdentity, ElementPositions, deletion};
use super::schema::{MergeField, MergeSchemaRef, MergeStrategy};
use super::{DELETE_FROM, MergeResult, ObjectFields, RETAIN_KEYS, SET_ORDER};
use serde_json::Value;
use std::cmp::Ordering;

/// Selects the differences to include.
#[derive(Clone, Copy)]
pub(super) struct WantedDifferences {
    pub additions: bool,
    pub deletions: bool,
    /// Whether to fix the order of lists with `$setElementOrder`.
    pub order: bool,
}

pub(super) fn diff_map(
    original: &ObjectFields,
    modified: &ObjectFields,
    schema: MergeSchemaRef,
    want: WantedDifferences,
) -> MergeResult<ObjectFields> {
    diff(original, modified, schema, want, false)
}

fn diff(
    original: &ObjectFields,
    modified: &ObjectFields,
    schema: MergeSchemaRef,
    want: WantedDifferences,
    retain_keys: bool,
) -> MergeResult<ObjectFields> {
    let mut patch = ObjectFields::new();
    for (key, new) in modified {
        match (original.get(key), new) {
            (Some(old), new) if old == new && schema.field(key).strategy != MergeStrategy::Replace => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                let field = schema.field(key);
                if field.strategy == MergeStrategy::Replace {
                    // Kubernetes adds it to the patch even without a difference.
                    if want.additions {
                        patch.insert(key.clone(), new.clone().into());
                    }
                } else {
                    let inner = diff(old, new, field.of, want, field.retain_keys)?;
                    if !inner.is_empty() {
                        patch.insert(key.clone(), inner.into());
                    }
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                diff_list(key, old, new, schema.field(key), want, &mut patch)?;
            }
            _ if want.additions => {
                patch.insert(key.clone(), new.clone());
            }
            _ => {}
        }
    }
    if want.deletions {
        for key in original.keys().filter(|key| !modified.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    if retain_keys {
        let loses = original.iter().any(|(key, value)| !value.is_null() && !modified.contains_key(key));
        let kept: Vec<&String> = modified.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key).collect();
        if !kept.is_empty() && (!patch.is_empty() || loses) {
            patch.insert(RETAIN_KEYS.into(), kept.into_iter().map(String::as_str).collect());
        }
    }
    Ok(patch)
}

fn diff_list(
    key: &str,
    old: &[Value],
    new: &[Value],
    field: MergeField,
    want: WantedDifferences,
    patch: &mut ObjectFields,
) -> MergeResult<()> {
    let merged = matches!(field.strategy, MergeStrategy::ByKey(_) | MergeStrategy::Set);
    if !merged || old.is_empty() {
        if want.additions && (!merged || !new.is_empty()) {
            patch.insert(key.into(), new.to_vec().into());
        }
        return Ok(());
    }
    let (changes, order) = match field.strategy {
        MergeStrategy::ByKey(merge_key) if list::holds_maps(old, new)? => {
            let changes = diff_maps(old, new, merge_key, field, want)?;
            let pick = |element: &Value| {
                Value::Object([(merge_key.to_owned(), element[merge_key].clone())].into_iter().collect())
            };
            let same = old.len() == new.len() && old.iter().zip(new).all(|(a, b)| a.get(merge_key) == b.get(merge_key));
            let ordered = if want.deletions { !same } else { !changes.is_empty() };
            (changes, ordered.then(|| new.iter().map(pick).collect::<Vec<_>>()))
        }
        _ => {
            let (before, after) = (
                ElementPositions::index(old, ElementIdentity::Scalar),
                ElementPositions::index(new, ElementIdentity::Scalar),
            );
            let gone: Vec<Value> = old.iter().filter(|element| !after.has(element)).cloned().collect();
            let added: Vec<Value> = new.iter().filter(|element| !before.has(element)).cloned().collect();
            if want.deletions && !gone.is_empty() {
                patch.insert(format!("{DELETE_FROM}{key}"), list::distinct(gone).into());
            }
            let added = if want.additions { added } else { Vec::new() };
            let ordered = if want.deletions { old != new } else { !added.is_empty() };
            (added, ordered.then(|| new.to_vec()))
        }
    };
    if !changes.is_empty() {
        patch.insert(key.into(), changes.into());
    }
    if let Some(order) = order.filter(|order| want.order && !order.is_empty()) {
        patch.insert(format!("{SET_ORDER}{key}"), order.into());
    }
    Ok(())
}

/// Compares both lists, sorted by key, in one pass.
fn diff_maps(
    old: &[Value],
    new: &[Value],
    key: &'static str,
    field: MergeField,
    want: WantedDifferences,
) -> MergeResult<Vec<Value>> {
    let identity = ElementIdentity::Key(key);
    identity.check(old)?;
    identity.check(new)?;
    let name = |element: &Value| match &element[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let sorted = |list: &[Value]| {
        let mut named: Vec<(String, Value)> = list.iter().map(|element| (name(element), element.clone())).collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        named.into_iter().peekable()
    };
    let (mut old, mut modified) = (sorted(old), sorted(new));
    let (mut changes, mut deletions) = (Vec::new(), Vec::new());
    loop {
        let order = match (old.peek(), modified.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { modified.next() } else { None };
        match (before, after) {
            (Some((_, Value::Object(before))), Some((_, Value::Object(after)))) => {
                let mut change = diff(&before, &after, field.of, want, field.retain_keys)?;
                if !change.is_empty() {
                    change.insert(key.into(), after[key].clone());
                    changes.push(Value::Object(change));
                }
            }
            (None, Some((_, added))) if want.additions => changes.push(added),
            (Some((_, gone)), None) if want.deletions => deletions.push(deletion(key, &gone[key])),
            _ => {}
        }
    }
    let mut changes = list::sort_like(changes, new, identity);
    changes.extend(deletions);
    Ok(changes)
}
