//! `kloop rollout pause` and `resume`: `spec.paused` of a Deployment.

use super::{about, each};
use crate::cli::change::change;
use crate::cli::flags::{ChangeFlags, DryRun};
use crate::cli::targets::{Target, Which};
use crate::cli::{Context, Outcome};

/// Flags of both.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Runs the verb: pauses, or resumes.
pub fn run(args: Args, context: &mut Context, paused: bool) -> Outcome {
    let dry_run = args.change.dry_run(context)?;
    each(context, &args.which, |context, target| one(&args, context, target, paused, dry_run))
}

fn one(args: &Args, context: &mut Context, target: &Target, paused: bool, dry_run: DryRun) -> Outcome {
    if target.kind.resource != "deployments.apps" {
        let word = if paused { "pausing" } else { "resuming" };
        return Err(about(target, &format!("{word} is not supported")));
    }
    let reply = change(context, target, dry_run, |object| {
        if object.at(&["spec", "paused"]).is_some_and(|value| value == true) == paused {
            return Err(about(target, if paused { "is already paused" } else { "is not paused" }));
        }
        object.set(&["spec", "paused"], paused);
        Ok(())
    })?;
    let word = if paused { "paused" } else { "resumed" };
    args.change.tell(context, target.kind, &reply.object, word, dry_run)
}
