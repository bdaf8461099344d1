//! `kloop node remove`: deletes a node; the pod garbage collector deletes its pods.

use super::find;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::rules::names::key_of;
use crate::cli::command_line::flags::{LabelFlag, WriteFlags};
use crate::cli::{CliResult, CommandContext, Failure};

/// Remove a node from the cluster. Its pods are deleted by garbage collection; drain the node first
/// to move them.
///
/// This machine's own node is registered again by the next reconcile, unless --no-local-node is set.
#[derive(clap::Args)]
#[command(
    override_usage = "NODE",
    after_help = "\
# Take node-1 out of the cluster
kloop node remove node-1"
)]
pub struct Args {
    /// NODE.
    #[arg(value_name = "NODE")]
    names: Vec<String>,
    #[command(flatten)]
    write: WriteFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let dry_run = args.write.dry_run(context)?;
    let (found, mut failures) = find(context, "node remove", &args.names, &LabelFlag::default())?;
    for target in &found {
        let key = key_of(target.kind, &target.object);
        let is_dry = dry_run != Default::default();
        let options = DeleteOptions { dry_run: is_dry, ..DeleteOptions::default() };
        let deleted = context.api()?.write(is_dry, |txn| delete(txn, target.kind, &key, &options));
        match deleted {
            Ok(_) => context.print_line(&format!("node/{} removed{}", target.object.name(), dry_run.suffix()))?,
            Err(status) => failures.push(status.into()),
        }
    }
    Failure::from_failures(failures)
}
