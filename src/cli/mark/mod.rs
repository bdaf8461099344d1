//! Common parts of `kloop label` and `kloop annotate`.
//!
//! Knows: their flags, and how arguments change objects ([`run`]). [`MarkKind`] contains the
//! differences.

pub mod annotate;
pub mod label;

use super::cluster::change::change;
use super::cluster::targets::{self, Scope, ScopeFlags, Target};
use super::command_line::dry_run::DryRun;
use super::command_line::flags::ChangeFlags;
use super::manifests::key_changes::{self, KeyChanges};
use super::{CliResult, CommandContext, Failure};
use crate::object::Object;
use serde_json::{Map, Value};

/// Flags of both verbs.
#[derive(clap::Args)]
struct MarkFlags {
    /// TYPE NAME or TYPE/NAME, then KEY=VALUE to set and KEY- to remove.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    #[command(flatten)]
    scope: ScopeFlags,
    #[command(flatten)]
    change: ChangeFlags,
    /// If true, allow existing values to be overwritten, otherwise reject updates that overwrite them.
    #[arg(long)]
    overwrite: bool,
    /// If true, display what a given resource has.
    #[arg(long)]
    list: bool,
    /// If true, will NOT contact the api-server but run locally.
    #[arg(long)]
    local: bool,
    /// If present, list the requested object(s) across all namespaces. Namespace in current context is ignored even if specified
    /// with --namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// If non-empty, the update will only succeed if this is the current resource-version for the object.
    #[arg(long, value_name = "VERSION")]
    resource_version: Option<String>,
}

/// The difference between labels and annotations.
struct MarkKind {
    /// `label`.
    noun: &'static str,
    /// The field of `metadata`.
    field: &'static str,
    /// Parses the pairs.
    parse: fn(&[String]) -> CliResult<KeyChanges>,
    /// Returns the error for keys that already have other values.
    conflict_error: fn(&[(&str, &str)]) -> String,
    /// Returns the printed word, from the pairs and whether the object changed.
    done: fn(&KeyChanges, bool) -> &'static str,
}

fn run(flags: &MarkFlags, context: &mut CommandContext, mark: &MarkKind) -> CliResult {
    let (resources, changes) = key_changes::divide(&flags.words, mark.noun)?;
    let pairs = (mark.parse)(&changes)?;
    if resources.is_empty() && flags.scope.files.is_empty() {
        let text = "one or more resources must be specified as <resource> <name> or <resource>/<name>";
        return Err(Failure::plain(text));
    }
    if flags.scope.all && flags.scope.select.labels.text().is_some() {
        return Err(Failure::plain("cannot set --all and --selector at the same time"));
    }
    if flags.local && flags.scope.files.is_empty() {
        let file = if mark.noun == "label" { "pod" } else { "rsrc" };
        return Err(Failure::plain(format!(
            "can only use local files by -f {file}.yaml or --filename={file}.json when --local=true is set"
        )));
    }
    if pairs == KeyChanges::default() && !flags.list {
        return Err(Failure::plain(format!("at least one {} update is required", mark.noun)));
    }
    let dry_run = flags.change.dry_run(context)?;
    let scope = Scope { all_namespaces: flags.all_namespaces, ..flags.scope.with_local(&resources, flags.local) };
    let (found, mut failures) = targets::find(context, &scope)?;
    if flags.resource_version.is_some() && found.len() > 1 {
        return Err(Failure::plain("--resource-version may only be used with a single resource"));
    }
    for target in &found {
        let done = match flags.list {
            true => list(context, target, mark, found.len() == 1),
            false => mark_object(flags, context, target, mark, &pairs, dry_run),
        };
        failures.extend(done.err());
    }
    Failure::from_failures(failures)
}

fn list(context: &mut CommandContext, target: &Target, mark: &MarkKind, single: bool) -> CliResult {
    let mut text = String::new();
    if !single {
        let (kind, group) = (target.kind.kind, target.kind.resource.group());
        context.print_notice(&format!("Listing {} for {kind}.{group}/{}:", mark.field, target.object.name()));
    }
    for (key, value) in target.object.pairs(&["metadata", mark.field]) {
        let indent = if single { "" } else { " " };
        text.push_str(&format!("{indent}{key}={value}\n"));
    }
    context.print(&text)
}

fn mark_object(
    flags: &MarkFlags,
    context: &mut CommandContext,
    target: &Target,
    mark: &MarkKind,
    pairs: &KeyChanges,
    dry_run: DryRun,
) -> CliResult {
    let dry_run_here = if flags.local { DryRun::Client } else { dry_run };
    let mut missing = Vec::new();
    let reply = change(context, target, dry_run_here, |object| {
        if !flags.overwrite {
            refuse_conflicts(object, mark, pairs)?;
        }
        missing = edit(object, mark.field, pairs);
        if let Some(version) = &flags.resource_version {
            object.set(&["metadata", "resourceVersion"], version.as_str());
        }
        Ok(())
    })?;
    if flags.change.prints_lines() && mark.field == "labels" {
        for key in missing {
            context.print_line(&format!("label {key:?} not found."))?;
        }
    }
    let word = (mark.done)(pairs, reply.changed);
    flags.change.print_change(context, target.kind, &reply.object, word, dry_run)
}

fn refuse_conflicts(object: &Object, mark: &MarkKind, pairs: &KeyChanges) -> CliResult {
    let other = |(key, value): &(String, String)| {
        let now = object.text(&["metadata", mark.field, key])?;
        (now != value).then(|| (key.clone(), now.to_owned()))
    };
    let conflicts: Vec<(String, String)> = pairs.set.iter().filter_map(other).collect();
    let conflicts: Vec<(&str, &str)> = conflicts.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    if conflicts.is_empty() { Ok(()) } else { Err(Failure::plain((mark.conflict_error)(&conflicts))) }
}

/// Sets and removes keys. Returns the keys to remove that do not exist.
fn edit(object: &mut Object, field: &str, pairs: &KeyChanges) -> Vec<String> {
    for (key, value) in &pairs.set {
        object.set(&["metadata", field, key], value.as_str());
    }
    let missing: Vec<String> =
        pairs.remove.iter().filter(|key| !object.unset(&["metadata", field, key])).cloned().collect();
    if object.value_at(&["metadata", field]).and_then(Value::as_object).is_some_and(Map::is_empty) {
        object.unset(&["metadata", field]);
    }
    missing
}
