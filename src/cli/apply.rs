//! `kloop apply`: creates and changes objects so that they match the manifests.

use super::cluster::{change_cause, control_plane, targets};
use super::command_line::dry_run::DryRun;
use super::command_line::flags::{ChangeFlags, DeletionFlags, ValidateFlag};
use super::manifests::files::{self, FileFlags, Manifest};
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::apply::{self, Applied, ApplyOutcome};
use crate::apiserver::{Transaction, WriteOptions};
use crate::kinds::Kind;
use crate::kinds::shared::manifest_folder;
use crate::managed_fields::last_applied::with_last_applied;
use crate::object::{Key, Object, Reason, Status, time};
use jiff::SignedDuration;
use serde_json::Value;

pub mod follow;
mod last_applied;
pub mod prune;
mod recreate;
mod refused;
mod server_side;

/// Apply a configuration to a resource by file name or stdin.
///
/// The resource name must be specified. This resource will be created if it doesn't exist yet. To use 'apply', always create
/// the resource initially with either 'apply' or 'create --save-config'.
///
/// JSON and YAML formats are accepted.
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | -k DIRECTORY)",
    after_help = "\
# Apply the configuration in pod.json to a pod
kloop apply -f ./pod.json

# Apply resources from a directory containing kustomization.yaml
kloop apply -k ./overlays/dev

# Apply the manifests of a folder and of the folders below it
kloop apply -R -f ./manifests

# Apply the JSON passed into stdin to a pod
cat pod.json | kloop apply -f -

# Apply the configuration in manifest.yaml that matches label app=nginx and delete all other resources that are not in the file and match label app=nginx
kloop apply --prune -f manifest.yaml -l app=nginx

# Apply the configuration in manifest.yaml and delete all the other config maps that are not in the file
kloop apply --prune -f manifest.yaml --all --prune-allowlist=core/v1/ConfigMap

# Apply the manifests as one of several field managers, and take over what others have set
kloop apply --server-side --field-manager=platform --force-conflicts -f ./platform

# Follow a checkout of a repository: apply what changes in it, prune what is taken out, put back what was changed by hand
kloop apply -R -f ./deploy --prune --all --watch"
)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    last_applied: Option<last_applied::LastAppliedVerb>,
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    change: ChangeFlags,
    #[command(flatten)]
    validate: ValidateFlag,
    /// Automatically resolve conflicts between the modified and live configuration by using values from the
    /// modified configuration.
    #[arg(long, default_value_t = true)]
    overwrite: bool,
    /// If true, delete and create again objects that cannot be changed to match the manifest.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    deletion: DeletionFlags,
    /// With --force or --prune: period of time in seconds given to the resource to terminate gracefully. Ignored if negative.
    #[arg(long, default_value_t = -1, value_name = "SECONDS", allow_negative_numbers = true)]
    grace_period: i64,
    /// With --force: the length of time to wait before giving up on a delete, zero means determine a timeout from the size of the
    /// object.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
    /// Accepted for compatibility with kubectl; changes are computed from the schemas that are compiled in.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    openapi_patch: bool,
    #[command(flatten)]
    server: server_side::ServerSide,
    #[command(flatten)]
    pruning: prune::PruneFlags,
    #[command(flatten)]
    follow: follow::FollowFlags,
    #[arg(skip)]
    caller: ApplyCaller,
}

/// Another verb that applies manifests as a part of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ApplyCaller {
    /// None: this is `kloop apply`.
    #[default]
    Apply,
    /// `kloop up`, which starts a control plane itself, and deletes objects that are removed from the manifests.
    Up {
        /// Whether each object is printed.
        is_quiet: bool,
    },
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if let Some(verb) = args.last_applied {
        return last_applied::run(verb, context);
    }
    args.files.required()?;
    context.allow_new_cluster();
    if args.follow.watch { follow::run(&args, context) } else { apply_once(&args, context, false).map(drop) }
}

impl Args {
    /// The arguments of `kloop apply -f FILES` for `kloop up`.
    pub fn for_up(files: FileFlags, is_quiet: bool) -> Args {
        let command = <Args as clap::Args>::augment_args(clap::Command::new("apply"));
        let matches = command.get_matches_from(["apply"]);
        let args = <Args as clap::FromArgMatches>::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        Args { files, caller: ApplyCaller::Up { is_quiet }, ..args }
    }

    /// Reduces an applied object to its identity, unless it is printed later or `kloop up` uses it. Thousands of whole objects take
    /// much memory.
    fn reduce(&self, object: Object) -> Object {
        let is_needed = self.change.print.has_format() || self.caller != ApplyCaller::Apply;
        if is_needed { object } else { object.identity() }
    }

    /// Checks the flags that are independent of the manifests.
    fn check(&self, context: &mut CommandContext) -> CliResult {
        let dry_run = self.change.dry_run(context)?;
        self.server.check(dry_run, self.force)?;
        self.validate.parse()?;
        self.deletion.propagation()?;
        self.pruning.check(context.kinds())?;
        self.pruning.labels.parse().map(drop)
    }
}

/// Applies the manifests and returns the objects as stored, or only their identities if the caller needs no more. With `again`, unchanged
/// objects are not printed.
fn apply_once(args: &Args, context: &mut CommandContext, again: bool) -> CliResult<Vec<Object>> {
    let dry_run = args.change.dry_run(context)?;
    let validation = args.validate.parse()?;
    args.deletion.propagation()?;
    args.server.check(dry_run, args.force)?;
    let options = context.options(validation, dry_run);
    let applier = args.server.applier(args.change.field_manager());
    args.pruning.check(context.kinds())?;
    let (manifests, mut failures) = files::read_selected_for(context, &args.files, &args.pruning.labels, "apply")?;
    targets::hint_duplicates(context, &manifests);
    // Unknown kinds and wrong namespaces are reported before anything is applied.
    let mut located = Vec::new();
    for manifest in &manifests {
        match targets::locate_for(context, manifest, dry_run) {
            Ok((kind, key)) => located.push((manifest, kind, key)),
            Err(failure) => failures.push(failure),
        }
    }
    let (mut applied, mut needs_plane, all, mut done_count) = (Vec::new(), None, located.len(), 0);
    let cause = context.change_cause.clone();
    let write = |txn: &mut dyn Transaction, (manifest, kind, key): &LocatedManifest| {
        let mut object = object_to_send(manifest, kind, key)?;
        change_cause::record(cause.as_deref(), &mut object);
        if let Some(applier) = &applier {
            return applier.apply(txn, manifest, kind, &object, &options);
        }
        let is_known = txn.exists(key)?;
        if dry_run == DryRun::Client && !is_known {
            let object = with_last_applied(&object);
            return Ok(Applied { outcome: ApplyOutcome::Created, object, warnings: Vec::new() });
        }
        let done = apply::apply(txn, kind, &object, args.overwrite, &options);
        done.map_err(|status| ApplyFailure::Refused { status, object, is_known })
    };
    let written = context.write_each(options.dry_run, located, write, |context, (manifest, kind, key), done| {
        targets::warn_of_manifest(context, kind, manifest);
        let done = done.or_else(|failure| failure.recreate_or_report(args, context, (manifest, kind, &key), &options));
        match done.and_then(|done| print_result(args, context, kind, done, dry_run, again)) {
            Ok(object) => {
                needs_plane = needs_plane.or(Some(kind).filter(|kind| control_plane::is_needed_for(kind)));
                applied.push(args.reduce(object));
            }
            Err(failure) => failures.push(failure),
        }
        done_count += 1;
        context.show_progress(|| format!("applying: {done_count} of {all} objects"));
    });
    context.end_progress();
    failures.extend(written.err());
    // Pruning is skipped after a failure, because a manifest that failed may name an object.
    if args.pruning.prune && failures.is_empty() {
        prune::run(args, context, &applied, dry_run)?;
    }
    print_objects(args, context, &applied)?;
    if let Some(kind) = needs_plane.filter(|_| !again && args.caller == ApplyCaller::Apply) {
        control_plane::print_hint_for(kind, dry_run, context)?;
    }
    Failure::from_failures(failures).map(|()| applied)
}

/// A manifest with the kind and the key of its object.
type LocatedManifest<'a> = (&'a Manifest, &'static Kind, Key);

/// A manifest that was not applied.
enum ApplyFailure {
    /// Failed before the request, for example because of a bad manifest.
    Failed(Failure),
    /// The state could not be read or written.
    Storage(Status),
    /// The API server refused it.
    Refused {
        status: Status,
        /// The object that was sent.
        object: Object,
        /// Whether the object existed before.
        is_known: bool,
    },
}

impl From<Status> for ApplyFailure {
    fn from(status: Status) -> ApplyFailure {
        ApplyFailure::Storage(status)
    }
}

impl From<Failure> for ApplyFailure {
    fn from(failure: Failure) -> ApplyFailure {
        ApplyFailure::Failed(failure)
    }
}

impl ApplyFailure {
    /// With `--force`, deletes the object and creates it again when a change is impossible.
    /// Otherwise returns kubectl's error.
    fn recreate_or_report(
        self,
        args: &Args,
        context: &mut CommandContext,
        (manifest, kind, key): (&Manifest, &'static Kind, &Key),
        options: &WriteOptions,
    ) -> CliResult<Applied> {
        let (status, object, is_known) = match self {
            ApplyFailure::Failed(failure) => return Err(failure),
            ApplyFailure::Storage(status) => return Err(manifest.refusal("creating", status)),
            ApplyFailure::Refused { status, object, is_known } => (status, object, is_known),
        };
        let status = if args.force && matches!(status.reason, Reason::Invalid | Reason::Conflict) {
            match recreate::recreate(args, context, (kind, key), &with_last_applied(&object), options) {
                Err(Failure::Api { status, .. }) => status,
                done => return done,
            }
        } else {
            status
        };
        Err(if is_known {
            refused::patch(context, manifest, kind, &object, args.overwrite, status)
        } else {
            manifest.refusal("creating", status)
        })
    }
}

/// Returns the object to send for a manifest.
fn object_to_send(manifest: &Manifest, kind: &'static Kind, key: &Key) -> CliResult<Object> {
    let object = targets::prepare_object(manifest, kind, key);
    if object.name().is_empty() {
        if let Some(base) = object.text(&["metadata", "generateName"]) {
            return Err(Failure::plain(format!("from {base}: cannot use generate name with apply")));
        }
        return Err(Failure::plain(format!(
            "error when retrieving current configuration of:\n{}",
            missing_name(kind, manifest, &key.namespace)
        )));
    }
    Ok(object)
}

/// Prints the applied objects, if `--output` asks for them.
fn print_objects(args: &Args, context: &mut CommandContext, applied: &[Object]) -> CliResult {
    let Some(mut printer) = args.change.print.printer()? else { return Ok(()) };
    let shown: Vec<Value> = applied.iter().map(|object| manifest_folder::cleaned(object).0).collect();
    let text = match &shown[..] {
        [object] => printer.object(object)?,
        _ => printer.list(shown)?,
    };
    context.print(&text)
}

/// Prints the result of one manifest, unless objects are printed with `--output`.
fn print_result(
    args: &Args,
    context: &mut CommandContext,
    kind: &Kind,
    done: Applied,
    dry_run: DryRun,
    again: bool,
) -> CliResult<Object> {
    context.warn(&done.warnings);
    let word = match done.outcome {
        _ if args.server.server_side => "serverside-applied",
        ApplyOutcome::Created => "created",
        ApplyOutcome::Configured => "configured",
        ApplyOutcome::Unchanged => "unchanged",
    };
    let is_quiet = args.caller == ApplyCaller::Up { is_quiet: true };
    if args.change.prints_lines() && !is_quiet && !(again && done.outcome == ApplyOutcome::Unchanged) {
        let name = context.name_of(kind, &done.object);
        context.print_line(&format!("{name} {word}{}", dry_run.suffix()))?;
    }
    Ok(done.object)
}

fn missing_name(kind: &Kind, manifest: &Manifest, namespace: &str) -> String {
    let (place, why) = (refused::place(kind, "", namespace), targets::missing_name_error(kind, manifest));
    format!("{place}\nfrom server for: {:?}: {why}", manifest.source)
}
