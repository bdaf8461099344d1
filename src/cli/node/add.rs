//! `kloop node add`: adds a node in addition to this machine's.

use super::taint;
use crate::apiserver::WriteOptions;
use crate::apiserver::create::create;
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::ChangeFlags;
use crate::cli::manifests::key_changes;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::object::quantity::Quantity;
use crate::reconcile::node::{LOCAL, SIMULATED, additional};
use crate::runtime::capacity;
use serde_json::Value;

/// Add a node that runs its pods on this machine, or simulates them.
///
/// The scheduler uses the given capacity, which may exceed this machine's; the default is the
/// machine's. A simulated node starts no processes: its pods are Running immediately, or behave as
/// their annotations kloop.dev/simulate-exit, -ready and -crash say.
#[derive(clap::Args)]
#[command(
    override_usage = "NODE [--cpu=4] [--memory=8Gi] [--simulated]",
    after_help = "\
# A simulated node with four cores
kloop node add node-1 --cpu 4 --memory 8Gi --simulated

# A node for pods that tolerate its taint, in a zone
kloop node add gpu-1 --label zone=a --label kind=gpu --taint dedicated=gpu:NoSchedule"
)]
pub struct Args {
    /// NODE.
    #[arg(value_name = "NODE")]
    name: String,
    /// CPU capacity of the node.
    #[arg(long, value_name = "QUANTITY")]
    cpu: Option<String>,
    /// Memory capacity of the node.
    #[arg(long, value_name = "QUANTITY")]
    memory: Option<String>,
    /// Maximum number of pods on the node.
    #[arg(long, default_value_t = 110, value_name = "N")]
    pods: i64,
    /// Label of the node, KEY=VALUE; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Taint of the node, KEY=VALUE:EFFECT; may be given several times.
    #[arg(long, value_name = "KEY=VALUE:EFFECT")]
    taint: Vec<String>,
    /// Simulate the node: its pods start no processes.
    #[arg(long)]
    simulated: bool,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let dry_run = args.change.dry_run(context)?;
    let mut capacity = capacity::measure_capacity(Some(&args.name), &context.state());
    if let Some(cpu) = &args.cpu {
        capacity.cpu_milli = amount("cpu", cpu)?.milli();
    }
    if let Some(memory) = &args.memory {
        capacity.memory = amount("memory", memory)?.value();
    }
    capacity.pods = u32::try_from(args.pods).map_err(|_| {
        Failure::plain(format!("invalid argument \"{}\" for \"--pods\" flag: it must be a number of pods", args.pods))
    })?;
    let runtime = if args.simulated { SIMULATED } else { LOCAL };
    let mut node = additional(&capacity, runtime, context.now());
    for (key, value) in key_changes::parse(&args.label, "label", false)?.set {
        node.set(&["metadata", "labels", &key], value);
    }
    let taints = args.taint.iter().map(|text| taint::read(text)).collect::<CliResult<Vec<Value>>>()?;
    if !taints.is_empty() {
        node.set(&["spec", "taints"], taints);
    }
    let kind = &kinds::node::KIND;
    // As for nodes that register themselves, no field manager is recorded.
    let options = WriteOptions { dry_run: dry_run == DryRun::Server, ..WriteOptions::default() };
    let reply = context.api()?.write(options.dry_run, |txn| create(txn, kind, &node, &options))?;
    args.change.print_change(context, kind, &reply.object, "added", dry_run)
}

fn amount(flag: &str, text: &str) -> CliResult<Quantity> {
    let parsed = Quantity::parse(text).ok().filter(|amount| !amount.is_negative());
    parsed.ok_or_else(|| {
        Failure::plain(format!(
            "invalid argument {text:?} for \"--{flag}\" flag: write a quantity such as 4, 500m or 8Gi"
        ))
    })
}
