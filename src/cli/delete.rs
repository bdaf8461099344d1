//! `kloop delete`: deletes objects gracefully, and waits until they are gone.

use super::cluster::deadline::{Deadline, timed_out_on};
use super::cluster::raw_request::RawFlag;
use super::cluster::targets::{self, Scope, Target, TargetFlags, Targets};
use super::command_line::dry_run::DryRun;
use super::command_line::flags::{self, WriteFlags};
use super::manifests::files;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::{Transaction, read};
use crate::kinds::Kind;
use crate::object::{Key, Reason, Status, time};
use crate::reconcile::leader;
use jiff::SignedDuration;
use std::time::Duration;

/// Delete resources by file names, stdin, resources and names, or by resources and label selector.
///
/// JSON and YAML formats are accepted. Only one type of argument may be specified: file names, resources and names, or resources
/// and label selector.
///
/// Some resources, such as pods, support graceful deletion. These resources define a default period before they are forcibly
/// terminated (the grace period) but you may override that value with the --grace-period flag, or pass --now to set a
/// grace-period of 1.
#[derive(clap::Args)]
#[command(
    override_usage = "([-f FILENAME] | [-k DIRECTORY] | TYPE [(NAME | -l label | --all)])",
    after_help = "\
# Delete a pod using the type and name specified in pod.json
kloop delete -f ./pod.json

# Delete resources from a directory containing kustomization.yaml
kloop delete -k ./overlays/dev

# Delete a pod based on the type and name in the JSON passed into stdin
cat pod.json | kloop delete -f -

# Delete pods and services with same names \"baz\" and \"foo\"
kloop delete pod,service baz foo

# Delete pods and services with label name=myLabel
kloop delete pods,services -l name=myLabel

# Delete a pod with minimal delay
kloop delete pod foo --now

# Force delete a pod on a dead node
kloop delete pod foo --force

# Delete all pods
kloop delete pods --all

# Delete all pods only if the user confirms the deletion
kloop delete pods --all --interactive"
)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    #[command(flatten)]
    write: WriteFlags,
    #[command(flatten)]
    raw: RawFlag,
    /// Delete all resources, in the namespace of the specified resource types.
    #[arg(long)]
    all: bool,
    /// If present, list the requested object(s) across all namespaces. Namespace in current context is ignored even if specified
    /// with --namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Must be "background", "orphan", or "foreground". Selects the deletion cascading strategy for the dependents (e.g. Pods
    /// created by a ReplicationController). Defaults to background.
    #[arg(long, value_name = "HOW", default_value = "background", num_args = 0..=1, default_missing_value = "background", require_equals = true)]
    cascade: String,
    /// If true, immediately remove resources from API and bypass graceful deletion. Note that immediate deletion of some
    /// resources may result in inconsistency or data loss and requires confirmation.
    #[arg(long)]
    force: bool,
    /// Period of time in seconds given to the resource to terminate gracefully. Ignored if negative. Set to 1 for immediate
    /// shutdown. Can only be set to 0 when --force is true (force deletion).
    #[arg(long, default_value_t = -1, value_name = "SECONDS", allow_negative_numbers = true)]
    grace_period: i64,
    /// If true, resources are signaled for immediate shutdown (same as --grace-period=1).
    #[arg(long)]
    now: bool,
    /// Treat "resource not found" as a successful delete.
    #[arg(long)]
    ignore_not_found: bool,
    /// If true, delete resource only when user confirms.
    #[arg(short, long)]
    interactive: bool,
    /// Output mode. Use "-o name" for shorter output (resource/name).
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<String>,
    /// The length of time to wait before giving up on a delete, zero means determine a timeout from the size of the object.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
    /// If true, wait for resources to be gone before returning. This waits for finalizers.
    #[arg(long, default_value_t = true)]
    wait: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if args.raw.send("DELETE", &args.which.files, args.output.as_deref(), context)? {
        return Ok(());
    }
    let (options, timeout) = check(&args)?;
    let dry_run = args.write.dry_run(context)?;
    let options = DeleteOptions { dry_run: dry_run != DryRun::None, ..options };
    warn_of_flags(&args, context);
    let selects = args.which.select.is_set() || args.all;
    let (mut targets, mut failures) = find(&args, context)?;
    if targets.is_empty() && failures.is_empty() && selects {
        return context.print_line("No resources found");
    }
    // As in kubectl, a selected object may be gone.
    if args.ignore_not_found || selects {
        failures.retain(|failure| !failure.is_not_found());
    }
    if targets.is_empty() {
        // Return before the first write, because a write creates a missing cluster.
        return Failure::from_failures(failures);
    }
    if args.interactive && !is_confirmed(context, &targets)? {
        return context.print_line("deletion is cancelled");
    }
    let mut deleted = Vec::new();
    warn_of_scope(&args, context, &targets);
    if dry_run == DryRun::Client {
        // A client-side dry run sends no request.
        for (target, _) in targets.drain(..) {
            failures.extend(print_deleted(&args, context, &target, dry_run).err());
        }
    }
    let write = |txn: &mut dyn Transaction, (target, _): &DeleteTarget| {
        delete(txn, target.kind, &key_of(target.kind, &target.object), &options).map(|_| ())
    };
    let written = context.write_each(
        dry_run != DryRun::None,
        targets,
        write,
        |context, (target, source), done: Result<(), Status>| {
            match (done, source) {
                // A selected object may already be gone, for example with its owner.
                (Err(status), _) if selects && status.reason == Reason::NotFound => {}
                (Err(status), Some(source)) => {
                    failures.push(Failure::doing(status, format!("error when deleting {source:?}")))
                }
                (Err(status), None) => failures.push(status.into()),
                (Ok(()), _) => {
                    failures.extend(print_deleted(&args, context, &target, dry_run).err());
                    deleted.push((target.kind, key_of(target.kind, &target.object), target.object.uid().to_owned()));
                }
            }
        },
    );
    failures.extend(written.err());
    if args.wait && dry_run == DryRun::None {
        wait(context, deleted, timeout)?;
    }
    Failure::from_failures(failures)
}

/// Warns of deprecated kinds, and that `--namespace` means nothing for some of the objects.
fn warn_of_scope(args: &Args, context: &mut CommandContext, targets: &[DeleteTarget]) {
    targets.iter().for_each(|(target, _)| context.warn_of_deprecation(target.kind));
    let is_named = context.globals.namespace.as_deref().is_some_and(|name| !name.is_empty());
    let has_namespace = is_named && !args.all_namespaces;
    if has_namespace && targets.iter().any(|(target, _)| !target.kind.namespaced) {
        let text = "deleting cluster-scoped resources, not scoped to the provided namespace";
        context.warn(&[text.to_owned()]);
    }
}

fn warn_of_flags(args: &Args, context: &mut CommandContext) {
    let replacement = match args.cascade.as_str() {
        "true" => Some("background"),
        "false" => Some("orphan"),
        _ => None,
    };
    if let Some(replacement) = replacement {
        context.print_notice(&format!(
            "warning: --cascade={} is deprecated (boolean value) and can be replaced with --cascade={replacement}.",
            args.cascade
        ));
    }
    if args.force {
        context.warn(&[
            "Immediate deletion does not wait for confirmation that the running resource has been terminated. \
            The resource may continue to run on the cluster indefinitely."
                .to_owned(),
        ]);
    }
}

fn check(args: &Args) -> CliResult<(DeleteOptions, Duration)> {
    if args.output.as_deref().is_some_and(|output| output != "name") {
        let output = args.output.as_deref().unwrap_or_default();
        return Err(Failure::plain(format!("unexpected -o output mode: {output}. We only support '-o name'")));
    }
    if args.all && args.which.is_empty() {
        return Err(Failure::plain("at least one resource must be specified to use a selector"));
    }
    if args.all && args.which.select.is_set() {
        return Err(Failure::plain("setting 'all' parameter but found a non empty selector."));
    }
    if args.all && args.which.words.iter().any(|word| word.contains('/')) {
        return Err(Failure::plain("selectors and the all flag cannot be used when passing resource/name arguments"));
    }
    if args.all && args.which.words.len() > 1 {
        return Err(Failure::plain("name cannot be provided when a selector is specified"));
    }
    if args.now && args.grace_period != -1 {
        return Err(Failure::plain("--now and --grace-period cannot be specified together"));
    }
    // --now is --grace-period=1.
    if args.force && (args.now || args.grace_period > 0) {
        return Err(Failure::plain("--force and --grace-period greater than 0 cannot be specified together"));
    }
    let propagation = flags::parse_cascade(&args.cascade)?;
    let grace = match (args.force, args.now, args.grace_period) {
        (true, _, _) => Some(0),
        (_, true, _) => Some(1),
        // kubectl turns a grace period of zero into one second unless `--force` is set.
        (_, _, 0) => Some(1),
        (_, _, negative) if negative < 0 => None,
        (_, _, grace) => Some(grace),
    };
    let week = Duration::from_secs(7 * 24 * 3600);
    let timeout = if args.timeout.is_positive() { args.timeout.unsigned_abs() } else { week };
    Ok((DeleteOptions { grace, propagation: Some(propagation), ..DeleteOptions::default() }, timeout))
}

/// Asks on the terminal for confirmation.
fn is_confirmed(context: &mut CommandContext, targets: &[DeleteTarget]) -> CliResult<bool> {
    context.print_line(&format!("You are about to delete the following {} resource(s):", targets.len()))?;
    for (target, _) in targets {
        let name = context.name_of(target.kind, &target.object);
        context.print_line(&name)?;
    }
    context.print("Do you want to continue? (y/N): ")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y"))
}

/// An object to delete, with the file that names it.
type DeleteTarget = (Target, Option<String>);

/// Finds the objects to delete.
fn find(args: &Args, context: &mut CommandContext) -> CliResult<(Vec<DeleteTarget>, Vec<Failure>)> {
    let (mut found, mut failures);
    if args.which.files.names_objects_instead_of(&args.which.words)? {
        let (manifests, unread) = files::read_selected(context, &args.which.files, &args.which.select.labels)?;
        (found, failures) = (Vec::new(), unread);
        for manifest in manifests {
            let located = targets::named(context, &manifest).and_then(|(kind, key)| {
                let object = context.read_view(|txn| read::exact(txn, &key));
                let object = object.map_err(|failure| with_source(failure, &manifest.source))?;
                Ok((Target { kind, object }, Some(manifest.source.clone())))
            });
            match located {
                Ok(target) => found.push(target),
                Err(failure) => failures.push(failure),
            }
        }
    } else {
        match targets::parse(context.kinds(), &args.which.words)? {
            Targets::Lists(kinds) if kinds.is_empty() => return Err(targets::no_resources()),
            Targets::Named(_) if args.all => {
                return Err(Failure::plain("name cannot be provided when a selector is specified"));
            }
            _ => {}
        }
        let scope = Scope { all: args.all, all_namespaces: args.all_namespaces, blind: true, ..args.which.scope() };
        let (targets, missing) = targets::find(context, &scope)?;
        found = targets.into_iter().map(|target| (target, None)).collect();
        failures = missing;
    }
    Ok((found, failures))
}

fn with_source(failure: Failure, source: &str) -> Failure {
    match failure {
        Failure::Api { status, .. } => Failure::doing(status, format!("error when deleting {source:?}")),
        other => other,
    }
}

fn print_deleted(
    args: &Args,
    context: &mut CommandContext,
    Target { kind, object }: &Target,
    dry_run: DryRun,
) -> CliResult {
    if args.output.is_some() {
        let name = context.name_of(kind, object);
        return context.print_line(&name);
    }
    let word = if args.force { "force deleted" } else { "deleted" };
    context.print_line(&format!("{}{}", deletion_message(kind, &key_of(kind, object), word), dry_run.suffix()))
}

/// Returns `pod "web" deleted from default namespace`.
pub fn deletion_message(kind: &Kind, key: &Key, word: &str) -> String {
    let place = if kind.namespaced { format!(" from {} namespace", key.namespace) } else { String::new() };
    format!("{} {:?} {word}{place}", kind.qualified_singular(), &*key.name)
}

/// Waits until the objects with these UIDs are gone. Without a running control plane, nothing ends pods or runs finalizers: then it prints
/// a hint and returns.
fn wait(
    context: &mut CommandContext,
    mut remaining: Vec<(&'static Kind, Key, String)>,
    timeout: Duration,
) -> CliResult {
    let home = context.home()?;
    let deadline = Deadline::new(context, Some(timeout))?;
    let all = remaining.len();
    loop {
        let mut existing = Vec::new();
        for (kind, key, uid) in remaining {
            let exists = context.read_view(|txn| txn.get(&key))?.is_some_and(|object| object.uid() == uid);
            if exists {
                existing.push((kind, key, uid));
            }
        }
        remaining = existing;
        let Some((kind, key, _)) = remaining.first() else {
            context.end_progress();
            return Ok(());
        };
        if home.as_ref().is_some_and(|home| leader::read_leader(home).is_none()) {
            context.print_notice(&format!(
                "hint: {} {:?} is marked for deletion; a control plane has to delete it (kloop reconcile --watch).",
                kind.qualified_singular(),
                &*key.name
            ));
            return Ok(());
        }
        context.show_progress(|| format!("deleting: {} of {all} objects are gone", all - remaining.len()));
        if !deadline.wait() {
            return Err(timed_out_on(kind, &key.name));
        }
    }
}
