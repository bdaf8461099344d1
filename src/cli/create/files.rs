//! `kloop create -f`: new objects, from manifests.

use crate::apiserver::FieldValidation;
use crate::apiserver::apply::with_last_applied;
use crate::apiserver::create::create;
use crate::cli::apply::refuse_duplicates;
use crate::cli::files::{self, FileFlags, Manifest};
use crate::cli::flags::{self, DryRun, PrintFlags, ValidateFlag, WriteFlags};
use crate::cli::relative::record_folder;
use crate::cli::{Context, Failure, Outcome, targets};

/// Flags of `create -f`.
#[derive(clap::Args)]
pub struct FromFiles {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    print: PrintFlags,
    #[command(flatten)]
    write: WriteFlags,
    #[command(flatten)]
    validate: ValidateFlag,
    /// If true, the configuration of current object will be saved in its annotation, for later applies.
    #[arg(long, num_args = 0..=1, default_value = "false", default_missing_value = "true", require_equals = true)]
    save_config: bool,
}

/// Runs the verb.
pub fn run(args: FromFiles, context: &mut Context) -> Outcome {
    if args.files.is_empty() {
        return Err(Failure::plain("must specify one of -f and -k"));
    }
    let dry_run = args.write.dry_run(context)?;
    let validation = args.validate.parse()?;
    let (manifests, mut failures) = files::read(&args.files)?;
    if manifests.is_empty() && failures.is_empty() {
        return Err(Failure::plain("no objects passed to create"));
    }
    for manifest in &manifests {
        if let Err(failure) = one(&args, context, manifest, dry_run, validation) {
            failures.push(failure);
        }
    }
    Failure::all(failures)
}

fn one(
    args: &FromFiles,
    context: &mut Context,
    manifest: &Manifest,
    dry_run: DryRun,
    validation: FieldValidation,
) -> Outcome {
    let (kind, key) = targets::locate(context, manifest)?;
    let mut object = manifest.object.clone();
    if kind.namespaced {
        object.set(&["metadata", "namespace"], &*key.namespace);
    }
    record_folder(&mut object, manifest);
    refuse_duplicates(kind, manifest, validation)?;
    // kubectl makes a new object of what an older one was printed as.
    object.unset(&["metadata", "resourceVersion"]);
    // As kubectl: a version in a manifest means nothing for an object that is new.
    object.unset(&["metadata", "resourceVersion"]);
    if args.save_config {
        object = with_last_applied(&object);
    }
    if dry_run != DryRun::Client {
        let options = flags::options(validation, dry_run);
        let done = context.api()?.write(options.dry_run, |ledger| create(ledger, kind, &object, &options));
        let done = done.map_err(|status| Failure::in_manifest(status, "creating", manifest))?;
        context.warn(&done.warnings);
        object = done.object;
    }
    let line = format!("{} created{}", context.name_of(kind, &object), dry_run.suffix());
    args.print.result(context, &object, &line)
}
