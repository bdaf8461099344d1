//! `kloop rollout pause` and `resume`: `spec.paused` of a Deployment.

use super::{for_each_workload, rollout_failure};
use crate::cli::cluster::change::change;
use crate::cli::cluster::targets::{Target, TargetFlags};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::ChangeFlags;
use crate::cli::{CliResult, CommandContext};

/// Flags of both verbs.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Pauses or resumes the Deployments.
pub fn run(args: Args, context: &mut CommandContext, paused: bool) -> CliResult {
    let dry_run = args.change.dry_run(context)?;
    for_each_workload(context, &args.which, |context, target| set_paused(&args, context, target, paused, dry_run))
}

fn set_paused(args: &Args, context: &mut CommandContext, target: &Target, paused: bool, dry_run: DryRun) -> CliResult {
    if target.kind.resource != "deployments.apps" {
        let word = if paused { "pausing" } else { "resuming" };
        return Err(rollout_failure(target, &format!("{word} is not supported")));
    }
    let reply = change(context, target, dry_run, |object| {
        if object.value_at(&["spec", "paused"]).is_some_and(|value| value == true) == paused {
            return Err(rollout_failure(target, if paused { "is already paused" } else { "is not paused" }));
        }
        object.set(&["spec", "paused"], paused);
        Ok(())
    })?;
    let word = if paused { "paused" } else { "resumed" };
    args.change.print_change(context, target.kind, &reply.object, word, dry_run)
}
