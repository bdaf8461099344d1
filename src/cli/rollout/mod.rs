//! `kloop rollout`: manages rollouts of Deployments, StatefulSets and DaemonSets.
//!
//! Knows: the common parts of its verbs. Start reading at [`RolloutVerb`].

mod history;
mod pause;
mod restart;
mod revisions;
mod status;
mod undo;

use super::cluster::targets::{self, Target, TargetFlags};
use super::{CliResult, CommandContext, Failure};
use clap::Subcommand;

/// Manage the rollout of one or many resources.
///
/// Valid resource types include: deployments, daemonsets, statefulsets.
#[derive(clap::Args)]
#[command(
    override_usage = "SUBCOMMAND",
    after_help = "\
# Rollback to the previous deployment
kloop rollout undo deployment/abc

# Check the rollout status of a daemonset
kloop rollout status daemonset/foo

# Restart a deployment
kloop rollout restart deployment/abc

# Restart deployments with the 'app=nginx' label
kloop rollout restart deployment --selector=app=nginx"
)]
pub struct Args {
    #[command(subcommand)]
    verb: RolloutVerb,
}

#[derive(Subcommand)]
enum RolloutVerb {
    History(history::Args),
    /// Mark the provided resource as paused: changes of its template start no rollout.
    #[command(
        override_usage = "RESOURCE",
        after_help = "\
# Mark the nginx deployment as paused; its current state will continue its function, and new updates have no effect as long as it is paused
kloop rollout pause deployment/nginx"
    )]
    Pause(pause::Args),
    Restart(restart::Args),
    /// Resume a paused resource.
    #[command(
        override_usage = "RESOURCE",
        after_help = "\
# Resume an already paused deployment
kloop rollout resume deployment/nginx"
    )]
    Resume(pause::Args),
    Status(status::Args),
    Undo(undo::Args),
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.verb {
        RolloutVerb::History(args) => history::run(args, context),
        RolloutVerb::Pause(args) => pause::run(args, context, true),
        RolloutVerb::Restart(args) => restart::run(args, context),
        RolloutVerb::Resume(args) => pause::run(args, context, false),
        RolloutVerb::Status(args) => status::run(args, context),
        RolloutVerb::Undo(args) => undo::run(args, context),
    }
}

/// Runs an action on each selected object.
fn for_each_workload(
    context: &mut CommandContext,
    which: &TargetFlags,
    one: impl FnMut(&mut CommandContext, &Target) -> CliResult,
) -> CliResult {
    required(which)?;
    targets::for_each_target(context, &which.scope(), one)
}

/// Refuses a command that selects no objects.
fn required(which: &TargetFlags) -> CliResult {
    if which.is_empty() { Err(Failure::plain("required resource not specified")) } else { Ok(()) }
}

/// Returns `Service` or `Deployment.apps`.
fn group_kind(target: &Target) -> String {
    match target.kind.resource.group() {
        "" => target.kind.kind.to_owned(),
        group => format!("{}.{group}", target.kind.kind),
    }
}

/// Returns the error `deployments.apps "web" why`.
fn rollout_failure(target: &Target, why: &str) -> Failure {
    Failure::plain(format!("{} {:?} {why}", target.kind.resource, target.object.name()))
}
