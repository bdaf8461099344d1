//! `kloop rollout restart`: sets a timestamp in the template's annotations, so that all pods are
//! replaced.

use super::{for_each_workload, rollout_failure};
use crate::cli::cluster::change::change;
use crate::cli::cluster::targets::{Target, TargetFlags};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::ChangeFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::time;

/// Restart a resource: its pods are replaced as in a rollout.
#[derive(clap::Args)]
#[command(
    override_usage = "RESOURCE",
    after_help = "\
# Restart all deployments in the test-namespace namespace
kloop rollout restart deployment -n test-namespace

# Restart a deployment
kloop rollout restart deployment/nginx

# Restart a daemon set
kloop rollout restart daemonset/abc

# Restart deployments with the app=nginx label
kloop rollout restart deployment --selector=app=nginx"
)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    #[command(flatten)]
    change: ChangeFlags,
}

const RESTARTED_AT: [&str; 5] = ["spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"];

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let dry_run = args.change.dry_run(context)?;
    for_each_workload(context, &args.which, |context, target| restart_object(&args, context, target, dry_run))
}

fn restart_object(args: &Args, context: &mut CommandContext, target: &Target, dry_run: DryRun) -> CliResult {
    if !["deployments.apps", "daemonsets.apps", "statefulsets.apps"].contains(&target.kind.resource.0) {
        return Err(rollout_failure(target, "restarting is not supported"));
    }
    let now = time::rfc3339(context.now());
    let reply = change(context, target, dry_run, |object| {
        if object.value_at(&["spec", "paused"]).is_some_and(|value| value == true) {
            return Err(rollout_failure(target, "can't restart paused deployment (run rollout resume first)"));
        }
        if object.text(&RESTARTED_AT) == Some(&now) {
            return Err(Failure::plain(format!(
                "failed to create patch for {}: if restart has already been triggered within the past second, \
                 please wait before attempting to trigger another",
                object.name()
            )));
        }
        object.set(&RESTARTED_AT, now.clone());
        Ok(())
    })?;
    args.change.print_change(context, target.kind, &reply.object, "restarted", dry_run)
}
