//! Server-side apply: sets the fields that a manager applies, removes those that it no longer applies, and reports
//! conflicts with fields of other managers.
//!
//! The rules are those of sigs.k8s.io/structured-merge-diff (merge) and k8s.io/apimachinery (managedfields).

use super::entries::{self, ManagerEntry, ManagerOperation};
use super::fields::FieldSet;
use super::granularity::ValueShape;
use super::update::{owned, version_of};
use super::{TIMELESS, typed};
use crate::kinds::{DecodeError, Kind, UnknownField};
use crate::managed_fields::last_applied::last_applied;
use crate::object::{Cause, LAST_APPLIED, Object, Reason, Status, Time, time};
use itertools::Itertools;
use serde_json::{Value, json};

/// The manager of fields from before the first server-side apply.
const BEFORE: &str = "before-first-apply";

/// The field manager of `kubectl apply`, which takes over fields from its client-side apply.
pub const KUBECTL: &str = "kubectl";

/// A manager that applies a configuration.
#[derive(Clone, Copy, Debug)]
pub struct ApplyManager<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it takes over the fields of other managers that it sets to other values; otherwise they are conflicts.
    pub force: bool,
}

/// A server-side apply.
#[derive(Clone, Copy, Debug)]
pub struct FieldApplier<'a> {
    /// The field manager.
    pub manager: ApplyManager<'a>,
    /// The subresource that it applies, such as `status`; empty for the object itself.
    pub subresource: &'static str,
    /// The current time.
    pub now: Time,
}

/// Applies a configuration to an object and updates its managers. The caller still validates the result.
pub fn applied(kind: &Kind, live: Option<&Object>, config: &Object, applier: FieldApplier) -> Result<Object, Status> {
    let wanted = applied_fields(kind, config, applier.subresource)?;
    let applied = merged(kind, live, config, &wanted, applier);
    let applied = match applied {
        Err(conflicts) => {
            let remaining = remaining_conflicts(kind, &conflicts, live, applier);
            if !remaining.is_empty() {
                return Err(conflict_status(&remaining));
            }
            merged(
                kind,
                live,
                config,
                &wanted,
                FieldApplier { manager: ApplyManager { force: true, ..applier.manager }, ..applier },
            )
        }
        done => done,
    };
    let mut applied = applied.map_err(|conflicts| conflict_status(&conflicts))?;
    if applier.manager.name == KUBECTL && applied.annotation(LAST_APPLIED).is_some() {
        applied.set(&["metadata", "annotations", LAST_APPLIED], last_applied(config));
    }
    Ok(applied)
}

/// The fields that a configuration sets.
fn applied_fields(kind: &Kind, config: &Object, subresource: &str) -> Result<FieldSet, Status> {
    let version = version_of(kind, config);
    let version = if version.contains('/') { version } else { format!("/{version}") };
    let (version, place) =
        (format!("{version}, Kind={}", kind.kind), format!("{}/{}", config.namespace(), config.name()));
    let wrong = |why: String| {
        Status::new(Reason::Unknown, format!("failed to create typed patch object ({place}; {version}): {why}"))
    };
    let unreadable = |of: ValueShape, error: &DecodeError| match typed::mismatch_of(&config.0, of, error) {
        Some(mismatch) => wrong(mismatch),
        None => {
            let why = format!(
                "unable to convert unstructured object to {}: {}",
                version.trim_start_matches('/'),
                error.message
            );
            let text = format!("failed to convert new object ({place}; {version}) to proper version: {why}");
            Status::new(Reason::Unknown, text)
        }
    };
    let of = ValueShape::for_object(kind, config);
    if kind.custom.is_none() {
        let mut unknown = Vec::new();
        let read = kind.normalized(&config.0, &mut |field| unknown.push(field));
        read.map_err(|error| unreadable(of, &error))?;
        if !unknown.is_empty() {
            let mut status = wrong(undeclared(&config.0, of, &unknown));
            status.unknown = unknown.into_iter().map(|field| (field.path, field.nearest)).collect();
            return Err(status);
        }
    }
    typed::check(&config.0, of).map_err(wrong)?;
    let fields = owned(kind, typed::fields(&config.0, of), subresource);
    Ok(if subresource == "status" { status_fields(kind, fields) } else { fields })
}

/// The fields that a write of the status changes.
fn status_fields(kind: &Kind, mut fields: FieldSet) -> FieldSet {
    let mut metadata = fields.remove("f:metadata");
    let mut kept = fields.restricted_to("f:status");
    let mut of_metadata = FieldSet::default();
    for field in kind.status_metadata {
        let step = format!("f:{field}");
        let below = metadata.remove(&step);
        if !below.is_empty() {
            of_metadata.put(step.as_str(), below);
        }
    }
    if !of_metadata.is_empty() {
        kept.put("f:metadata", of_metadata);
    }
    kept
}

fn undeclared(config: &Value, of: ValueShape, unknown: &[UnknownField]) -> String {
    // One of several undeclared fields of a map is named.
    let parent = |field: &UnknownField| field.path.rsplit_once('.').map_or("", |(parent, _)| parent).to_owned();
    let each = unknown
        .iter()
        .unique_by(|field| parent(field))
        .take(typed::MAX_ERRORS)
        .map(|field| format!("{}: field not declared in schema", typed::path_with_keys(config, of, &field.path)));
    typed::join_errors(&each.collect::<Vec<String>>())
}

/// Fields of other managers that would change, with their manager.
type Conflicts = Vec<(ManagerEntry, FieldSet)>;

fn merged(
    kind: &Kind,
    live: Option<&Object>,
    config: &Object,
    wanted: &FieldSet,
    applier: FieldApplier,
) -> Result<Object, Conflicts> {
    let of = ValueShape::for_object(kind, config);
    let mut entries = live.map(|live| owners_before(kind, live, applier.now)).unwrap_or_default();
    let mut own = ManagerEntry {
        manager: applier.manager.name.to_owned(),
        operation: ManagerOperation::Apply,
        api_version: version_of(kind, config),
        subresource: applier.subresource.to_owned(),
        time: None,
        fields: wanted.clone(),
    };
    let place = entries.iter().position(|entry| entry.is_same(&own));
    let last = place.map(|index| entries.remove(index));
    own.time = last.as_ref().and_then(|last| last.time.clone());
    let mut object = live.map_or_else(|| config.0.clone(), |live| typed::merge(&live.0, &config.0, of));
    if let Some(last) = last.filter(|last| !last.fields.is_empty()) {
        // Fields that no manager owns, such as the name, remain in the configuration.
        let all = typed::fields(&config.0, of);
        let all = entries.iter().fold(all, |all, entry| all.union(&entry.fields));
        object = pruned(object, of, &last.fields, &all);
    }
    let changes = match live {
        Some(live) => typed::changes(&live.0, &object, of),
        None => typed::created(&object, of),
    };
    let set = owned(kind, changes.added.clone().union(&changes.modified), applier.subresource);
    let conflicts = entries.iter().map(|entry| (entry.clone(), entry.fields.intersection(&set)));
    let conflicts: Conflicts = conflicts.filter(|(_, fields)| !fields.is_empty()).collect();
    if !conflicts.is_empty() && !applier.manager.force {
        return Err(conflicts);
    }
    let changed = set.clone().union(&changes.removed);
    for entry in &mut entries {
        entry.fields = entry.fields.difference(&changed);
    }
    if !set.is_empty() || !changes.removed.is_empty() {
        if applier.subresource != TIMELESS {
            own.time = Some(time::rfc3339(applier.now));
        }
        entries.push(own);
    } else {
        entries.insert(place.unwrap_or(entries.len()), own);
    }
    let mut object = Object(object);
    entries::write(&mut object, entries);
    Ok(object)
}

/// Returns the managers of an object. Fields of an object without recorded managers get a single owner.
fn owners_before(kind: &Kind, live: &Object, now: Time) -> Vec<ManagerEntry> {
    let entries = entries::read(live);
    if !entries.is_empty() {
        return entries;
    }
    let all = typed::created(&live.0, ValueShape::for_object(kind, live)).added;
    vec![ManagerEntry {
        manager: BEFORE.to_owned(),
        operation: ManagerOperation::Update,
        api_version: version_of(kind, live),
        subresource: String::new(),
        time: Some(time::rfc3339(now)),
        fields: owned(kind, all, ""),
    }]
}

/// Removes fields that this manager applied before from the merged object, unless another manager owns them or this one
/// still applies them. Fields without an owner were set by the server, and stay.
fn pruned(merged: Value, of: ValueShape, last: &FieldSet, owned: &FieldSet) -> Value {
    let named = |set: &FieldSet| typed::with_named(set, of);
    let all = |value: &Value| named(&typed::fields(value, of));
    let without = |places: &FieldSet| typed::remove_fields(&merged, places, of).unwrap_or_else(|| json!({}));
    let (last, everything) = (named(last), all(&merged));
    // Removes the applied fields with everything below, then restores owned fields, then fields that this manager never
    // owned.
    let rest = all(&without(&last));
    let rest = all(&without(&everything.difference(&rest.union(&named(owned)))));
    without(&everything.difference(&rest).intersection(&last))
}

/// Removes conflicts of kubectl with its own client-side apply: it takes over fields that still have the applied value.
fn remaining_conflicts(kind: &Kind, conflicts: &Conflicts, live: Option<&Object>, applier: FieldApplier) -> Conflicts {
    let own = live
        .filter(|_| applier.manager.name == KUBECTL)
        .and_then(|live| applied_by_client(kind, live))
        .unwrap_or_default();
    let remaining = conflicts.iter().map(|(entry, fields)| (entry.clone(), fields.difference(&own)));
    remaining.filter(|(_, fields)| !fields.is_empty()).collect()
}

/// The fields that still have the value from client-side apply.
fn applied_by_client(kind: &Kind, live: &Object) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(live.annotation(LAST_APPLIED)?).ok()?;
    if last["apiVersion"] != live.0["apiVersion"] {
        return None;
    }
    let of = ValueShape::for_object(kind, live);
    typed::check(&last, of).ok()?;
    let changes = typed::changes(&last, &live.0, of);
    let fields = typed::fields(&last, of);
    Some(fields.difference(&changes.added).difference(&changes.modified).difference(&changes.removed))
}

/// The error with the message of Kubernetes.
fn conflict_status(conflicts: &Conflicts) -> Status {
    let mut conflicts: Vec<(&ManagerEntry, Vec<String>)> =
        conflicts.iter().map(|(entry, fields)| (entry, fields.paths())).collect();
    conflicts.sort_by_key(|(entry, _)| (&entry.manager, entry.operation, &entry.subresource));
    let causes: Vec<Cause> =
        conflicts.iter().flat_map(|(entry, paths)| paths.iter().map(|path| conflict_cause(entry, path))).collect();
    let message = match &causes[..] {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        several => {
            let each = conflicts.iter().map(|(entry, paths)| {
                let paths: String = paths.iter().map(|path| format!("\n- {path}")).collect();
                format!("conflicts with {}:{paths}", manager_text(entry))
            });
            let each: Vec<String> = each.collect();
            format!("Apply failed with {} conflicts: {}", several.len(), each.join("\n"))
        }
    };
    Status { causes, ..Status::new(Reason::Conflict, message) }
}

fn conflict_cause(entry: &ManagerEntry, path: &str) -> Cause {
    let message = format!("conflict with {}", manager_text(entry));
    Cause { reason: "FieldManagerConflict".to_owned(), field: path.to_owned(), message }
}

/// Formats a manager for a message.
fn manager_text(entry: &ManagerEntry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text += &format!(" with subresource {:?}", entry.subresource);
    }
    if entry.operation == ManagerOperation::Update {
        text += &format!(" using {}", entry.api_version);
    }
    text
}
