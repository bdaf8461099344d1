//! `kloop top`: prints the current resource usage of pods and nodes.
//!
//! Knows: which pods and nodes are requested; [`resource_metrics`](crate::serve::resource_metrics) measures, or a server does. This needs
//! no control plane. Never: stores a sample.

mod node;
mod pod;
mod server_metrics;

use super::{CliResult, CommandContext, Failure};
use crate::apiserver::read;
use crate::object::{Key, Object, Reason, Status};
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

/// Refuses several names, and a name with a selector. `usage`: the arguments of `verb`.
fn check_selection(names: &[String], selects: bool, verb: &str, usage: &str) -> CliResult {
    if names.len() > 1 {
        return Err(Failure::Usage(verb.into(), usage.into()));
    }
    if !names.is_empty() && selects {
        return Err(Failure::plain("only one of NAME or selector can be provided"));
    }
    Ok(())
}

/// Reads the object that is measured. `unmeasured`: the message when there is none.
fn read_named(context: &mut CommandContext, key: &Key, unmeasured: String) -> CliResult<Vec<Object>> {
    match context.read_view(|txn| read::get(txn, key)) {
        Err(Failure::Api { status, .. }) if status.reason == Reason::NotFound => {
            Err(Status::new(Reason::NotFound, unmeasured).into())
        }
        other => Ok(vec![other?]),
    }
}

fn order(text: &str) -> CliResult<UsageSort> {
    UsageSort::parse(text).ok_or_else(|| Failure::plain("--sort-by accepts only cpu or memory"))
}
