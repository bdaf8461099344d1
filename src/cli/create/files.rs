//! `kloop create -f`: new objects, from manifests.

use crate::apiserver::FieldValidation;
use crate::apiserver::create::create;
use crate::cli::files::{self, FileFlags, Manifest};
use crate::cli::flags::{self, DryRun, MakeFlags};
use crate::cli::{Context, Failure, Outcome, targets};

/// Flags of `create -f`.
#[derive(clap::Args)]
pub struct FromFiles {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    make: MakeFlags,
}

/// Runs the verb.
pub fn run(args: FromFiles, context: &mut Context) -> Outcome {
    args.files.required()?;
    let dry_run = args.make.change.dry_run(context)?;
    let validation = args.make.validate.parse()?;
    let (manifests, mut failures) = files::read_for(&args.files, "create")?;
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
    let mut object = targets::placed(manifest, kind, &key);
    targets::refuse_duplicates(kind, manifest, validation)?;
    // kubectl makes a new object of what an older one was printed as.
    object.unset(&["metadata", "resourceVersion"]);
    // As kubectl: a version in a manifest means nothing for an object that is new.
    object.unset(&["metadata", "resourceVersion"]);
    object = args.make.noted(object);
    if dry_run != DryRun::Client {
        let options = flags::options(validation, dry_run);
        let done =
            context.api_for(options.dry_run)?.write(options.dry_run, |ledger| create(ledger, kind, &object, &options));
        let done = done.map_err(|status| Failure::in_manifest(status, "creating", manifest))?;
        context.warn(&done.warnings);
        object = done.object;
    }
    args.make.change.tell(context, kind, &object, "created", dry_run)
}
