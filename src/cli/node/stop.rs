//! `kloop node stop` and `start`: end and resume a node's heartbeats.

use super::find;
use crate::apiserver::read::{self, ListSelection};
use crate::cli::cluster::change::change;
use crate::cli::command_line::flags::{LabelFlag, WriteFlags};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::object::selector::FieldSelector;
use crate::object::{Reason, Status, time};
use crate::reconcile::node::STOPPED;
use crate::runtime::{folder, reap_dead_shim};

/// Stop a node: it sends no heartbeats, and its pods are not managed.
///
/// The control plane reacts as to an unreachable machine: after 50 seconds the node is NotReady,
/// after five minutes its pods are evicted. Their processes keep running unless --kill is set.
#[derive(clap::Args)]
#[command(
    override_usage = "NODE",
    after_help = "\
# Cut node-1 off
kloop node stop node-1

# Let it lose power
kloop node stop node-1 --kill"
)]
pub struct Args {
    /// NODE.
    #[arg(value_name = "NODE")]
    names: Vec<String>,
    /// Also kill the processes of its pods.
    #[arg(long)]
    kill: bool,
    #[command(flatten)]
    write: WriteFlags,
}

/// Arguments of `start`.
#[derive(clap::Args)]
pub struct StartArgs {
    /// NODE.
    #[arg(value_name = "NODE")]
    names: Vec<String>,
    #[command(flatten)]
    write: WriteFlags,
}

/// Runs `stop`.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let dry_run = args.write.dry_run(context)?;
    let (found, mut failures) = find(context, "node stop", &args.names, &LabelFlag::default())?;
    for target in &found {
        let since = time::rfc3339(context.now());
        let mut already = false;
        let stopped = change(context, target, dry_run, |node| {
            already = node.annotation(STOPPED).is_some();
            if !already {
                node.set(&["metadata", "annotations", STOPPED], since.as_str());
            }
            Ok(())
        });
        let name = target.object.name();
        match stopped {
            Ok(_) if args.kill && dry_run == Default::default() => {
                let killed = kill(context, name)?;
                context.print_line(&format!("node/{name} stopped; killed the processes of {killed} pods"))?;
            }
            Ok(_) if already => context.print_line(&format!("node/{name} already stopped{}", dry_run.suffix()))?,
            Ok(_) => context.print_line(&format!("node/{name} stopped{}", dry_run.suffix()))?,
            Err(failure) => failures.push(failure),
        }
    }
    Failure::from_failures(failures)
}

/// Runs `start`.
pub fn start(args: StartArgs, context: &mut CommandContext) -> CliResult {
    let dry_run = args.write.dry_run(context)?;
    let (found, mut failures) = find(context, "node start", &args.names, &LabelFlag::default())?;
    for target in &found {
        let mut was_stopped = false;
        let started = change(context, target, dry_run, |node| {
            was_stopped = node.unset(&["metadata", "annotations", STOPPED]);
            Ok(())
        });
        let already = if was_stopped { "" } else { "already " };
        match started {
            Ok(reply) => {
                context.print_line(&format!("node/{} {already}started{}", reply.object.name(), dry_run.suffix()))?
            }
            Err(failure) => failures.push(failure),
        }
    }
    Failure::from_failures(failures)
}

/// Kills the processes of a node's pods. Returns the number of pods that had any.
fn kill(context: &mut CommandContext, node: &str) -> CliResult<usize> {
    let wrong = |error: &dyn std::fmt::Display| Failure::from(Status::new(Reason::BadRequest, error.to_string()));
    let fields = FieldSelector::parse(&format!("spec.nodeName={node}")).map_err(|error| wrong(&error))?;
    let kind = &kinds::pod::KIND;
    let selection = ListSelection { labels: None, fields: Some(fields) };
    let pods = context.read_view(|txn| read::list(txn, kind, None, &selection))?;
    let home = context.api()?.store().home().to_owned();
    let holders = pods.iter().filter_map(|pod| folder::holder(&folder::pod_path(&home, pod.local_uid())));
    Ok(holders.map(reap_dead_shim::end_shim).count())
}
