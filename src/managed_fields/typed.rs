//! Traverses objects by their type: collects fields, compares and merges two versions, and removes fields.
//!
//! Never: depends on managers. The rules are those of sigs.k8s.io/structured-merge-diff (typed).

use super::expected_form::ExpectedForm;
use super::fields::{FieldSet, step_text};
use super::granularity::{ListShape, ValueShape};
use crate::kinds::DecodeError;
use crate::object::value_at_path;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Description of a type error, with the path.
pub type TypeMismatch = String;

/// Differences between two versions of an object.
#[derive(Debug, Default)]
pub struct FieldChanges {
    /// Fields only in the new version.
    pub added: FieldSet,
    /// Fields in both, with different values.
    pub modified: FieldSet,
    /// Fields only in the old version.
    pub removed: FieldSet,
}

impl FieldChanges {
    fn put(&mut self, step: impl Into<String>, below: FieldChanges) {
        let step = step.into();
        for (all, below) in
            [(&mut self.added, below.added), (&mut self.modified, below.modified), (&mut self.removed, below.removed)]
        {
            if !below.is_empty() {
                all.put(step.as_str(), below);
            }
        }
    }
}

/// The step to an item of a list.
fn step(item: &Value, list: &ListShape) -> Result<String, TypeMismatch> {
    let ListShape::Keyed(keys) = list else { return Ok(format!("v:{item}")) };
    let mut found = Map::new();
    for (key, default) in keys {
        if let Some(value) = item.get(*key).or(default.as_ref()) {
            found.insert((*key).to_owned(), value.clone());
        }
    }
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(|(key, _)| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    Ok(format!("k:{}", Value::Object(found)))
}

/// The items of a list with their steps, in order. Stored lists may repeat a key or a value; applied ones may not.
fn items<'v>(list: &'v [Value], by: &ListShape) -> Vec<(String, &'v Value)> {
    list.iter().enumerate().map(|(index, item)| (step(item, by).unwrap_or(format!("i:{index}")), item)).collect()
}

/// The items of a list by their steps.
fn items_by_step<'v>(list: &'v Value, by: &ListShape) -> BTreeMap<String, Vec<&'v Value>> {
    let mut all: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for (step, item) in items(list.as_array().map_or(&[], Vec::as_slice), by) {
        all.entry(step).or_default().push(item);
    }
    all
}

/// The fields of the items with one step. Repeated items have no owner for each field, but one for all.
fn item_fields(items: &[&Value], fields: impl FnOnce(&Value) -> FieldSet) -> FieldSet {
    match items {
        [only] => fields(only).with_member(true),
        _ => FieldSet::leaf(),
    }
}

/// Whether a value contains fields or items with separate owners.
fn is_open(value: &Value, of: ValueShape) -> bool {
    match value {
        Value::Object(_) => !of.is_atomic(),
        Value::Array(_) => !matches!(of.list(), ListShape::Atomic),
        _ => false,
    }
}

fn is_hollow(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

fn typed(of: ValueShape, name: &str) -> (ValueShape, bool) {
    of.field(name).unwrap_or((ValueShape::Unknown, false))
}

/// The fields that a body sets.
pub fn fields(value: &Value, of: ValueShape) -> FieldSet {
    fields_at(value, of).with_member(false)
}

fn fields_at(value: &Value, of: ValueShape) -> FieldSet {
    if !is_open(value, of) {
        return if value.is_null() { FieldSet::default() } else { FieldSet::leaf() };
    }
    let mut set = FieldSet::default();
    for (name, inner) in value.as_object().into_iter().flatten() {
        let (of, is_named) = typed(of, name);
        let mut below = fields_at(inner, of);
        let is_empty_map = inner.as_object().is_some_and(Map::is_empty);
        below.member |= inner.is_null() || is_empty_map || !is_named;
        set.put(format!("f:{name}"), below);
    }
    for (step, items) in items_by_step(value, &of.list()) {
        set.put(step, item_fields(&items, |item| fields_at(item, of.item())));
    }
    set
}

/// Maximum number of errors that are reported of one body: each contains the path of its field, which may be long.
pub const MAX_ERRORS: usize = 10;

/// Refuses a body with undeclared fields, or with two items of the same key or value.
pub fn check(value: &Value, of: ValueShape) -> Result<(), TypeMismatch> {
    let mut errors = Vec::new();
    check_at(value, of, &mut String::new(), &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(join_errors(&errors)) }
}

/// Returns errors as one text (structured-merge-diff: ValidationErrors).
pub fn join_errors(errors: &[String]) -> TypeMismatch {
    if errors.len() == 1 { errors.concat() } else { format!("errors:\n  {}", errors.join("\n  ")) }
}

/// Collects the errors of a value. Of a map with several undeclared fields it reports one, as Kubernetes does.
fn check_at(value: &Value, of: ValueShape, path: &mut String, errors: &mut Vec<String>) {
    if let Some(mismatch) = of.mismatch(value) {
        return errors.push(format!("{path}: {mismatch}"));
    }
    // Atomic parts of custom resources are checked too; built-in kinds are decoded, which checks them.
    if matches!(of, ValueShape::BuiltIn(_)) && !is_open(value, of) {
        return;
    }
    let length = path.len();
    let mut has_undeclared = false;
    for (name, inner) in value.as_object().into_iter().flatten() {
        if errors.len() >= MAX_ERRORS {
            return;
        }
        path.push_str(&step_text(&format!("f:{name}")));
        match of.field(name) {
            Some((of, _)) => check_at(inner, of, path, errors),
            None if has_undeclared => {}
            None => {
                has_undeclared = true;
                errors.push(format!("{path}: field not declared in schema"));
            }
        }
        path.truncate(length);
    }
    let by = of.list();
    let mut seen = BTreeSet::new();
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        if errors.len() >= MAX_ERRORS {
            return;
        }
        let text = if matches!(by, ListShape::Atomic) {
            format!("[{index}]")
        } else {
            let step = match check_item(item, &by).and_then(|()| step(item, &by)) {
                Ok(step) => step,
                Err(why) => return errors.push(format!("{path}: element {index}: {why}")),
            };
            let text = step_text(&step);
            if !seen.insert(step) {
                errors.push(format!("{path}: duplicate entries for key {text}"));
            }
            text
        };
        path.push_str(&text);
        check_at(item, of.item(), path, errors);
        path.truncate(length);
    }
}

/// Refuses an item whose type cannot identify it in its list, such as null.
fn check_item(item: &Value, list: &ListShape) -> Result<(), TypeMismatch> {
    let why = match (list, item) {
        (ListShape::Keyed(_), Value::Null) => "associative list with keys may not have a null element",
        (ListShape::Keyed(_), item) if !item.is_object() => "associative list with keys may not have non-map elements",
        (ListShape::Set, Value::Object(_)) => "associative list without keys has an element that's a map type",
        (ListShape::Set, Value::Array(_)) => "not supported: associative list with lists as elements",
        (ListShape::Set, Value::Null) => "associative list without keys has an element that's an explicit null",
        _ => return Ok(()),
    };
    Err(why.into())
}

/// All fields of a new value.
fn all_fields(value: &Value, of: ValueShape) -> FieldSet {
    let mut set = FieldSet::leaf();
    if is_open(value, of) {
        for (name, inner) in value.as_object().into_iter().flatten() {
            set.put(format!("f:{name}"), all_fields(inner, typed(of, name).0));
        }
        for (step, items) in items_by_step(value, &of.list()) {
            set.put(step, item_fields(&items, |item| all_fields(item, of.item())));
        }
    }
    set
}

/// Returns the fields of a new object. Structs that Go embeds by value count as existing before.
pub fn created(value: &Value, of: ValueShape) -> FieldChanges {
    FieldChanges { added: created_at(value, of).with_member(false), ..FieldChanges::default() }
}

fn created_at(value: &Value, of: ValueShape) -> FieldSet {
    if !of.is_in_place() || !is_open(value, of) {
        return all_fields(value, of);
    }
    let mut set = FieldSet::default();
    for (name, inner) in value.as_object().into_iter().flatten() {
        set.put(format!("f:{name}"), created_at(inner, typed(of, name).0));
    }
    for (step, items) in items_by_step(value, &of.list()) {
        set.put(step, item_fields(&items, |item| all_fields(item, of.item())));
    }
    set
}

/// Compares two versions.
pub fn changes(old: &Value, new: &Value, of: ValueShape) -> FieldChanges {
    let mut changes = FieldChanges::default();
    if old == new {
        return changes;
    }
    let is_leaf = is_hollow(Some(old)) && is_hollow(Some(new));
    if is_leaf || !(is_open(old, of) || old.is_null()) || !(is_open(new, of) || new.is_null()) {
        changes.modified = FieldSet::leaf();
        return changes;
    }
    let empty = Map::new();
    let map = |value| Value::as_object(value).unwrap_or(&empty);
    let (old_map, new_map) = (map(old), map(new));
    for (name, was) in old_map {
        let is = new_map.get(name);
        if is != Some(was) {
            changes.put(format!("f:{name}"), compare(Some(was), is, typed(of, name).0));
        }
    }
    for (name, is) in new_map.iter().filter(|(name, _)| !old_map.contains_key(*name)) {
        changes.put(format!("f:{name}"), compare(None, Some(is), typed(of, name).0));
    }
    if old.is_array() || new.is_array() {
        let (olds, news) = (items_by_step(old, &of.list()), items_by_step(new, &of.list()));
        for (step, was) in &olds {
            let is = news.get(step).map_or(&[][..], Vec::as_slice);
            changes.put(step.as_str(), compare_items(was, is, of.item()));
        }
        for (step, is) in news.iter().filter(|(step, _)| !olds.contains_key(*step)) {
            changes.put(step.as_str(), compare_items(&[], is, of.item()));
        }
    }
    changes
}

/// Compares the items of two lists that have the same step. Repeated items are compared as a whole.
fn compare_items(old: &[&Value], new: &[&Value], of: ValueShape) -> FieldChanges {
    let (was, is) = (old.first().copied(), new.first().copied());
    match (old.len() > 1, new.len() > 1) {
        (false, false) => compare(was, is, of),
        (true, true) if old == new => FieldChanges::default(),
        (true, true) => FieldChanges { modified: FieldSet::leaf(), ..FieldChanges::default() },
        (true, false) => FieldChanges { removed: FieldSet::leaf(), ..compare(None, is, of) },
        (false, true) => FieldChanges { added: FieldSet::leaf(), ..compare(was, None, of) },
    }
}

fn compare(old: Option<&Value>, new: Option<&Value>, of: ValueShape) -> FieldChanges {
    match (old, new) {
        (Some(old), Some(new)) => changes(old, new, of),
        (None, Some(new)) => FieldChanges { added: all_fields(new, of), ..FieldChanges::default() },
        (Some(old), None) => FieldChanges { removed: all_fields(old, of), ..FieldChanges::default() },
        (None, None) => FieldChanges::default(),
    }
}

/// Merges applied fields into the live value.
pub fn merge(live: &Value, applied: &Value, of: ValueShape) -> Value {
    match (live, applied) {
        (Value::Object(live), Value::Object(applied)) if !of.is_atomic() => {
            let mut merged = live.clone();
            for (name, value) in applied {
                let value = match live.get(name) {
                    Some(live) => merge(live, value, typed(of, name).0),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            merged.into()
        }
        (Value::Array(live), Value::Array(applied)) if !matches!(of.list(), ListShape::Atomic) => {
            merge_lists(live, applied, of).into()
        }
        (Value::Object(_) | Value::Array(_), Value::Null) if is_open(live, of) => live.clone(),
        _ => applied.clone(),
    }
}

/// Merges lists. Applied items have the order of the applied list; other live items keep their relative position. An applied item replaces
/// live items that repeat its step.
fn merge_lists(live: &[Value], applied: &[Value], of: ValueShape) -> Vec<Value> {
    let by = of.list();
    let (live, applied) = (items(live, &by), items(applied, &by));
    let mut standing: BTreeMap<&String, Option<&Value>> = BTreeMap::new();
    for (step, item) in &live {
        standing.entry(step).and_modify(|repeated| *repeated = None).or_insert(Some(item));
    }
    let wanted: BTreeSet<&String> = applied.iter().map(|(step, _)| step).collect();
    let merged = |(step, item): &(String, &Value)| match standing.get(step) {
        Some(Some(live)) => merge(live, item, of.item()),
        _ => (*item).clone(),
    };
    // Common items are emitted in the order of the applied list.
    let is_common = |place: &usize| standing.contains_key(&applied[*place].0);
    let mut common = (0..applied.len()).filter(is_common).peekable();
    let mut list = Vec::new();
    let mut emitted = 0;
    for (step, item) in &live {
        if !wanted.contains(step) {
            list.push((*item).clone());
        } else if let Some(next) = common.next_if(|next| applied[*next].0 == *step) {
            list.extend(applied[emitted..=next].iter().map(merged));
            emitted = next + 1;
        }
    }
    list.extend(applied[emitted..].iter().map(merged));
    list
}

/// Removes the paths of a set and everything below. `None` when a map or list becomes empty.
pub fn remove_fields(value: &Value, places: &FieldSet, of: ValueShape) -> Option<Value> {
    if is_hollow(Some(value)) || !is_open(value, of) {
        return Some(value.clone());
    }
    let keep = |step: &str, inner: &Value, of: ValueShape| match places.child(step) {
        None => Some(inner.clone()),
        Some(below) if below.member => None,
        Some(below) => remove_fields(inner, below, of),
    };
    match value {
        Value::Object(map) => {
            let rest = map.iter().filter_map(|(name, inner)| {
                Some((name.clone(), keep(&format!("f:{name}"), inner, typed(of, name).0)?))
            });
            let rest: Map<String, Value> = rest.collect();
            (!rest.is_empty()).then(|| rest.into())
        }
        Value::Array(list) => {
            let by = of.list();
            let rest = list.iter().filter_map(|item| match step(item, &by) {
                Ok(step) => keep(&step, item, of.item()),
                Err(_) => Some(item.clone()),
            });
            let rest: Vec<Value> = rest.collect();
            (!rest.is_empty()).then(|| rest.into())
        }
        _ => Some(value.clone()),
    }
}

/// Adds the fields on the way to the set's paths, if types declare them (entries of maps and items of lists are not
/// declared).
pub fn with_named(set: &FieldSet, of: ValueShape) -> FieldSet {
    let mut all = FieldSet::default().with_member(set.member);
    for (step, below) in set.steps() {
        let mut named = with_named(below, of.step(step));
        let is_named = step.strip_prefix("f:").and_then(|name| of.field(name)).is_some_and(|(_, is_named)| is_named);
        named.member |= is_named;
        all.put(step, named);
    }
    all
}

/// Converts a decoder's path such as `spec.containers[0].image` to a path with the keys of items, for messages.
pub fn path_with_keys(value: &Value, of: ValueShape, path: &str) -> String {
    let mut text = String::new();
    let (mut value, mut of) = (value, of);
    for name in path.split('.') {
        let (name, indexes) = name.split_at(name.find('[').unwrap_or(name.len()));
        text += &super::fields::step_text(&format!("f:{name}"));
        value = &value[name];
        of = typed(of, name).0;
        for index in indexes.split(['[', ']']).filter_map(|index| index.parse::<usize>().ok()) {
            value = &value[index];
            let by = of.list();
            let step = if matches!(by, ListShape::Atomic) { Err(String::new()) } else { step(value, &by) };
            text += &super::fields::step_text(&step.unwrap_or(format!("i:{index}")));
            of = of.item();
        }
    }
    text
}

/// Returns the error of server-side apply for a body that cannot be decoded; `None` when the value has the form that the field expects.
pub fn mismatch_of(body: &Value, of: ValueShape, error: &DecodeError) -> Option<String> {
    let expected = ExpectedForm::from_go_type(error.go_type.as_deref()?);
    let mismatch = expected.mismatch(value_at_path(body, &error.path)?)?;
    Some(format!("{}: {mismatch}", path_with_keys(body, of, &error.path)))
}
