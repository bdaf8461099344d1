//! `metadata.managedFields`: the managers of an object's fields.
//!
//! Reads, writes and limits the entries. Never: changes the ownership of fields.

use super::fields::FieldSet;
use crate::object::Object;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Operation of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManagerOperation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

/// One manager's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerEntry {
    /// Its name.
    pub manager: String,
    /// The operation.
    pub operation: ManagerOperation,
    /// The API version of its fields.
    pub api_version: String,
    /// The subresource that it writes; empty for the object itself.
    pub subresource: String,
    /// The time of its last change.
    pub time: Option<String>,
    /// Fields that it has set.
    pub fields: FieldSet,
}

/// Maximum number of entries of updating managers; the oldest are merged into one (Kubernetes:
/// `DefaultMaxUpdateManagers`).
const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager of the merged entries.
const ANCIENT: &str = "ancient-changes";

impl ManagerEntry {
    /// Whether it is the same manager in the same role.
    pub fn is_same(&self, other: &ManagerEntry) -> bool {
        let is_same_role =
            self.operation == other.operation && self.manager == other.manager && self.subresource == other.subresource;
        // An apply may change the version; an update has an entry for each version.
        is_same_role && (self.operation == ManagerOperation::Apply || self.api_version == other.api_version)
    }

    fn read(entry: &Value) -> Option<ManagerEntry> {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str()? {
            "Apply" => ManagerOperation::Apply,
            "Update" => ManagerOperation::Update,
            _ => return None,
        };
        Some(ManagerEntry {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: entry["time"].as_str().map(str::to_owned),
            fields: FieldSet::from_json(&entry["fieldsV1"])?,
        })
    }

    /// Identifies the manager in its role, like [`ManagerEntry::is_same`] (`BuildManagerIdentifier`).
    fn identity(&self) -> (ManagerOperation, String, String, String) {
        let is_apply = self.operation == ManagerOperation::Apply;
        let api_version = if is_apply { String::new() } else { self.api_version.clone() };
        (self.operation, self.manager.clone(), self.subresource.clone(), api_version)
    }

    fn into_json(self) -> Value {
        let operation = match self.operation {
            ManagerOperation::Apply => "Apply",
            ManagerOperation::Update => "Update",
        };
        let texts = [
            ("manager", Some(self.manager)),
            ("operation", Some(operation.to_owned())),
            ("apiVersion", Some(self.api_version)),
            ("fieldsType", Some("FieldsV1".to_owned())),
            ("subresource", Some(self.subresource).filter(|subresource| !subresource.is_empty())),
            ("time", self.time),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::String(text?))));
        let mut entry: Map<String, Value> = texts.collect();
        // Moved: the macro `json` copies the values that it is given.
        entry.insert("fieldsV1".to_owned(), self.fields.into_json());
        Value::Object(entry)
    }
}

/// Whether an object has recorded managers.
pub fn is_tracked(object: &Object) -> bool {
    !object.items(&["metadata", "managedFields"]).is_empty()
}

/// Whether two objects have the same managers, apart from times.
pub fn are_same(one: &Object, other: &Object) -> bool {
    let timeless = |object: &Object| {
        let mut list = object.value_at(&["metadata", "managedFields"]).cloned().unwrap_or_default();
        for entry in list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        list
    };
    one.value_at(&["metadata", "managedFields"]) == other.value_at(&["metadata", "managedFields"])
        || timeless(one) == timeless(other)
}

/// Makes a body request to drop all managers: an absent list means a client without support for managed fields.
pub fn drop_managers(body: &mut Object) {
    body.set(&["metadata", "managedFields"], Value::Array(vec![Value::Object(Map::new())]));
}

/// Whether a body requests to drop all managers: a list that is empty or has one empty entry (`isResetManagedFields`). Clients without
/// support for managed fields send no list.
pub fn drops_managers(body: &Object) -> bool {
    let list = body.value_at(&["metadata", "managedFields"]).and_then(Value::as_array);
    list.is_some_and(|list| match list.as_slice() {
        [] => true,
        [only] => only.as_object().is_some_and(|entry| entry.is_empty()),
        _ => false,
    })
}

/// The entries of an object; empty when one of them is malformed. Of those with the same identity the last one counts.
pub fn read(object: &Object) -> Vec<ManagerEntry> {
    let entries = object.items(&["metadata", "managedFields"]).iter().map(ManagerEntry::read);
    let (mut all, mut places): (Vec<ManagerEntry>, BTreeMap<_, usize>) = Default::default();
    for entry in entries.collect::<Option<Vec<_>>>().unwrap_or_default() {
        match places.entry(entry.identity()) {
            Entry::Occupied(place) => all[*place.get()] = entry,
            Entry::Vacant(place) => {
                place.insert(all.len());
                all.push(entry);
            }
        }
    }
    all
}

/// Returns why the managers of an object cannot be read (`DecodeManagedFields`).
pub fn find_problem(object: &Object) -> Option<String> {
    object.items(&["metadata", "managedFields"]).iter().enumerate().find_map(|(index, entry)| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            return Some("operation must be `Apply` or `Update`".to_owned());
        }
        if text("apiVersion").is_empty() {
            return Some("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" if FieldSet::from_json(&entry["fieldsV1"]).is_some() || entry["fieldsV1"].is_null() => None,
            "FieldsV1" => Some(format!("error decoding set: the fields of managed fields entry {index} are malformed")),
            "" => Some(format!("missing fieldsType in managed fields entry {index}")),
            other => Some(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
        }
    })
}

/// Writes entries into an object: appliers before updaters, each oldest first.
pub fn write(object: &mut Object, mut entries: Vec<ManagerEntry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|one, other| (one.operation, &one.time).cmp(&(other.operation, &other.time)));
    cap(&mut entries);
    if entries.is_empty() {
        object.unset(&["metadata", "managedFields"]);
    } else {
        object
            .set(&["metadata", "managedFields"], entries.into_iter().map(ManagerEntry::into_json).collect::<Vec<_>>());
    }
}

fn cap(entries: &mut Vec<ManagerEntry>) {
    let is_named = |entry: &ManagerEntry| entry.operation == ManagerOperation::Update && entry.manager != ANCIENT;
    let updates =
        |entries: &[ManagerEntry]| entries.iter().filter(|entry| entry.operation == ManagerOperation::Update).count();
    while updates(entries) > MAX_UPDATE_MANAGERS {
        let Some(oldest) = entries.iter().position(is_named) else { return };
        let oldest = entries.remove(oldest);
        let ancient = ManagerEntry { manager: ANCIENT.to_owned(), subresource: String::new(), ..oldest };
        match entries.iter_mut().find(|entry| entry.is_same(&ancient)) {
            Some(entry) => {
                entry.fields = std::mem::take(&mut entry.fields).union(&ancient.fields);
                entry.time = ancient.time;
            }
            None => {
                let first = entries.iter().position(|entry| entry.operation == ManagerOperation::Update);
                entries.insert(first.unwrap_or(entries.len()), ancient);
            }
        }
    }
}

/// Whether an applier owns a field.
pub fn is_applied(object: &Object, path: &[&str]) -> bool {
    read(object).iter().any(|entry| entry.operation == ManagerOperation::Apply && entry.fields.has(path))
}

/// Migrates managers that updated a field, such as the annotation of client-side apply, to an applier, which then owns
/// their fields. Returns whether there were any. (k8s.io/client-go/util/csaupgrade)
pub fn migrate(object: &mut Object, path: &[&str], manager: &str) -> bool {
    let (old, mut rest): (Vec<ManagerEntry>, Vec<ManagerEntry>) = read(object).into_iter().partition(|entry| {
        entry.operation == ManagerOperation::Update && entry.subresource.is_empty() && entry.fields.has(path)
    });
    let Some(first) = old.first() else { return false };
    let new = ManagerEntry { manager: manager.to_owned(), operation: ManagerOperation::Apply, ..first.clone() };
    let own = rest.iter().position(|entry| entry.is_same(&new)).map(|index| rest.remove(index));
    let own = own.unwrap_or(new);
    let fields = old.iter().fold(own.fields, |fields, entry| fields.union(&entry.fields));
    rest.push(ManagerEntry { fields, ..own });
    write(object, rest);
    true
}
