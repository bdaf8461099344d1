//! `kloop top pod`: prints the usage of pods.

use super::{check_selection, order, read_named, server_metrics};
use crate::apiserver::read::{self, ListSelection};
use crate::cli::cluster::control_plane;
use crate::cli::cluster::targets;
use crate::cli::command_line::flags::SelectFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::object::{Key, Object, Reason, Status};
use crate::serve::remote_stats::RemoteKubelets;
use crate::serve::resource_metrics::{MeasuredContainers, measure_pods};
use crate::show::usage::{PodUsage, UsageOptions, pods};
use std::path::Path;

/// Display resource (CPU/memory) usage of pods.
#[derive(clap::Args)]
#[command(
    override_usage = "[NAME | -l label]",
    after_help = "\
# Show metrics for all pods in the default namespace
kloop top pod

# Show metrics for all pods in the given namespace
kloop top pod --namespace=NAMESPACE

# Show metrics for a given pod and its containers
kloop top pod POD_NAME --containers

# Show metrics for the pods defined by label name=myLabel
kloop top pod -l name=myLabel"
)]
pub struct Args {
    /// NAME.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    select: SelectFlags,
    /// If present, list the requested object(s) across all namespaces. Namespace in current context is ignored even if specified
    /// with --namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// If present, print usage of containers within a pod.
    #[arg(long)]
    containers: bool,
    /// If present, print output without headers.
    #[arg(long)]
    no_headers: bool,
    /// If non-empty, sort pods list using specified field. The field can be either 'cpu' or 'memory'.
    #[arg(long, default_value = "", value_name = "FIELD")]
    sort_by: String,
    /// Print the sum of the resource usage.
    #[arg(long)]
    sum: bool,
    /// Print pod resources related to swap memory.
    #[arg(long)]
    show_swap: bool,
    /// Accepted for compatibility with kubectl; has no effect.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    use_protocol_buffers: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let order = order(&args.sort_by)?;
    check_selection(&args.names, args.select.is_set(), "top pod", "pod [NAME | -l label]")?;
    let named = args.names.first().map(|name| name.strip_prefix("pod/").or(name.strip_prefix("pods/")).unwrap_or(name));
    let requested_pods = requested_pods(&args, named, context)?;
    let measured = match context.home()? {
        Some(state) => {
            let kubelets = match context.existing()? {
                Some(api) => RemoteKubelets::find_for_pods(api, &requested_pods)?,
                None => RemoteKubelets::default(),
            };
            measure(&state, &kubelets, &requested_pods)
        }
        None => read_from_server(&args, named, context)?,
    };
    if measured.is_empty() {
        return explain_empty_result(&args, named, &requested_pods, context);
    }
    let options = UsageOptions {
        no_headers: args.no_headers,
        with_namespace: args.all_namespaces,
        containers: args.containers,
        sum: args.sum,
        swap: args.show_swap,
        order,
    };
    context.print(&pods(measured, &options))
}

fn requested_pods(args: &Args, named: Option<&str>, context: &mut CommandContext) -> CliResult<Vec<Object>> {
    let kind = &kinds::pod::KIND;
    let namespace = context.namespace().to_owned();
    let Some(name) = named else {
        let selection: ListSelection = targets::list_selection(&args.select, kind)?;
        let namespace = Some(namespace.as_str()).filter(|_| !args.all_namespaces);
        return context.read_view(|txn| read::list(txn, kind, namespace, &selection));
    };
    let key = Key::new(kind.resource, &namespace, name);
    read_named(context, &key, format!("podmetrics.metrics.k8s.io \"{namespace}/{name}\" not found"))
}

/// Returns the usage of pods from a server; nothing without a cluster.
fn read_from_server(args: &Args, named: Option<&str>, context: &mut CommandContext) -> CliResult<Vec<PodUsage>> {
    if context.client().is_none() {
        return Ok(Vec::new());
    }
    let selection = targets::list_selection(&args.select, &kinds::pod::KIND)?;
    let namespace = context.namespace().to_owned();
    let namespace = Some(namespace.as_str()).filter(|_| !args.all_namespaces || named.is_some());
    server_metrics::read_pods(namespace, named, &selection, context)
}

/// Usage of the pods that run on this machine, or on others whose kubelets measure them.
fn measure(state: &Path, kubelets: &RemoteKubelets, pods: &[Object]) -> Vec<PodUsage> {
    let measured =
        pods.iter().zip(measure_pods(state, kubelets, pods)).filter(|(_, containers)| !containers.is_empty());
    let row = |(pod, containers): (&Object, MeasuredContainers)| PodUsage {
        namespace: pod.namespace().to_owned(),
        name: pod.name().to_owned(),
        containers,
    };
    measured.map(row).collect()
}

/// Prints or returns the reason for an empty result, in kubectl's words.
fn explain_empty_result(args: &Args, named: Option<&str>, pods: &[Object], context: &mut CommandContext) -> CliResult {
    if let Some(name) = named {
        let namespace = context.namespace();
        let message = format!("podmetrics.metrics.k8s.io \"{namespace}/{name}\" not found");
        return Err(Status::new(Reason::NotFound, message).into());
    }
    if !pods.is_empty() {
        return Err(Failure::WithoutProcess("metrics not available yet".to_owned()));
    }
    let place = if args.all_namespaces { String::new() } else { format!(" in {} namespace.", context.namespace()) };
    control_plane::print_nothing_found(context, &format!("No resources found{place}"))
}
