//! Ownership after an ordinary write: the writer owns the fields that it changed, and the previous owners lose them.

use super::entries::{self, ManagerEntry, ManagerOperation};
use super::fields::FieldSet;
use super::granularity::ValueShape;
use super::typed::{self, FieldChanges};
use crate::kinds::Kind;
use crate::managed_fields::{FieldManager, TIMELESS};
use crate::object::{Object, Time, time};

/// Fields of metadata that no manager owns: those that the server sets, and those that identify the object.
const UNOWNED: [&str; 10] = [
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:clusterName",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
    "f:deletionTimestamp",
];

/// Records the writer of a new object as the owner of all its fields.
pub fn record_create(kind: &Kind, object: &mut Object, manager: &FieldManager, now: Time) {
    let mut entries = Vec::new();
    let changes = typed::created(&object.0, ValueShape::for_object(kind, object));
    transfer_ownership((kind, version_of(kind, object)), &mut entries, changes, manager, now);
    entries::write(object, entries);
}

/// Records the writer of a changed object as the owner of the changed fields, unless the object has no recorded
/// managers.
pub fn record_update(kind: &Kind, old: &Object, new: &mut Object, manager: Option<&FieldManager>, now: Time) {
    if entries::drops_managers(new) {
        new.unset(&["metadata", "managedFields"]);
        return;
    }
    if !entries::is_tracked(old) && !entries::is_tracked(new) {
        return;
    }
    // Clients without support for managed fields send none, and writes of subresources have none.
    let has_own = manager.is_none_or(|manager| manager.subresource.is_empty()) && entries::is_tracked(new);
    let Some(manager) = manager else {
        if !has_own {
            new.set(&["metadata", "managedFields"], old.items(&["metadata", "managedFields"]).to_vec());
        }
        return;
    };
    let changes = typed::changes(&old.0, &new.0, ValueShape::for_object(kind, new));
    let mut owners = if has_own { entries::read(new) } else { Vec::new() };
    if owners.is_empty() {
        owners = entries::read(old);
    }
    transfer_ownership((kind, version_of(kind, new)), &mut owners, changes, manager, now);
    entries::write(new, owners);
}

/// Returns the version that an entry of this writer names: a custom kind has fields of its own in each version.
pub fn version_of(kind: &Kind, object: &Object) -> String {
    if kind.custom.is_some() { object.api_version().to_owned() } else { kind.api_version() }
}

/// Transfers the ownership of changed fields to the writer.
fn transfer_ownership(
    (kind, api_version): (&Kind, String),
    entries: &mut Vec<ManagerEntry>,
    changes: FieldChanges,
    manager: &FieldManager,
    now: Time,
) {
    let FieldChanges { added, modified, removed } = changes;
    let won = owned(kind, added.union(&modified), manager.subresource);
    if won.is_empty() && removed.is_empty() {
        return;
    }
    let mut own = ManagerEntry {
        manager: manager.name.clone(),
        operation: ManagerOperation::Update,
        api_version,
        subresource: manager.subresource.to_owned(),
        time: (manager.subresource != TIMELESS).then(|| time::rfc3339(now)),
        fields: FieldSet::default(),
    };
    for entry in entries.iter_mut() {
        entry.fields.subtract(&won);
        entry.fields.subtract(&removed);
    }
    if won.is_empty() {
        return;
    }
    if let Some(index) = entries.iter().position(|entry| entry.is_same(&own)) {
        own.fields = entries.remove(index).fields;
    }
    own.fields = won.union(&own.fields);
    entries.push(own);
}

/// The fields that a writer of this subresource may own.
pub fn owned(kind: &Kind, mut fields: FieldSet, subresource: &str) -> FieldSet {
    let part: &[&str] = match subresource {
        "" if kind.status => &["f:status"],
        "status" => &["f:spec"],
        _ => &[],
    };
    let metadata = fields.remove("f:metadata").excluding(&UNOWNED).with_member(false);
    let mut rest = fields.excluding(&["f:apiVersion", "f:kind"]).excluding(part);
    rest.put("f:metadata", metadata);
    rest
}
