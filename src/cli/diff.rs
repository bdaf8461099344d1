//! `kloop diff`: shows the changes that an apply would make.

use super::apply::prune::find_pruned;
use super::cluster::past::AtFlag;
use super::cluster::targets;
use super::command_line::dry_run::DryRun;
use super::command_line::flags::LabelFlag;
use super::manifests::files::{self, FileFlags, Manifest};
use super::manifests::portable::make_portable;
use super::{CliResult, CommandContext, Failure, history, undo};
use crate::apiserver::FieldValidation;
use crate::apiserver::apply;
use crate::apiserver::apply_patch::apply_patch;
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::UpdatePart;
use crate::kinds::Kind;
use crate::kinds::shared::manifest_folder;
use crate::managed_fields::apply::{ApplyManager, KUBECTL};
use crate::object::LAST_APPLIED;
use crate::object::{Key, Object, io_error_text, yaml};
use serde_json::{Map, Value};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Diff the live version against a would-be applied version.
///
/// The output is always YAML.
///
/// KUBECTL_EXTERNAL_DIFF environment variable can be used to select your own diff command. By default, the "diff" command
/// available in your path will be run with the "-u" (unified diff) and "-N" (treat absent files as empty) options.
///
/// Exit status: 0 No differences were found. 1 Differences were found. >1 kloop or diff failed with an error.
#[derive(clap::Args)]
#[command(
    override_usage = "-f FILENAME",
    after_help = "\
# Diff resources included in pod.json
kloop diff -f pod.json

# Diff file read from stdin
cat service.yaml | kloop diff -f -

# Diff what a server-side apply would do
kloop diff --server-side -f pod.json

# Show what commands have changed in the last ten minutes, of everything or of one object
kloop diff --at=-10m
kloop diff deployment/web --at 120"
)]
pub struct Args {
    /// With --at: TYPE/NAME of the objects to compare [default: all that commands have changed].
    #[arg(value_name = "TYPE/NAME")]
    words: Vec<String>,
    #[command(flatten)]
    at: AtFlag,
    #[command(flatten)]
    files: FileFlags,
    /// Accepted for compatibility with kubectl; objects are compared one after another.
    #[arg(long, default_value_t = 1, value_name = "N")]
    concurrency: u32,
    /// Name of the manager used to track field ownership.
    #[arg(long, value_name = "NAME")]
    field_manager: Option<String>,
    /// If true, apply runs in the server instead of the client.
    #[arg(long)]
    server_side: bool,
    /// If true, server-side apply will force the changes against conflicts.
    #[arg(long)]
    force_conflicts: bool,
    /// Include resources that would be deleted by pruning. Can be used with -l and default shows all resources would be pruned.
    #[arg(long)]
    prune: bool,
    /// Overwrite the default allowlist with <group/version/kind> for --prune.
    #[arg(long, value_name = "GROUP/VERSION/KIND", value_delimiter = ',')]
    prune_allowlist: Vec<String>,
    #[command(flatten)]
    labels: LabelFlag,
    /// If true, include managed fields in the diff.
    #[arg(long)]
    show_managed_fields: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    compare(&args, context).map_err(|failure| match failure {
        Failure::Code(code) => Failure::Code(code),
        failure => {
            context.print_notice(&failure.to_string());
            // The exit code 1 means differences.
            Failure::Code(failure.code().max(2))
        }
    })
}

fn compare(args: &Args, context: &mut CommandContext) -> CliResult {
    if let Some(revision) = args.at.revision(context)? {
        return compare_with_past(args, context, revision);
    }
    if !args.words.is_empty() {
        return Err(Failure::plain(
            "objects are compared by name with an earlier state only: add --at, or name files with -f",
        ));
    }
    args.files.required()?;
    if args.force_conflicts && !args.server_side {
        return Err(Failure::plain("--force-conflicts only works with --server-side"));
    }
    let (manifests, failures) = files::read_selected(context, &args.files, &args.labels)?;
    Failure::from_failures(failures)?;
    let (live, merged) = (PrivateFolder::new("LIVE")?, PrivateFolder::new("MERGED")?);
    for manifest in &manifests {
        write_versions(args, context, manifest, &live, &merged)?;
    }
    if args.prune {
        let mut kept = Vec::new();
        for manifest in &manifests {
            kept.push(targets::named(context, manifest)?.1);
        }
        for (kind, mut object) in find_pruned(context, &kept, &args.prune_allowlist, args.labels.parse()?)? {
            if kind.kind == "Secret" {
                mask(None, &mut object);
            }
            live.write(&version_name(kind, &key_of(kind, &object)), object, args.show_managed_fields)?;
        }
    }
    show(context, &live.0, &merged.0)
}

/// Compares the present state with that at a revision.
fn compare_with_past(args: &Args, context: &mut CommandContext, revision: u64) -> CliResult {
    if !args.files.is_empty() {
        return Err(Failure::plain("--at compares with the present state, and takes no files"));
    }
    let named = match &args.words[..] {
        [] => None,
        words => Some(history::parse_keys(context, words)?),
    };
    let versions = undo::find_versions(context, revision, named.as_deref())?;
    let (past, now) = (PrivateFolder::new("PAST")?, PrivateFolder::new("NOW")?);
    for (kind, key, mut before, after) in versions {
        let mut after = after.unwrap_or(Object(Value::Null));
        if kind.kind == "Secret" {
            mask(before.as_mut(), &mut after);
        }
        let name = version_name(kind, &key);
        for (folder, object) in [(&past, before), (&now, Some(after))] {
            if let Some(object) = object.filter(|object| object.0.is_object()) {
                folder.write(&name, make_portable(&object, kind), false)?;
            }
        }
    }
    show(context, &past.0, &now.0)
}

/// The name of an object's file in the compared folders.
fn version_name(kind: &Kind, key: &Key) -> String {
    let group = kind.resource.group();
    let group = if group.is_empty() { String::new() } else { format!("{group}.") };
    format!("{group}{}.{}.{}.{}", kind.version, kind.kind, key.namespace, key.name)
}

/// Writes the current and the changed version of an object into the two folders.
fn write_versions(
    args: &Args,
    context: &mut CommandContext,
    manifest: &Manifest,
    live: &PrivateFolder,
    merged: &PrivateFolder,
) -> CliResult {
    let (kind, key) = targets::named(context, manifest)?;
    let object = targets::prepare_object(manifest, kind, &key);
    let options = context.options(FieldValidation::Strict, DryRun::Server);
    let mut before = context.read_view(|txn| txn.get(&key))?;
    let name = args.field_manager.as_deref().unwrap_or(KUBECTL);
    let applier = ApplyManager { name, force: args.force_conflicts };
    let done = context.api_for(true)?.write(true, |txn| match args.server_side {
        true => apply_patch(txn, kind, &object, applier, UpdatePart::Main, &options),
        false => apply::apply(txn, kind, &object, true, &options),
    });
    let mut after = done?.object;
    copy_unstable_fields(&mut after, before.as_ref(), args.server_side);
    before.iter_mut().chain([&mut after]).for_each(manifest_folder::remove);
    if kind.kind == "Secret" {
        mask(before.as_mut(), &mut after);
    }
    let name = version_name(kind, &key);
    if let Some(before) = before {
        live.write(&name, before, args.show_managed_fields)?;
    }
    merged.write(&name, after, args.show_managed_fields)
}

/// Hides differences that only a real write would make: the resourceVersion and the last-applied
/// annotation.
fn copy_unstable_fields(after: &mut Object, before: Option<&Object>, server_side: bool) {
    let last_applied = ["metadata", "annotations", LAST_APPLIED];
    let paths = [&["metadata", "resourceVersion"][..], &last_applied];
    for path in &paths[..if server_side { 1 } else { 2 }] {
        match before.and_then(|before| before.value_at(path)) {
            Some(value) => after.set(path, value.clone()),
            None => {
                after.unset(path);
            }
        }
    }
    if after.value_at(&["metadata", "annotations"]).and_then(Value::as_object).is_some_and(Map::is_empty) {
        after.unset(&["metadata", "annotations"]);
    }
    // The last-applied annotation alone raises the generation of some kinds.
    let without_counters = |object: &Object| {
        let mut compared = object.clone();
        for field in ["generation", "managedFields"] {
            compared.unset(&["metadata", field]);
        }
        compared
    };
    if let Some(before) = before.filter(|before| without_counters(before) == without_counters(after)) {
        *after = before.clone();
    }
}

/// Hides a Secret's values, but shows which of them change. kubectl: `Masker`.
fn mask(before: Option<&mut Object>, after: &mut Object) {
    let entries = |object: &Object| object.value_at(&["data"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let old = before.as_ref().map(|before| entries(before)).unwrap_or_default();
    let new = entries(after);
    for (key, value) in &new {
        let text = if old.get(key).is_some_and(|old| old != value) { "*** (after)" } else { "***" };
        after.set(&["data", key], text);
    }
    let Some(before) = before else { return };
    for (key, value) in &old {
        let text = if new.get(key).is_some_and(|new| new != value) { "*** (before)" } else { "***" };
        before.set(&["data", key], text);
    }
}

/// A private folder that is removed on drop.
struct PrivateFolder(PathBuf);

impl PrivateFolder {
    fn new(what: &str) -> CliResult<PrivateFolder> {
        let path =
            std::env::temp_dir().join(format!("{what}-{:010}", crate::apiserver::api::random() % 10_000_000_000));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(PrivateFolder(path))
    }

    fn write(&self, name: &str, mut object: Object, with_managed_fields: bool) -> CliResult {
        if !with_managed_fields {
            object.unset(&["metadata", "managedFields"]);
        }
        Ok(std::fs::write(self.0.join(name), yaml::to_yaml(&object.0))?)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the temporary folder.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Runs the diff program: `$KUBECTL_EXTERNAL_DIFF`, or `diff -u -N`.
fn show(context: &mut CommandContext, live: &Path, merged: &Path) -> CliResult {
    let program = std::env::var("KUBECTL_EXTERNAL_DIFF").ok().filter(|program| !program.is_empty());
    let program = program.unwrap_or_else(|| "diff -u -N".into());
    let mut words = program.split_whitespace();
    let Some(name) = words.next() else { return Ok(()) };
    let done = Command::new(name).args(words).arg(live).arg(merged).output();
    let done = done
        .map_err(|error| Failure::plain(format!("failed to run {program:?}: {error}", error = io_error_text(error))))?;
    context.print(&String::from_utf8_lossy(&done.stdout))?;
    let text = String::from_utf8_lossy(&done.stderr);
    if !text.is_empty() {
        context.print_notice(text.trim_end());
    }
    match done.status.code() {
        Some(0) => Ok(()),
        Some(1) => Err(Failure::Code(1)),
        code => Err(Failure::plain(format!("{program:?} failed: exit status {}", code.unwrap_or(2)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secret_values_are_masked() {
        let mut before = Object(json!({"data": {"same": "a", "other": "b", "gone": "c"}}));
        let mut after = Object(json!({"data": {"same": "a", "other": "x", "new": "y"}}));
        mask(Some(&mut before), &mut after);
        assert_eq!(before.0["data"], json!({"same": "***", "other": "*** (before)", "gone": "***"}));
        assert_eq!(after.0["data"], json!({"same": "***", "other": "*** (after)", "new": "***"}));
    }
}
