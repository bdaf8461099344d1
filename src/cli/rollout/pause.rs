//! `kloop rollout pause` and `resume`: `spec.paused` of a Deployment.

use super::{Which, about};
use crate::cli::change::change;
use crate::cli::flags::{DryRun, PrintFlags, WriteFlags};
use crate::cli::targets::Target;
use crate::cli::{Context, Failure, Outcome};

/// Flags of both.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    print: PrintFlags,
    #[command(flatten)]
    write: WriteFlags,
}

/// Runs the verb: pauses, or resumes.
pub fn run(args: Args, context: &mut Context, paused: bool) -> Outcome {
    let dry_run = args.write.dry_run(context)?;
    let (found, mut failures) = args.which.find(context)?;
    for target in &found {
        if let Err(failure) = one(&args, context, target, paused, dry_run) {
            failures.push(failure);
        }
    }
    Failure::all(failures)
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
    let line = format!("{} {word}{}", context.name_of(target.kind, &reply.object), dry_run.suffix());
    args.print.result(context, &reply.object, &line)
}
