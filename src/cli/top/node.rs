//! `kloop top node`: prints the usage of this machine, or of an added node's pods. Simulated nodes
//! have no usage.

use super::{check_selection, order, read_named, server_metrics};
use crate::apiserver::read;
use crate::cli::cluster::targets;
use crate::cli::command_line::flags::{LabelFlag, SelectFlags};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::kinds::pod::facts::PodRequests;
use crate::object::{Key, Object};
use crate::runtime::usage;
use crate::serve::remote_stats::RemoteKubelets;
use crate::serve::resource_metrics::measure_nodes;
use crate::show::usage::{NodeUsage, nodes};
use crate::world::usage::Usage;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Display resource (CPU/memory) usage of nodes.
#[derive(clap::Args)]
#[command(
    override_usage = "[NAME | -l label]",
    after_help = "\
# Show metrics for all nodes
kloop top node

# Show metrics for a given node
kloop top node NODE_NAME"
)]
pub struct Args {
    /// NAME.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    labels: LabelFlag,
    /// If present, print output without headers.
    #[arg(long)]
    no_headers: bool,
    /// Print node resources based on Capacity instead of Allocatable (default) of the nodes.
    #[arg(long)]
    show_capacity: bool,
    /// If non-empty, sort nodes list using specified field. The field can be either 'cpu' or 'memory'.
    #[arg(long, default_value = "", value_name = "FIELD")]
    sort_by: String,
    /// Print node resources related to swap memory.
    #[arg(long)]
    show_swap: bool,
    /// Accepted for compatibility with kubectl; has no effect.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    use_protocol_buffers: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let order = order(&args.sort_by)?;
    check_selection(&args.names, args.labels.text().is_some(), "top node", "node [NAME | -l label]")?;
    let requested_nodes = requested_nodes(&args, context)?;
    if requested_nodes.is_empty() {
        return Err(Failure::WithoutProcess("metrics not available yet".to_owned()));
    }
    let measured = measure(&requested_nodes, context)?;
    let node = |node: &Object| {
        let part = if args.show_capacity { "capacity" } else { "allocatable" };
        let list = node
            .value_at(&["status", part])
            .and_then(|list| serde_json::from_value::<BTreeMap<String, Quantity>>(list.clone()).ok());
        let offers = PodRequests::from_list(list.as_ref());
        NodeUsage {
            name: node.name().to_owned(),
            usage: measured.get(node.name()).copied(),
            capacity: Usage {
                cpu_milli: offers.cpu_milli,
                memory: offers.memory,
                swap: usage::swap_of_machine() as i64,
            },
        }
    };
    context.print(&nodes(requested_nodes.iter().map(node).collect(), order, args.no_headers, args.show_swap))
}

fn measure(requested_nodes: &[Object], context: &mut CommandContext) -> CliResult<BTreeMap<String, Usage>> {
    if context.client().is_some() {
        return server_metrics::read_nodes(context);
    }
    let state = context.home()?;
    let pods = match &state {
        Some(_) => context.read_view(|txn| txn.list(kinds::pod::KIND.resource, None))?,
        None => Vec::new(),
    };
    let kubelets = match context.existing()? {
        Some(api) => RemoteKubelets::find(api, requested_nodes)?,
        None => RemoteKubelets::default(),
    };
    Ok(measure_nodes(state.as_deref(), &kubelets, requested_nodes, &pods))
}

fn requested_nodes(args: &Args, context: &mut CommandContext) -> CliResult<Vec<Object>> {
    let kind = &kinds::node::KIND;
    let Some(name) = args.names.first() else {
        let selection = targets::list_selection(&SelectFlags::from_labels(&args.labels), kind)?;
        return context.read_view(|txn| read::list(txn, kind, None, &selection));
    };
    let name = name.strip_prefix("node/").or(name.strip_prefix("nodes/")).unwrap_or(name);
    let key = Key::new(kind.resource, "", name);
    read_named(context, &key, format!("nodemetrics.metrics.k8s.io {name:?} not found"))
}
