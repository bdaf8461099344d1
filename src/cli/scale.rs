//! `kloop scale`: sets the number of replicas.

use super::cluster::change::{change, change_part};
use super::cluster::control_plane;
use super::cluster::deadline::Deadline;
use super::cluster::targets::{self, Scope, ScopeFlags, Target};
use super::command_line::dry_run::DryRun;
use super::command_line::flags::{self, ChangeFlags};
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::UpdatePart;
use crate::kinds::Kind;
use crate::object::{Object, Status, time};
use jiff::SignedDuration;
use std::time::Duration;

/// Set a new size for a deployment, replica set, replication controller, or stateful set.
///
/// Scale also allows users to specify one or more preconditions for the scale action.
///
/// If --current-replicas or --resource-version is specified, it is validated before the scale is attempted, and it is guaranteed
/// that the precondition holds true when the scale is sent to the server.
#[derive(clap::Args)]
#[command(
    override_usage = "[--resource-version=version] [--current-replicas=count] --replicas=COUNT (-f FILENAME | TYPE NAME)",
    after_help = "\
# Scale a replica set named 'foo' to 3
kloop scale --replicas=3 rs/foo

# Scale a resource identified by type and name specified in \"foo.yaml\" to 3
kloop scale --replicas=3 -f foo.yaml

# If the deployment named mysql's current size is 2, scale mysql to 3
kloop scale --current-replicas=2 --replicas=3 deployment/mysql

# Scale multiple replication controllers
kloop scale --replicas=5 rc/example1 rc/example2 rc/example3"
)]
pub struct Args {
    /// TYPE NAME, or TYPE/NAME.
    words: Vec<String>,
    #[command(flatten)]
    scope: ScopeFlags,
    #[command(flatten)]
    change: ChangeFlags,
    /// The new desired number of replicas.
    #[arg(long, required = true, value_name = "COUNT", allow_negative_numbers = true)]
    replicas: i64,
    /// Precondition for current size. Requires that the current size of the resource match this value in order to scale.
    #[arg(long, default_value_t = -1, value_name = "COUNT", allow_negative_numbers = true)]
    current_replicas: i64,
    /// Precondition for resource version. Requires that the current resource version match this value in order to scale.
    #[arg(long, value_name = "VERSION")]
    resource_version: Option<String>,
    /// The length of time to wait before giving up on a scale operation, zero means don't wait.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if args.replicas < 0 {
        let text = "The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0";
        return Err(Failure::plain(text));
    }
    if args.current_replicas < -1 {
        return Err(Failure::plain("The --current-replicas must specify an integer of -1 or greater"));
    }
    let timeout = flags::nonzero(args.timeout);
    let dry_run = args.change.dry_run(context)?;
    let scope = Scope { selects_in_files: true, ..args.scope.with_arguments(&args.words) };
    let (found, failures) = targets::find(context, &scope)?;
    if args.resource_version.is_some() && found.len() > 1 {
        return Err(Failure::plain("cannot use --resource-version with multiple resources"));
    }
    if found.is_empty() && failures.is_empty() {
        return Err(Failure::plain("no objects passed to scale"));
    }
    for target in &found {
        scale_object(&args, context, target, dry_run, timeout)?;
    }
    if let Some(target) = found.first() {
        control_plane::print_hint_for(target.kind, dry_run, context)?;
    }
    Failure::from_failures(failures)
}

fn scale_object(
    args: &Args,
    context: &mut CommandContext,
    target: &Target,
    dry_run: DryRun,
    timeout: Option<Duration>,
) -> CliResult {
    if !target.kind.scale && dry_run != DryRun::Client {
        return Err(Status::unknown_resource().into());
    }
    let reply = change_part(context, target, UpdatePart::Scale, dry_run, |object| {
        check(args, target.kind, object)?;
        object.set(&target.kind.replicas().0, args.replicas);
        Ok(())
    })?;
    if let Some(timeout) = timeout.filter(|_| dry_run == DryRun::None) {
        wait(args, context, target, timeout)?;
    }
    if context.change_cause.is_some() && dry_run != DryRun::Client {
        change(context, target, dry_run, |_| Ok(()))?;
    }
    args.change.print_change(context, target.kind, &reply.object, "scaled", dry_run)
}

/// Checks the preconditions `--current-replicas` and `--resource-version`.
fn check(args: &Args, kind: &Kind, object: &Object) -> CliResult {
    let current = object.int(&kind.replicas().0).unwrap_or(1);
    if args.current_replicas >= 0 && args.current_replicas != current {
        return Err(Failure::plain(format!("Expected replicas to be {}, was {current}", args.current_replicas)));
    }
    let version = object.text(&["metadata", "resourceVersion"]).unwrap_or_default();
    match args.resource_version.as_deref().filter(|desired| !desired.is_empty() && *desired != version) {
        Some(desired) => Err(Failure::plain(format!("Expected resource version to be {desired}, was {version}"))),
        None => Ok(()),
    }
}

/// Waits until the number of replicas is as requested, or until it is set to another number.
fn wait(args: &Args, context: &mut CommandContext, target: &Target, timeout: Duration) -> CliResult {
    let deadline = Deadline::new(context, Some(timeout))?;
    let key = key_of(target.kind, &target.object);
    loop {
        let object = context.read_view(|txn| crate::apiserver::read::get(txn, &key))?;
        let (desired, seen) = target.kind.replicas();
        let desired = object.int(&desired).unwrap_or(1);
        if desired != args.replicas || object.int(&seen).unwrap_or(0) == desired {
            return Ok(());
        }
        if !deadline.wait() {
            return Err(Failure::plain(format!("timed out waiting for {:?} to be synced", object.name())));
        }
    }
}
