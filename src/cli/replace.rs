//! `kloop replace`: replaces objects with their manifests.

use super::cluster::deadline::Deadline;
use super::cluster::raw_request::RawFlag;
use super::cluster::targets;
use super::command_line::dry_run::DryRun;
use super::command_line::flags::{self, DeletionFlags, MakeFlags};
use super::manifests::files::{self, FileFlags, Manifest};
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::FieldValidation;
use crate::apiserver::authorization::check_verb;
use crate::apiserver::create::create;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::read;
use crate::apiserver::rescale::rescale;
use crate::apiserver::update::{UpdatePart, update};
use crate::kinds::Kind;
use crate::object::{Key, Object, Reason, Status, time};
use jiff::SignedDuration;
use std::time::Duration;

/// Replace a resource by file name or stdin.
///
/// JSON and YAML formats are accepted. If replacing an existing resource, the complete resource spec must be provided. This can
/// be obtained by "kloop get TYPE NAME -o yaml".
#[derive(clap::Args)]
#[command(
    override_usage = "-f FILENAME",
    after_help = "\
# Replace a pod using the data in pod.json
kloop replace -f ./pod.json

# Replace a pod based on the JSON passed into stdin
cat pod.json | kloop replace -f -

# Force replace, delete and then re-create the resource
kloop replace --force -f ./pod.json"
)]
pub struct Args {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    make: MakeFlags,
    #[command(flatten)]
    raw: RawFlag,
    /// If true, delete the object and create it again.
    #[arg(long)]
    force: bool,
    /// With --force: period of time in seconds given to the resource to terminate gracefully.
    #[arg(long, default_value_t = -1, value_name = "SECONDS", allow_negative_numbers = true)]
    grace_period: i64,
    /// With --force: how long to wait until the old object is gone; zero means a week.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
    #[command(flatten)]
    deletion: DeletionFlags,
    /// If specified, replace will operate on the subresource of the requested object: status or resize.
    #[arg(long, default_value = "", value_name = "NAME")]
    subresource: String,
}

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if args.raw.send("PUT", &args.files, args.make.change.print.output.as_deref(), context)? {
        return Ok(());
    }
    args.files.required()?;
    if args.grace_period >= 0 && !args.force {
        return Err(Failure::plain("--grace-period must have --force specified"));
    }
    if !args.timeout.is_zero() && !args.force {
        return Err(Failure::plain("--timeout must have --force specified"));
    }
    args.deletion.propagation()?;
    let dry_run = args.make.change.dry_run(context)?;
    if args.force && dry_run != DryRun::None {
        return Err(Failure::plain("--dry-run can not be used when --force is set"));
    }
    let validation = args.make.validate.parse()?;
    let (manifests, mut failures) = files::read_for(context, &args.files, "replace")?;
    targets::hint_duplicates(context, &manifests);
    for manifest in &manifests {
        failures.extend(replace_object(&args, context, manifest, dry_run, validation).err());
    }
    Failure::from_failures(failures)
}

fn replace_object(
    args: &Args,
    context: &mut CommandContext,
    manifest: &Manifest,
    dry_run: DryRun,
    validation: FieldValidation,
) -> CliResult {
    targets::check_type(manifest)?;
    let (kind, key) = targets::named(context, manifest)?;
    let mut object = targets::prepare_object(manifest, kind, &key);
    object = args.make.noted(context, object);
    let options = context.options(validation, dry_run);
    let doing = |status| Failure::doing(status, format!("error when replacing {:?}", manifest.source));
    let object = if dry_run == DryRun::Client {
        object
    } else if args.force {
        remove(args, context, kind, &key)?;
        object.unset(&["metadata", "resourceVersion"]);
        object.unset(&["metadata", "uid"]);
        let done = context.api()?.write(false, |txn| create(txn, kind, &object, &options)).map_err(doing)?;
        context.warn(&done.warnings);
        done.into_object()
    } else {
        let unknown = || Status::unknown_resource();
        let scale = (args.subresource == "scale" && kind.scale).then_some(UpdatePart::Scale);
        let part = scale.or_else(|| UpdatePart::find(kind, &args.subresource)).ok_or_else(|| doing(unknown()))?;
        let done = context.api()?.write(options.dry_run, |txn| {
            check_verb(txn, "get", "", &key)?;
            let current = read::exact(txn, &key)?;
            // As in kubectl, a manifest without a resourceVersion replaces the current version.
            if object.text(&["metadata", "resourceVersion"]).is_none_or(str::is_empty) {
                let version = current.text(&["metadata", "resourceVersion"]).unwrap_or_default();
                object.set(&["metadata", "resourceVersion"], version);
            }
            match part {
                // A manifest that has a kind of its own is not a Scale: this refuses it in the API server's words.
                UpdatePart::Scale if !txn.is_remote() => {
                    rescale(txn, (kind, object.api_version()), &key, &object, &options)
                }
                _ => update(txn, kind, &object, part, &options),
            }
        });
        let done = done.map_err(doing)?;
        context.warn(&done.warnings);
        done.into_object()
    };
    args.make.change.print_change(context, kind, &object, "replaced", dry_run)
}

/// Deletes the existing object, and waits until it is gone.
fn remove(args: &Args, context: &mut CommandContext, kind: &'static Kind, key: &Key) -> CliResult {
    let timeout = flags::nonzero(args.timeout).unwrap_or(WEEK);
    let patience = Deadline::new(context, Some(timeout))?;
    let grace = Some(args.grace_period.max(0));
    let options = DeleteOptions { grace, propagation: Some(args.deletion.propagation()?), ..DeleteOptions::default() };
    let old: Object = match context.api()?.write(false, |txn| delete(txn, kind, key, &options)) {
        Ok(reply) => reply.into_object(),
        Err(status) if status.reason == Reason::NotFound => return Ok(()),
        Err(status) => return Err(status.into()),
    };
    if args.make.change.prints_lines() {
        let place = if kind.namespaced { format!(" from {} namespace", key.namespace) } else { String::new() };
        context.print_line(&format!("{} {:?} deleted{place}", kind.qualified_singular(), &*key.name))?;
    }
    while context.read_view(|txn| txn.get(key))?.is_some_and(|now| now.uid() == old.uid()) {
        patience.wait_or_fail()?;
    }
    Ok(())
}
