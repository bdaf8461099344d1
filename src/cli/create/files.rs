//! `kloop create -f`: creates objects from manifests.

use super::reviews;
use crate::apiserver::Transaction;
use crate::apiserver::create::create;
use crate::cli::cluster::raw_request::RawFlag;
use crate::cli::cluster::{control_plane, targets};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::{LabelFlag, LineEndingsFlag, MakeFlags};
use crate::cli::edit::edit_text;
use crate::cli::manifests::files::{self, FileFlags, Manifest};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::object::{Object, Status, yaml};

/// Flags of `create -f`.
#[derive(clap::Args)]
pub struct FromFiles {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    make: MakeFlags,
    #[command(flatten)]
    raw: RawFlag,
    /// Edit the API resource before creating.
    #[arg(long)]
    edit: bool,
    #[command(flatten)]
    line_endings: LineEndingsFlag,
    #[command(flatten)]
    labels: LabelFlag,
}

/// Runs the verb.
pub fn run(args: FromFiles, context: &mut CommandContext) -> CliResult {
    let excluded = [("edit", args.edit), ("selector (-l)", args.labels.text().is_some())];
    if let Some((flag, _)) = excluded.iter().find(|(_, is_set)| *is_set && args.raw.is_set()) {
        return Err(Failure::plain(format!("--raw and --{flag} are mutually exclusive")));
    }
    if args.raw.send("POST", &args.files, args.make.change.print.output.as_deref(), context)? {
        return Ok(());
    }
    args.files.required()?;
    let dry_run = args.make.change.dry_run(context)?;
    let validation = args.make.validate.parse()?;
    let (mut manifests, mut failures) = read_selected(&args, context)?;
    targets::hint_duplicates(context, &manifests);
    if args.edit && !edit_manifests(&mut manifests, args.line_endings.is_windows(), context)? {
        return Ok(());
    }
    let options = context.options(validation, dry_run);
    // Report failures in the order of the manifests.
    let (mut ready, mut refused, mut needs_plane) = (Vec::new(), Vec::new(), None);
    for (place, manifest) in manifests.iter().enumerate() {
        if let Some(answered) = reviews::send(context, manifest) {
            let print = |(answer, line): (Object, String)| args.make.change.print.result(context, &answer, &line);
            refused.extend(answered.and_then(print).err().map(|failure| (place, failure)));
            continue;
        }
        match sent(&args, context, manifest, dry_run) {
            Ok((kind, object)) => ready.push((place, manifest, kind, object)),
            Err(failure) => refused.push((place, failure)),
        }
    }
    if dry_run == DryRun::Client {
        for (place, _, kind, object) in ready {
            let result = args.make.change.print_change(context, kind, &object, "created", dry_run);
            refused.extend(result.err().map(|failure| (place, failure)));
        }
    } else {
        let write = |txn: &mut dyn Transaction, (_, _, kind, object): &(_, _, &'static Kind, _)| {
            create(txn, kind, object, &options)
        };
        let ended = context.write_each(options.dry_run, ready, write, |context, (place, manifest, kind, _), done| {
            let result = match done {
                Ok(done) => {
                    context.warn(&done.warnings);
                    needs_plane = needs_plane.or(Some(kind).filter(|kind| control_plane::is_needed_for(kind)));
                    args.make.change.print_change(context, kind, &done.object, "created", dry_run)
                }
                Err(status) => Err(refusal(context, kind, manifest, status)),
            };
            refused.extend(result.err().map(|failure| (place, failure)));
        });
        failures.extend(ended.err());
        if let Some(kind) = needs_plane {
            control_plane::print_hint_for(kind, dry_run, context)?;
        }
    }
    refused.sort_by_key(|(place, _)| *place);
    failures.extend(refused.into_iter().map(|(_, failure)| failure));
    Failure::from_failures(failures)
}

/// Reads the manifests that the selector matches, and failures to read others.
fn read_selected(args: &FromFiles, context: &mut CommandContext) -> CliResult<(Vec<Manifest>, Vec<Failure>)> {
    files::read_selected_for(context, &args.files, &args.labels, "create")
}

/// Has the user edit the objects before they are created; false when the user changes nothing.
fn edit_manifests(manifests: &mut [Manifest], windows: bool, context: &mut CommandContext) -> CliResult<bool> {
    for manifest in manifests {
        let Some(text) = edit_text(context, &yaml::to_yaml(&manifest.object.0), windows)? else { return Ok(false) };
        let documents = yaml::documents(&text).map_err(|error| Failure::plain(error.to_string()))?;
        let Some(document) = documents.into_iter().next() else { return Ok(false) };
        manifest.object = Object(document.value);
    }
    Ok(true)
}

/// The API server's refusal of a manifest, with its warning about the kind.
fn refusal(context: &mut CommandContext, kind: &Kind, manifest: &Manifest, status: Status) -> Failure {
    targets::warn_of_manifest(context, kind, manifest);
    manifest.refusal("creating", status)
}

/// Returns the object to send for a manifest.
fn sent(
    args: &FromFiles,
    context: &CommandContext,
    manifest: &Manifest,
    dry_run: DryRun,
) -> CliResult<(&'static Kind, Object)> {
    let (kind, key) = targets::locate_for(context, manifest, dry_run)?;
    let mut object = targets::prepare_object(manifest, kind, &key);
    // As in kubectl, a resourceVersion in the manifest of a new object has no effect.
    // `--dry-run=client` prints it as written.
    if dry_run != DryRun::Client {
        object.unset(&["metadata", "resourceVersion"]);
    }
    Ok((kind, args.make.noted(context, object)))
}
