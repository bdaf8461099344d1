//! `metadata.managedFields`: who has set which fields, and when.
//!
//! Knows: how it is read, written and kept short. Never: changes who owns what.

use super::fields::FieldSet;
use crate::object::Object;
use serde_json::{Value, json};

/// Operation of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManagerOperation {
    /// It applies all that it wants on the server's side.
    Apply,
    /// It writes in any other way.
    Update,
}

/// One manager's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerEntry {
    /// Its name.
    pub manager: String,
    /// The operation.
    pub operation: ManagerOperation,
    /// The version that its fields are those of.
    pub api_version: String,
    /// The part of the object that it writes; empty for the object itself.
    pub subresource: String,
    /// When it last changed something.
    pub time: Option<String>,
    /// Fields that it has set.
    pub fields: FieldSet,
}

/// So many managers that update are remembered by name; the oldest of more are one. (Kubernetes: `DefaultMaxUpdateManagers`)
const MOST: usize = 10;

/// The name of those that are not remembered.
const ANCIENT: &str = "ancient-changes";

impl ManagerEntry {
    /// Whether it is the same manager in the same role.
    pub fn is_same(&self, other: &ManagerEntry) -> bool {
        let role = |entry: &ManagerEntry| (entry.operation, entry.manager.clone(), entry.subresource.clone());
        // An apply may change the version; an update has fields in each.
        role(self) == role(other)
            && (self.operation == ManagerOperation::Apply || self.api_version == other.api_version)
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

    fn into_json(self) -> Value {
        let operation = match self.operation {
            ManagerOperation::Apply => "Apply",
            ManagerOperation::Update => "Update",
        };
        let mut entry = json!({
            "manager": self.manager, "operation": operation, "apiVersion": self.api_version,
            "fieldsType": "FieldsV1", "fieldsV1": self.fields.into_json(),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.into();
        }
        if let Some(time) = self.time {
            entry["time"] = time.into();
        }
        entry
    }
}

/// Whether an object says who has set its fields.
pub fn is_tracked(object: &Object) -> bool {
    !object.items(&["metadata", "managedFields"]).is_empty()
}

/// Whether two objects tell the same of their managers, but for when.
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

/// Whether a body asks to forget who has set the fields: a list with one empty entry. (An empty list does not: clients that know nothing of
/// managed fields send one.)
pub fn forgets(body: &Object) -> bool {
    matches!(body.items(&["metadata", "managedFields"]), [only] if only.as_object().is_some_and(|entry| entry.is_empty()))
}

/// The entries of an object; none when one of them cannot be read.
pub fn read(object: &Object) -> Vec<ManagerEntry> {
    let entries = object.items(&["metadata", "managedFields"]).iter().map(ManagerEntry::read);
    entries.collect::<Option<_>>().unwrap_or_default()
}

/// Writes entries into an object: those who apply first, the oldest first.
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
    while updates(entries) > MOST {
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

/// Whether somebody who applies owns a field.
pub fn is_applied(object: &Object, path: &[&str]) -> bool {
    read(object).iter().any(|entry| entry.operation == ManagerOperation::Apply && entry.fields.has(path))
}

/// Makes those who have updated a field, as client-side apply does its annotation, one with a manager that applies: it owns what they own.
/// Gives whether there were any. (k8s.io/client-go/util/csaupgrade)
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
