//! `kloop cordon` and `uncordon`: set whether a node accepts new pods.

use super::{cordon_one, find};
use crate::cli::flags::WriteFlags;
use crate::cli::{CliResult, CommandContext, Failure};

/// Flags of both verbs.
#[derive(clap::Args)]
pub struct Args {
    /// NODE.
    #[arg(value_name = "NODE")]
    names: Vec<String>,
    /// Selector (label query) to filter on.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    #[command(flatten)]
    write: WriteFlags,
}

/// Cordons or uncordons the nodes.
pub fn run(args: Args, context: &mut CommandContext, cordon: bool) -> CliResult {
    let dry_run = args.write.dry_run(context)?;
    let verb = if cordon { "cordon" } else { "uncordon" };
    let (found, mut failures) = find(context, verb, &args.names, args.selector.as_deref())?;
    for target in &found {
        failures.extend(cordon_one(context, target, cordon, dry_run).err());
    }
    Failure::from_failures(failures)
}
