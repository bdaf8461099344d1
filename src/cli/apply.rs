//! `kloop apply`: makes the state what the manifests say.

use super::files::{self, FileFlags, Manifest};
use super::flags::{self, DryRun, PrintFlags, ValidateFlag, WriteFlags};
use super::{Context, Failure, Outcome, targets};
use crate::apiserver::apply::{self, Outcome as Applied};
use crate::apiserver::{FieldValidation, Options};
use crate::kinds::Kind;
use crate::object::{Object, Reason, Status};

/// Apply a configuration to a resource by file name or stdin.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    print: PrintFlags,
    #[command(flatten)]
    write: WriteFlags,
    #[command(flatten)]
    validate: ValidateFlag,
    /// Automatically resolve conflicts between the modified and live configuration by using values from the modified one.
    #[arg(long, num_args = 0..=1, default_value = "true", default_missing_value = "true", require_equals = true)]
    overwrite: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    if args.files.is_empty() {
        return Err(Failure::plain("must specify one of -f and -k"));
    }
    let dry_run = args.write.dry_run(context)?;
    let validation = args.validate.parse()?;
    let (manifests, mut failures) = files::read(&args.files)?;
    if manifests.is_empty() && failures.is_empty() {
        return Err(Failure::plain("no objects passed to apply"));
    }
    let mut applied = Vec::new();
    for manifest in &manifests {
        match one(&args, context, manifest, dry_run, validation) {
            Ok(object) => applied.push(object),
            Err(failure) => failures.push(failure),
        }
    }
    if let Some(mut printer) = args.print.printer()? {
        let text = match &applied[..] {
            [object] => printer.object(&object.0)?,
            _ => printer.list(applied.into_iter().map(|object| object.0).collect())?,
        };
        context.print(&text)?;
    }
    Failure::all(failures)
}

/// Applies one manifest, and says what was done unless objects are printed.
fn one(
    args: &Args,
    context: &mut Context,
    manifest: &Manifest,
    dry_run: DryRun,
    validation: FieldValidation,
) -> Outcome<Object> {
    let (kind, key) = targets::locate(context, manifest)?;
    let mut object = manifest.object.clone();
    if kind.namespaced {
        object.set(&["metadata", "namespace"], &*key.namespace);
    }
    if object.name().is_empty() {
        if let Some(base) = object.text(&["metadata", "generateName"]) {
            return Err(Failure::plain(format!("from {base}: cannot use generate name with apply")));
        }
        return Err(Failure::plain(format!(
            "error when retrieving current configuration of:\n{}",
            missing_name(kind, manifest)
        )));
    }
    refuse_duplicates(kind, manifest, validation)?;
    let options: Options = flags::options(validation, dry_run);
    let overwrite = args.overwrite;
    let api = context.api()?;
    let mut known = false;
    let done = api.write(options.dry_run, |ledger| {
        known = ledger.exists(&key)?;
        apply::apply(ledger, kind, &object, overwrite, &options)
    });
    let done = done.map_err(|status| {
        let doing = if known { "patching" } else { "creating" };
        Failure::in_manifest(status, doing, manifest)
    })?;
    context.warn(&done.warnings);
    let word = match done.outcome {
        Applied::Created => "created",
        Applied::Configured => "configured",
        Applied::Unchanged => "unchanged",
    };
    if args.print.output.is_none() {
        let name = context.name_of(kind, &done.object);
        context.say(&format!("{name} {word}{}", dry_run.suffix()))?;
    }
    Ok(done.object)
}

/// A key written twice is an error where validation is strict: which of the two was meant is not known.
pub fn refuse_duplicates(kind: &Kind, manifest: &Manifest, validation: FieldValidation) -> Outcome {
    let Some((path, line)) = manifest.duplicates().first().filter(|_| validation == FieldValidation::Strict) else {
        return Ok(());
    };
    let message = format!(
        "{0} in version {1:?} cannot be handled as a {0}: strict decoding error: duplicate field {path:?} ({2}:{line})",
        kind.kind, kind.version, manifest.source
    );
    Err(Failure::doing(Status::new(Reason::BadRequest, message), format!("error when creating {:?}", manifest.source)))
}

fn missing_name(kind: &Kind, manifest: &Manifest) -> String {
    format!(
        "Resource: {:?}, GroupVersionKind: {:?}\nName: \"\", Namespace: {:?}\nfrom server for: {:?}: resource name may not be empty",
        format!("{}, Resource={}", kind.api_version(), kind.resource.plural()),
        format!("{}, Kind={}", kind.api_version(), kind.kind),
        manifest.object.namespace(),
        manifest.source,
    )
}
