//! `kloop rollout`: the rollouts of Deployments, StatefulSets and DaemonSets.
//!
//! Knows: what the verbs below it share. Start reading at [`Verb`].

mod history;
mod pause;
mod restart;
mod revisions;
mod status;
mod undo;

use super::targets::{self, Target, Which};
use super::{Context, Failure, Outcome};
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
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    History(history::Args),
    /// Mark the provided resource as paused: its template may change, and no rollout starts.
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
pub fn run(args: Args, context: &mut Context) -> Outcome {
    match args.verb {
        Verb::History(args) => history::run(args, context),
        Verb::Pause(args) => pause::run(args, context, true),
        Verb::Restart(args) => restart::run(args, context),
        Verb::Resume(args) => pause::run(args, context, false),
        Verb::Status(args) => status::run(args, context),
        Verb::Undo(args) => undo::run(args, context),
    }
}

/// Does one thing to each object that a rollout verb is about.
fn each(context: &mut Context, which: &Which, one: impl FnMut(&mut Context, &Target) -> Outcome) -> Outcome {
    required(which)?;
    targets::each(context, &which.scope(), one)
}

/// Refuses a command that names nothing.
fn required(which: &Which) -> Outcome {
    if which.is_empty() { Err(Failure::plain("required resource not specified")) } else { Ok(()) }
}

/// `Service`, `Deployment.apps`.
fn group_kind(target: &Target) -> String {
    match target.kind.resource.group() {
        "" => target.kind.kind.to_owned(),
        group => format!("{}.{group}", target.kind.kind),
    }
}

/// `deployments.apps "web" why`.
fn about(target: &Target, why: &str) -> Failure {
    Failure::plain(format!("{} {:?} {why}", target.kind.resource, target.object.name()))
}
