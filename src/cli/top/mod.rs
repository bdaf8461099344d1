//! `kloop top`: prints the current resource usage of pods and nodes.
//!
//! Knows: which pods and nodes are requested; [`resource_metrics`](crate::serve::resource_metrics) measures, or a server tells. This needs no
//! control plane. Never: stores a sample.

mod node;
mod pod;
mod server_metrics;

use super::{CliResult, CommandContext, Failure};
use crate::show::usage::UsageSort;
use clap::Subcommand;

/// Display resource (CPU/memory) usage.
///
/// The top command allows you to see the resource consumption for nodes or pods.
#[derive(clap::Args)]
#[command(
    override_usage = "SUBCOMMAND",
    after_help = "\
# Show metrics for all pods in the default namespace
kloop top pod

# Show metrics for this machine
kloop top node"
)]
pub struct Args {
    #[command(subcommand)]
    verb: TopVerb,
}

#[derive(Subcommand)]
enum TopVerb {
    #[command(visible_aliases = ["pods", "po"])]
    Pod(pod::Args),
    #[command(visible_aliases = ["nodes", "no"])]
    Node(node::Args),
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.verb {
        TopVerb::Pod(args) => pod::run(args, context),
        TopVerb::Node(args) => node::run(args, context),
    }
}

fn order(text: &str) -> CliResult<UsageSort> {
    UsageSort::parse(text).ok_or_else(|| Failure::plain("--sort-by accepts only cpu or memory"))
}
