//! `kloop cordon` and `uncordon`: set whether a node accepts new pods.

use super::{cordon_one, find};
use crate::cli::command_line::flags::{LabelFlag, WriteFlags};
use crate::cli::{CliResult, CommandContext, Failure};

/// Mark node as unschedulable.
#[derive(clap::Args)]
#[command(
    override_usage = "NODE",
    after_help = "\
# Mark node \"foo\" as unschedulable
kloop cordon foo"
)]
pub struct CordonArgs {
    #[command(flatten)]
    flags: NodeFlags,
}

/// Mark node as schedulable.
#[derive(clap::Args)]
#[command(
    override_usage = "NODE",
    after_help = "\
# Mark node \"foo\" as schedulable
kloop uncordon foo"
)]
pub struct UncordonArgs {
    #[command(flatten)]
    flags: NodeFlags,
}

#[derive(clap::Args)]
struct NodeFlags {
    /// NODE.
    #[arg(value_name = "NODE")]
    names: Vec<String>,
    #[command(flatten)]
    labels: LabelFlag,
    #[command(flatten)]
    write: WriteFlags,
}

/// Runs `kloop cordon`.
pub fn cordon(args: CordonArgs, context: &mut CommandContext) -> CliResult {
    set_schedulable(&args.flags, context, "cordon")
}

/// Runs `kloop uncordon`.
pub fn uncordon(args: UncordonArgs, context: &mut CommandContext) -> CliResult {
    set_schedulable(&args.flags, context, "uncordon")
}

/// Cordons or uncordons the nodes.
fn set_schedulable(flags: &NodeFlags, context: &mut CommandContext, verb: &str) -> CliResult {
    let dry_run = flags.write.dry_run(context)?;
    let (found, mut failures) = find(context, verb, &flags.names, &flags.labels)?;
    for target in &found {
        failures.extend(cordon_one(context, target, verb == "cordon", dry_run).err());
    }
    Failure::from_failures(failures)
}
