//! Server-side apply: what a manager wants is set, what it no longer wants goes, and what others own stands in the way.
//!
//! The rules are those of sigs.k8s.io/structured-merge-diff (merge) and k8s.io/apimachinery (managedfields).

use super::entries::{self, ManagerEntry, ManagerOperation};
use super::fields::FieldSet;
use super::granularity::ValueShape;
use super::typed;
use super::update::owned;
use crate::kinds::{Kind, UnknownField};
use crate::managed_fields::last_applied::{LAST_APPLIED, last_applied};
use crate::object::{Cause, Object, Reason, Status, Time, time};
use serde_json::{Value, json};

/// The manager that owns what was there before anybody applied on the server's side.
const BEFORE: &str = "before-first-apply";

/// The name of kubectl when it applies: it takes over what it has applied on the client's side.
pub const KUBECTL: &str = "kubectl";

/// The field manager of a server-side apply, and its options.
#[derive(Clone, Copy, Debug)]
pub struct FieldApplier<'a> {
    /// Its name.
    pub manager: &'a str,
    /// The part of the object that it applies: `status`, or empty for the object itself.
    pub subresource: &'static str,
    /// Whether it takes over what others own.
    pub force: bool,
    /// When.
    pub now: Time,
}

/// The object with a configuration applied to it, its managers noted; the object alone is still to pass the pipeline.
pub fn applied(kind: &Kind, live: Option<&Object>, config: &Object, who: FieldApplier) -> Result<Object, Status> {
    let wanted = applied_fields(kind, config, who.subresource)?;
    let applied = merged(kind, live, config, &wanted, who);
    let applied = match applied {
        Err(conflicts) => {
            let left = conflicts_but(kind, &conflicts, live, who);
            if !left.is_empty() {
                return Err(refusal(kind, config, &left));
            }
            merged(kind, live, config, &wanted, FieldApplier { force: true, ..who })
        }
        done => done,
    };
    let mut applied = applied.map_err(|conflicts| refusal(kind, config, &conflicts))?;
    if who.manager == KUBECTL && applied.annotation(LAST_APPLIED).is_some() {
        applied.set(&["metadata", "annotations", LAST_APPLIED], last_applied(config));
    }
    Ok(applied)
}

/// The fields that a configuration sets.
fn applied_fields(kind: &Kind, config: &Object, subresource: &str) -> Result<FieldSet, Status> {
    let wrong = |why: String| {
        let (version, name) = (kind.api_version(), config.name());
        let version = if version.contains('/') { version } else { format!("/{version}") };
        let place = format!("{}/{name}; {version}, Kind={}", config.namespace(), kind.kind);
        Status::new(Reason::Unknown, format!("failed to create typed patch object ({place}): {why}"))
    };
    let of = ValueShape::for_kind(kind);
    if kind.custom.is_none() {
        let mut unknown = Vec::new();
        let read = kind.normalized(&config.0, &mut |field| unknown.push(field));
        read.map_err(|error| wrong(format!(".{}: {error}", error.path)))?;
        if !unknown.is_empty() {
            let mut status = wrong(undeclared(&config.0, of, &unknown));
            status.unknown = unknown.into_iter().map(|field| (field.path, field.nearest)).collect();
            return Err(status);
        }
    }
    let fields = owned(kind, typed::fields(&config.0, of).map_err(wrong)?, subresource);
    Ok(if subresource == "status" { fields.restricted_to("f:status") } else { fields })
}

fn undeclared(config: &Value, of: ValueShape, unknown: &[UnknownField]) -> String {
    let each = unknown
        .iter()
        .map(|field| format!("{}: field not declared in schema", typed::told_path(config, of, &field.path)));
    let each: Vec<String> = each.collect();
    if each.len() == 1 { each.concat() } else { format!("errors:\n  {}", each.join("\n  ")) }
}

/// Fields that others own and that would change, with their owner.
type Conflicts = Vec<(ManagerEntry, FieldSet)>;

fn merged(
    kind: &Kind,
    live: Option<&Object>,
    config: &Object,
    wanted: &FieldSet,
    who: FieldApplier,
) -> Result<Object, Conflicts> {
    let of = ValueShape::for_kind(kind);
    let mut entries = live.map(|live| owners_before(kind, live, who.now)).unwrap_or_default();
    let mut own = ManagerEntry {
        manager: who.manager.to_owned(),
        operation: ManagerOperation::Apply,
        api_version: kind.api_version(),
        subresource: who.subresource.to_owned(),
        time: None,
        fields: wanted.clone(),
    };
    let place = entries.iter().position(|entry| entry.is_same(&own));
    let last = place.map(|index| entries.remove(index));
    own.time = last.as_ref().and_then(|last| last.time.clone());
    let mut object = live.map_or_else(|| config.0.clone(), |live| typed::merge(&live.0, &config.0, of));
    if let Some(last) = last.filter(|last| !last.fields.is_empty()) {
        // Fields without owners, such as the name, stay in the configuration.
        let all = typed::fields(&config.0, of).unwrap_or_default();
        let all = entries.iter().fold(all, |all, entry| all.union(&entry.fields));
        object = pruned(object, of, &last.fields, &all);
    }
    let changes = match live {
        Some(live) => typed::changes(&live.0, &object, of),
        None => typed::created(&object, of),
    };
    let set = owned(kind, changes.added.clone().union(&changes.modified), who.subresource);
    let conflicts = entries.iter().map(|entry| (entry.clone(), entry.fields.intersection(&set)));
    let conflicts: Conflicts = conflicts.filter(|(_, fields)| !fields.is_empty()).collect();
    if !conflicts.is_empty() && !who.force {
        return Err(conflicts);
    }
    let lost = set.clone().union(&changes.removed);
    for entry in &mut entries {
        entry.fields = entry.fields.difference(&lost);
    }
    if !set.is_empty() || !changes.removed.is_empty() {
        own.time = Some(time::rfc3339(who.now));
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
    let all = typed::created(&live.0, ValueShape::for_kind(kind)).added;
    vec![ManagerEntry {
        manager: BEFORE.to_owned(),
        operation: ManagerOperation::Update,
        api_version: kind.api_version(),
        subresource: String::new(),
        time: Some(time::rfc3339(now)),
        fields: owned(kind, all, ""),
    }]
}

/// The merged object without what this manager has applied before, unless somebody owns it: another manager, or this one by what it applies
/// now. What nobody owns was set by the server, and stays.
fn pruned(merged: Value, of: ValueShape, last: &FieldSet, owned: &FieldSet) -> Value {
    let named = |set: &FieldSet| typed::with_named(set, of);
    let all = |value: &Value| named(&typed::fields(value, of).unwrap_or_default());
    let without = |places: &FieldSet| typed::remove_fields(&merged, places, of).unwrap_or_else(|| json!({}));
    let (last, everything) = (named(last), all(&merged));
    // First all that was applied goes with all that is below it, then what is owned comes back, then what was never this manager's.
    let rest = all(&without(&last));
    let rest = all(&without(&everything.difference(&rest.union(&named(owned)))));
    without(&everything.difference(&rest).intersection(&last))
}

/// The conflicts that kubectl does not have with itself: what it has applied on the client's side, and what still stands so, it takes over.
fn conflicts_but(kind: &Kind, conflicts: &Conflicts, live: Option<&Object>, who: FieldApplier) -> Conflicts {
    let own =
        live.filter(|_| who.manager == KUBECTL).and_then(|live| applied_by_client(kind, live)).unwrap_or_default();
    let left = conflicts.iter().map(|(entry, fields)| (entry.clone(), fields.difference(&own)));
    left.filter(|(_, fields)| !fields.is_empty()).collect()
}

/// The fields that stand as they were applied on the client's side.
fn applied_by_client(kind: &Kind, live: &Object) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(live.annotation(LAST_APPLIED)?).ok()?;
    if last["apiVersion"] != live.0["apiVersion"] {
        return None;
    }
    let of = ValueShape::for_kind(kind);
    let changes = typed::changes(&last, &live.0, of);
    let fields = typed::fields(&last, of).ok()?;
    Some(fields.difference(&changes.added).difference(&changes.modified).difference(&changes.removed))
}

/// The refusal, as Kubernetes words it.
fn refusal(kind: &Kind, config: &Object, conflicts: &Conflicts) -> Status {
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
    Status { causes, ..Status::new(Reason::Conflict, message).with_details(kind.resource, config.name()) }
}

fn conflict_cause(entry: &ManagerEntry, path: &str) -> Cause {
    let message = format!("conflict with {}", manager_text(entry));
    Cause { reason: "FieldManagerConflict".to_owned(), field: path.to_owned(), message }
}

/// A manager as it is told.
fn manager_text(entry: &ManagerEntry) -> String {
    let mut told = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        told += &format!(" with subresource {:?}", entry.subresource);
    }
    if entry.operation == ManagerOperation::Update {
        told += &format!(" using {}", entry.api_version);
    }
    told
}
