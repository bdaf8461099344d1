//! `kloop top node`: what this machine uses. Of nodes that only pretend nothing is known.

use super::{order, twice};
use crate::apiserver::read::{self, Wanted};
use crate::cli::flags::SelectFlags;
use crate::cli::targets::{self, kind};
use crate::cli::{Context, Failure, Outcome};
use crate::kinds::pod::facts::Requests;
use crate::object::{Key, Object, Reason, Status};
use crate::reconcile::node::{RUNTIME, SIMULATED};
use crate::runtime::usage;
use crate::show::usage::{Node, nodes};
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
    /// Accepted for kubectl's sake.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    use_protocol_buffers: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    let order = order(&args.sort_by)?;
    if args.names.len() > 1 {
        return Err(Failure::Usage("top node".into(), "node [NAME | -l label]".into()));
    }
    let selects = args.selector.is_some();
    if !args.names.is_empty() && selects {
        return Err(Failure::plain("only one of NAME or selector can be provided"));
    }
    let found = found(&args, context)?;
    if found.is_empty() {
        return Err(Failure::plain("metrics not available yet"));
    }
    let [(before, first), (after, second)] = twice(usage::of_machine);
    let of_machine = first.zip(second).and_then(|(first, second)| Usage::between((before, first), (after, second)));
    let node = |node: &Object| {
        let is_real = node.annotation(RUNTIME) != Some(SIMULATED);
        let part = if args.show_capacity { "capacity" } else { "allocatable" };
        let list = node
            .at(&["status", part])
            .and_then(|list| serde_json::from_value::<BTreeMap<String, Quantity>>(list.clone()).ok());
        let offers = Requests::of(list.as_ref());
        Node {
            name: node.name().to_owned(),
            usage: of_machine.filter(|_| is_real),
            capacity: Usage {
                cpu_milli: offers.cpu_milli,
                memory: offers.memory,
                swap: usage::swap_of_machine() as i64,
            },
        }
    };
    context.print(&nodes(found.iter().map(node).collect(), order, args.no_headers, args.show_swap))
}

fn found(args: &Args, context: &mut Context) -> Outcome<Vec<Object>> {
    let kind = kind("nodes")?;
    let Some(name) = args.names.first() else {
        let select = SelectFlags { selector: args.selector.clone(), ..SelectFlags::default() };
        let wanted: Wanted = targets::wanted(&select, kind)?;
        return context.look(|ledger| read::list(ledger, kind, None, &wanted));
    };
    let name = name.strip_prefix("node/").or(name.strip_prefix("nodes/")).unwrap_or(name);
    let key = Key::new(kind.resource, "", name);
    match context.look(|ledger| read::get(ledger, &key)) {
        Err(Failure::Api { status, .. }) if status.reason == Reason::NotFound => {
            let message = format!("nodemetrics.metrics.k8s.io {name:?} not found");
            Err(Status::new(Reason::NotFound, message).into())
        }
        other => Ok(vec![other?]),
    }
}
