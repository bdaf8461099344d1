//! `kloop undo`: brings objects back to how they were, as new changes through the API server.
//!
//! Never: writes to the store itself, or brings back a status. Start reading at [`find_targets`], which compares the changes of commands
//! with the present state.

use super::cluster::{control_plane, past};
use super::command_line::dry_run::DryRun;
use super::history::{format_change, writer_name};
use super::manifests::portable::strip_server_fields;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::create::create;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Api, FieldValidation, Transaction};
use crate::kinds::{Kind, KindRegistry};
use crate::object::{Key, Object, Reason, Status};
use crate::show::changes::{FieldChange, field_changes};
use crate::store::past::read_log_back;
use crate::store::{LogEntry, StoreRead, StoreResult};
use std::collections::HashMap;

/// Bring objects back to how they were.
///
/// Without a revision, undoes the last command that changed something; a second "kloop undo" undoes that again. With a revision,
/// a time or a duration, brings back everything that commands have changed since: deleted objects are created again, changed ones
/// get their earlier spec, and later ones are deleted. The changes of control loops, such as status and pods, follow from that.
///
/// Every change passes the API server like any other and gets a new revision. "kloop history" lists revisions.
#[derive(clap::Args)]
#[command(
    override_usage = "[REVISION | TIME | -DURATION] [--dry-run]",
    after_help = "\
# Undo the last command
kloop undo

# What would be done to go back ten minutes?
kloop undo -10m --dry-run

# Go back to revision 120
kloop undo 120"
)]
pub struct Args {
    /// A revision, a time (RFC3339), or a time ago, as in -10m.
    #[arg(value_name = "REVISION", allow_hyphen_values = true)]
    to: Option<String>,
    /// Print the changes without making them.
    #[arg(long)]
    dry_run: bool,
}

/// Entries of the log that are read at once.
const BATCH: usize = 256;

/// Kinds whose objects are not brought back: they follow from others, or from machines.
const FOLLOWING: [&str; 6] = [
    "events",
    "nodes",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "leases.coordination.k8s.io",
    "controllerrevisions.apps",
];

/// An object to bring back.
struct UndoTarget {
    kind: &'static Kind,
    key: Key,
    /// The earlier state; `None` when it did not exist.
    before: Option<Object>,
    /// The present state; `None` when it was deleted.
    now: Option<Object>,
    /// The fields that change.
    changes: Vec<FieldChange>,
}

impl UndoTarget {
    /// The past participle for the change of the object, such as `deleted`.
    fn word(&self) -> &'static str {
        match (&self.before, &self.now) {
            (None, _) => "deleted",
            (_, None) => "created again",
            _ => "restored",
        }
    }
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let to = args.to.as_deref().map(|text| past::find_revision(context, text)).transpose()?;
    let kinds = context.kinds().clone();
    let api = context.require_existing()?;
    if let Some(to) = to {
        check_revision(api, to)?;
    }
    let targets = api.read(|snapshot| {
        let to = to.map_or_else(|| revision_before_last_command(snapshot), |to| Ok(Some(to)))?;
        to.map_or(Ok(Vec::new()), |to| find_targets(snapshot, to, &kinds))
    })?;
    if targets.is_empty() {
        context.print_notice("nothing to undo: no command has changed anything since");
        return Ok(());
    }
    let dry_run = if args.dry_run { DryRun::Server } else { DryRun::None };
    let options = context.options(FieldValidation::Ignore, dry_run);
    let mut failures = Vec::new();
    let needs_plane = targets.iter().map(|target| target.kind).find(|kind| control_plane::is_needed_for(kind));
    let write = |txn: &mut dyn Transaction, target: &UndoTarget| match (&target.before, &target.now) {
        (None, None) => Ok(()),
        (None, Some(now)) => {
            let options = DeleteOptions { uid: Some(now.uid().to_owned()), ..DeleteOptions::default() };
            delete(txn, target.kind, &target.key, &options).map(drop)
        }
        (Some(before), None) => create(txn, target.kind, &strip_server_fields(before, target.kind), &options).map(drop),
        (Some(before), Some(now)) => {
            update(txn, target.kind, &with_identity(before, now), UpdatePart::Main, &options).map(drop)
        }
    };
    let written = context.write_each(options.dry_run, targets, write, |context, target, done: Result<(), Status>| {
        let printed = match done {
            // It was deleted together with its owner or its namespace.
            Err(status) if target.before.is_none() && status.reason == Reason::NotFound => Ok(()),
            Err(status) => Err(Failure::doing(status, format!("error when undoing changes of {}", target.key.name))),
            Ok(()) => print_target(context, &target, if args.dry_run { DryRun::Client } else { DryRun::None }),
        };
        failures.extend(printed.err());
    });
    failures.extend(written.err());
    if let Some(kind) = needs_plane {
        control_plane::print_hint_for(kind, dry_run, context)?;
    }
    Failure::from_failures(failures)
}

fn print_target(context: &mut CommandContext, target: &UndoTarget, dry_run: DryRun) -> CliResult {
    let Some(object) = target.before.as_ref().or(target.now.as_ref()) else { return Ok(()) };
    let name = context.name_of(target.kind, object);
    context.print_line(&format!("{name} {}{}", target.word(), dry_run.suffix()))?;
    let lines: String = target.changes.iter().map(|change| format!("    {}\n", format_change(change))).collect();
    context.print_styled(&lines)
}

/// Refuses a revision that is compacted, or does not exist yet.
fn check_revision(api: &Api, revision: u64) -> CliResult {
    let (floor, head) = api.read(|snapshot| Ok((snapshot.floor()?, snapshot.revision()?)))?;
    if revision < floor || revision > head {
        return Err(Failure::plain(format!(
            "the history has revisions {floor} to {head}, and not {revision}; kloop history shows them"
        )));
    }
    Ok(())
}

/// An object at an earlier revision and now.
pub type ObjectVersions = (&'static Kind, Key, Option<Object>, Option<Object>);

/// Returns the earlier and the present version of objects that commands have changed since a revision, of all or of these keys.
pub fn find_versions(
    context: &mut CommandContext,
    revision: u64,
    keys: Option<&[Key]>,
) -> CliResult<Vec<ObjectVersions>> {
    let kinds = context.kinds().clone();
    let Some(api) = context.existing()? else { return Ok(Vec::new()) };
    check_revision(api, revision)?;
    let targets = api.read(|snapshot| find_targets(snapshot, revision, &kinds))?;
    let targets = targets.into_iter().filter(|target| keys.is_none_or(|keys| keys.contains(&target.key)));
    Ok(targets.map(|target| (target.kind, target.key, target.before, target.now)).collect())
}

/// Whether an entry was written by a command or over HTTP, and not by the control plane.
fn is_by_a_command(entry: &LogEntry) -> bool {
    let by = writer_name(&entry.actor);
    (by.starts_with("kloop ") && by != "kloop reconcile") || by == "serve"
}

/// Returns the revision before the last command that changed something; `None` without one.
fn revision_before_last_command(snapshot: &dyn StoreRead) -> StoreResult<Option<u64>> {
    let (mut from, mut last): (u64, Option<LogEntry>) = (snapshot.revision()?, None);
    loop {
        let entries = read_log_back(snapshot, from, BATCH)?;
        let Some(lowest) = entries.last().map(|entry| entry.revision) else { break };
        for entry in entries.into_iter().filter(is_by_a_command) {
            match &last {
                // A server writes for many clients: each of its writes is undone by itself.
                Some(last) if last.actor != entry.actor || &*entry.actor == "serve" => {
                    return Ok(Some(last.revision - 1));
                }
                _ => last = Some(entry),
            }
        }
        if lowest <= 1 {
            break;
        }
        from = lowest - 1;
    }
    Ok(last.map(|entry| entry.revision - 1))
}

/// Returns the objects that commands have changed since a revision and that differ from their state then, later ones last.
fn find_targets(snapshot: &dyn StoreRead, to: u64, kinds: &KindRegistry) -> StoreResult<Vec<UndoTarget>> {
    let mut changed: HashMap<Key, (Option<Object>, u64)> = HashMap::new();
    let mut touched: Vec<Key> = Vec::new();
    let mut from = snapshot.revision()?;
    let parse = |text: &str| serde_json::from_str(text).ok().map(Object);
    loop {
        let entries = read_log_back(snapshot, from, BATCH)?;
        let Some(lowest) = entries.last().map(|entry| entry.revision) else { break };
        for entry in entries.iter().filter(|entry| entry.revision > to) {
            let key = &entry.change.stored().key;
            if is_by_a_command(entry) {
                touched.push(key.clone());
            }
            // The oldest entry above the revision has the state at the revision as its previous one.
            changed.insert(key.clone(), (entry.previous.as_deref().and_then(parse), entry.revision));
        }
        if lowest <= to.max(1) {
            break;
        }
        from = lowest - 1;
    }
    touched.sort();
    touched.dedup();
    let mut targets = Vec::new();
    for key in touched {
        let Some((before, revision)) = changed.remove(&key) else { continue };
        let Some(kind) = kinds.by_resource(key.resource).filter(|kind| !FOLLOWING.contains(&kind.resource.0)) else {
            continue;
        };
        let now = snapshot.get(&key)?.and_then(|stored| parse(&stored.body)).filter(|now| now.deletion().is_none());
        let is_owned = before.iter().chain(&now).any(|object| object.controller().is_some());
        let changes = match (&before, &now) {
            (Some(before), Some(now)) => field_changes(&now.0, &before.0, false),
            _ => Vec::new(),
        };
        let is_same = before.is_some() == now.is_some() && changes.is_empty();
        if !is_owned && !is_same {
            targets.push((revision, UndoTarget { kind, key, before, now, changes }));
        }
    }
    // Objects are created in the order of their first change, and later ones are deleted in the opposite order.
    targets.sort_by_key(|(revision, target)| match target.before {
        Some(_) => (false, *revision),
        None => (true, u64::MAX - *revision),
    });
    Ok(targets.into_iter().map(|(_, target)| target).collect())
}

/// Returns an earlier state with the identity and the bookkeeping of the present object, which it replaces.
fn with_identity(before: &Object, now: &Object) -> Object {
    let mut object = before.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        let path = ["metadata", field];
        object.unset(&path);
        if let Some(value) = now.value_at(&path) {
            object.set(&path, value.clone());
        }
    }
    object.unset(&["metadata", "deletionTimestamp"]);
    object.unset(&["metadata", "deletionGracePeriodSeconds"]);
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn earlier_state_gets_the_identity_of_the_present_object() {
        let object = |uid: &str, version: &str, replicas: i64| {
            Object(
                json!({"metadata": {"name": "web", "uid": uid, "resourceVersion": version}, "spec": {"replicas": replicas}}),
            )
        };
        assert_eq!(with_identity(&object("a", "1", 1), &object("b", "9", 3)), object("b", "9", 1));
    }
}
