//! `kloop top node`: prints the usage of this machine, or of an added node's pods. Simulated nodes
//! have no usage.

use super::{order, pod, sample_twice};
use crate::apiserver::read::{self, ListSelection};
use crate::cli::flags::SelectFlags;
use crate::cli::targets;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::kinds::pod::facts::PodRequests;
use crate::object::{Key, Object, Reason, Status};
use crate::reconcile::node::{LOCAL, RUNTIME};
use crate::runtime::usage;
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
    /// Selector (label query) to filter on.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
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
    if args.names.len() > 1 {
        return Err(Failure::Usage("top node".into(), "node [NAME | -l label]".into()));
    }
    let selects = args.selector.is_some();
    if !args.names.is_empty() && selects {
        return Err(Failure::plain("only one of NAME or selector can be provided"));
    }
    let requested_nodes = requested_nodes(&args, context)?;
    if requested_nodes.is_empty() {
        return Err(Failure::plain("metrics not available yet"));
    }
    let is_added = |node: &&Object| node.annotation(RUNTIME) == Some(LOCAL);
    let added: Vec<&str> = requested_nodes.iter().filter(is_added).map(Object::name).collect();
    let of_nodes = usage_by_node(&added, context)?;
    let [(before, first), (after, second)] = sample_twice(usage::of_machine);
    let of_machine =
        first.zip(second).and_then(|(first, second)| Usage::from_samples((before, first), (after, second)));
    let node = |node: &Object| {
        let is_machine = node.annotation(RUNTIME).is_none();
        let part = if args.show_capacity { "capacity" } else { "allocatable" };
        let list = node
            .value_at(&["status", part])
            .and_then(|list| serde_json::from_value::<BTreeMap<String, Quantity>>(list.clone()).ok());
        let offers = PodRequests::from_list(list.as_ref());
        NodeUsage {
            name: node.name().to_owned(),
            usage: of_nodes.get(node.name()).copied().or(of_machine.filter(|_| is_machine)),
            capacity: Usage {
                cpu_milli: offers.cpu_milli,
                memory: offers.memory,
                swap: usage::swap_of_machine() as i64,
            },
        }
    };
    context.print(&nodes(requested_nodes.iter().map(node).collect(), order, args.no_headers, args.show_swap))
}

/// Returns the usage of the pods on added nodes.
fn usage_by_node(added: &[&str], context: &mut CommandContext) -> CliResult<BTreeMap<String, Usage>> {
    let mut sums: BTreeMap<String, Usage> = added.iter().map(|name| ((*name).to_owned(), Usage::default())).collect();
    let Some(state) = context.existing()?.map(|api| api.store().home().to_owned()).filter(|_| !sums.is_empty()) else {
        return Ok(sums);
    };
    let node = |pod: &Object| pod.text(&["spec", "nodeName"]).unwrap_or_default().to_owned();
    let resource = kinds::pod::KIND.resource;
    let mut pods = context.read_view(|txn| txn.list(resource, None))?;
    pods.retain(|pod| sums.contains_key(&node(pod)));
    let nodes: BTreeMap<(&str, &str), String> =
        pods.iter().map(|pod| ((pod.namespace(), pod.name()), node(pod))).collect();
    for pod in pod::measure(&state, &pods) {
        let sum = nodes.get(&(&*pod.namespace, &*pod.name)).and_then(|node| sums.get_mut(node));
        sum.into_iter().for_each(|sum| sum.add(pod.usage()));
    }
    Ok(sums)
}

fn requested_nodes(args: &Args, context: &mut CommandContext) -> CliResult<Vec<Object>> {
    let kind = &kinds::node::KIND;
    let Some(name) = args.names.first() else {
        let select = SelectFlags { selector: args.selector.clone(), ..SelectFlags::default() };
        let selection: ListSelection = targets::list_selection(&select, kind)?;
        return context.read_view(|txn| read::list(txn, kind, None, &selection));
    };
    let name = name.strip_prefix("node/").or(name.strip_prefix("nodes/")).unwrap_or(name);
    let key = Key::new(kind.resource, "", name);
    match context.read_view(|txn| read::get(txn, &key)) {
        Err(Failure::Api { status, .. }) if status.reason == Reason::NotFound => {
            let message = format!("nodemetrics.metrics.k8s.io {name:?} not found");
            Err(Status::new(Reason::NotFound, message).into())
        }
        other => Ok(vec![other?]),
    }
}
