//! Verbs about nodes: cordon, uncordon, taint, drain, and `kloop node`, which adds, joins, stops, starts and removes them.
//!
//! Knows: how these verbs find nodes, and how a node is cordoned. Start reading at
//! [`cordon`](mod@cordon).

mod add;
pub mod cordon;
pub mod drain;
mod join;
mod kubelet_server;
mod remove;
mod stop;
pub mod taint;
mod token;

use super::cluster::change::change;
use super::cluster::targets::{self, Target};
use super::command_line::dry_run::DryRun;
use super::command_line::flags::{LabelFlag, SelectFlags};
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::read;
use crate::kinds;
use crate::object::{Key, Object};
use clap::Subcommand;

/// Add nodes, join machines, stop and start nodes, remove them.
///
/// This machine is a node while reconcile runs. Added nodes run their pods on this machine as well, or simulate them. Other machines
/// join with a token.
#[derive(clap::Args)]
#[command(
    override_usage = "SUBCOMMAND",
    after_help = "\
# Ten simulated nodes to rehearse on
for i in 1 2 3 4 5 6 7 8 9 10; do kloop node add node-$i --simulated --label zone=a; done

# What happens when one of them falls silent?
kloop node stop node-1"
)]
pub struct Args {
    #[command(subcommand)]
    verb: NodeVerb,
}

#[derive(Subcommand)]
enum NodeVerb {
    Add(Box<add::Args>),
    Stop(stop::Args),
    /// Start a stopped node: it sends heartbeats and runs its pods again.
    #[command(
        override_usage = "NODE",
        after_help = "\
# Let node-1 beat again
kloop node start node-1"
    )]
    Start(stop::StartArgs),
    Remove(remove::Args),
    Join(join::Args),
    Token(token::Args),
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.verb {
        NodeVerb::Add(args) => add::run(*args, context),
        NodeVerb::Stop(args) => stop::run(args, context),
        NodeVerb::Start(args) => stop::start(args, context),
        NodeVerb::Remove(args) => remove::run(args, context),
        NodeVerb::Join(args) => join::run(args, context),
        NodeVerb::Token(args) => token::run(args, context),
    }
}

/// Finds the nodes with these names, or of a selector.
fn find(
    context: &mut CommandContext,
    verb: &str,
    names: &[String],
    labels: &LabelFlag,
) -> CliResult<(Vec<Target>, Vec<Failure>)> {
    let kind = &kinds::node::KIND;
    match (names, labels.text()) {
        ([], None) if labels.is_given() => return Err(targets::no_resources()),
        ([], None) => {
            return Err(Failure::Usage(verb.into(), format!("USAGE: {verb} NODE [flags]")));
        }
        ([_, ..], Some(_)) => {
            return Err(Failure::plain("error: cannot specify both a node name and a --selector option"));
        }
        ([], Some(_)) => {
            let selection = targets::list_selection(&SelectFlags::from_labels(labels), kind)?;
            let nodes = context.read_view(|txn| read::list(txn, kind, None, &selection))?;
            return Ok((nodes.into_iter().map(|object| Target { kind, object }).collect(), Vec::new()));
        }
        _ => {}
    }
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for name in names {
        let name = name.strip_prefix("node/").or(name.strip_prefix("nodes/")).unwrap_or(name);
        match context.read_view(|txn| read::get(txn, &Key::new(kind.resource, "", name))) {
            Ok(object) => found.push(Target { kind, object }),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((found, failures))
}

fn is_cordoned(node: &Object) -> bool {
    node.value_at(&["spec", "unschedulable"]).is_some_and(|value| value == true)
}

/// Cordons or uncordons a node, and prints the result.
fn cordon_one(context: &mut CommandContext, target: &Target, cordon: bool, dry_run: DryRun) -> CliResult {
    let reply = change(context, target, dry_run, |node| {
        if is_cordoned(node) != cordon {
            if cordon {
                node.set(&["spec", "unschedulable"], true);
            } else {
                node.unset(&["spec", "unschedulable"]);
            }
        }
        Ok(())
    })?;
    let already = if reply.changed { "" } else { "already " };
    let word = if cordon { "cordoned" } else { "uncordoned" };
    context.print_line(&format!("node/{} {already}{word}{}", reply.object.name(), dry_run.suffix()))
}
