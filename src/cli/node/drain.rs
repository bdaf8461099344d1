//! `kloop drain`: cordons nodes and evicts their pods within the limits of disruption budgets.

use super::{cordon_one, find};
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::evict::evict;
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::rules::names::key_of;
use crate::cli::cluster::deadline::Deadline;
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::{self, LabelFlag, WriteFlags};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::object::selector::{FieldSelector, Selector};
use crate::object::{Key, MIRROR, Object, Reason, Resource, Status, join_errors, time};
use jiff::SignedDuration;
use std::time::{Duration, Instant};

/// Drain node in preparation for maintenance.
///
/// The given node will be marked unschedulable to prevent new pods from arriving. 'drain' evicts the pods; pod disruption budgets
/// are respected. If there are daemon set-managed pods, drain will not proceed without --ignore-daemonsets, and if there are pods
/// that nothing manages, it will not delete any unless you use --force.
///
/// When you are ready to put the node back into service, use kloop uncordon, which will make the node schedulable again.
#[derive(clap::Args)]
#[command(
    override_usage = "NODE",
    after_help = "\
# Drain node \"foo\", even if there are pods not managed by a replication controller, replica set, job, daemon set, or stateful set on it
kloop drain foo --force

# As above, but abort if there are pods not managed by a replication controller, replica set, job, daemon set, or stateful set, and use a grace period of 15 minutes
kloop drain foo --grace-period=900"
)]
pub struct Args {
    /// NODE.
    #[arg(value_name = "NODE")]
    names: Vec<String>,
    #[command(flatten)]
    labels: LabelFlag,
    /// Label selector to filter pods on the node.
    #[arg(long, value_name = "SELECTOR")]
    pod_selector: Option<String>,
    #[command(flatten)]
    write: WriteFlags,
    /// Continue even if there are pods that do not declare a controller.
    #[arg(long)]
    force: bool,
    /// Ignore DaemonSet-managed pods.
    #[arg(long)]
    ignore_daemonsets: bool,
    /// Continue even if there are pods using emptyDir (local data that will be deleted when the node is drained).
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Force drain to use delete, even if eviction is supported. This will bypass checking PodDisruptionBudgets.
    #[arg(long)]
    disable_eviction: bool,
    /// Period of time in seconds given to each pod to terminate gracefully. If negative, the pod's own.
    #[arg(long, default_value_t = -1, value_name = "SECONDS", allow_negative_numbers = true)]
    grace_period: i64,
    /// The length of time to wait before giving up, zero means infinite.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
    /// If a pod has been marked for deletion for longer than this many seconds, skip waiting for it.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    skip_wait_for_delete_timeout: i64,
    /// Return large lists in chunks rather than all at once. Pass 0 to disable. A state file is read at once.
    #[arg(long, default_value_t = 500, value_name = "N")]
    chunk_size: i64,
}

/// Error after the timeout.
const REACHED: &str = "global timeout reached";

/// The wait before a refused eviction is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    context.set_chunk_size(args.chunk_size);
    let dry_run = args.write.dry_run(context)?;
    let timeout = flags::nonzero(args.timeout);
    parse_pod_selector(&args)?;
    let (found, failures) = find(context, "drain", &args.names, &args.labels)?;
    Failure::from_failures(failures)?;
    for target in &found {
        cordon_one(context, target, true, dry_run)?;
    }
    let mut failed: Vec<(String, Vec<String>)> = Vec::new();
    for target in &found {
        let name = target.object.name().to_owned();
        let errors = drain(&args, context, &name, timeout, dry_run)?;
        if errors.is_empty() {
            context.print_line(&format!("node/{name} drained{}", dry_run.suffix()))?;
            continue;
        }
        let why = join_errors(&errors);
        context
            .print_notice(&format!("error: unable to drain node {name:?} due to error: {why}, continuing command..."));
        failed.push((name, errors));
    }
    if failed.is_empty() {
        return Ok(());
    }
    context.print_notice("There are pending nodes to be drained:");
    for (name, _) in &failed {
        context.print_notice(&format!(" {name}"));
    }
    // For a single node, each error is a line; for several nodes, each node is.
    match &failed[..] {
        [(_, errors)] if args.disable_eviction && errors[0].starts_with(REACHED) => {
            context.print_notice(&format!("error: {}", errors[0]));
        }
        [(_, errors)] => errors.iter().for_each(|error| context.print_notice(error)),
        several => several.iter().for_each(|(_, errors)| context.print_notice(&join_errors(errors))),
    }
    Err(Failure::Code(1))
}

/// Evicts the pods of one node. Returns the errors.
fn drain(
    args: &Args,
    context: &mut CommandContext,
    node: &str,
    timeout: Option<Duration>,
    dry_run: DryRun,
) -> CliResult<Vec<String>> {
    let selection = select_pods(args, context, node)?;
    if !selection.errors.is_empty() {
        return Ok(selection.errors);
    }
    if !selection.warnings.is_empty() {
        context.warn(&[selection.warnings.join("; ")]);
    }
    let errors = remove(args, context, selection.pods, timeout, dry_run)?;
    if !errors.is_empty() {
        print_pending(args, context, node, &join_errors(&errors))?;
    }
    Ok(errors)
}

/// Prints the pods that remain on a node that could not be drained.
fn print_pending(args: &Args, context: &mut CommandContext, node: &str, error: &str) -> CliResult {
    let remaining = select_pods(args, context, node)?;
    if !remaining.pods.is_empty() {
        context.print_notice(&format!("There are pending pods in node {node:?} when an error occurred: {error}"));
        remaining.pods.iter().for_each(|pod| context.print_notice(&format!("pod/{}", pod.name())));
    }
    if !remaining.errors.is_empty() {
        let errors = join_errors(&remaining.errors);
        context.print_notice(&format!("Following errors occurred while getting the list of pods to delete:\n{errors}"));
    }
    Ok(())
}

fn select_pods(args: &Args, context: &mut CommandContext, node: &str) -> CliResult<DrainSelection> {
    let pods = pods_of(args, context, node)?;
    DrainSelection::from_pods(args, context, pods)
}

/// Parses `--pod-selector`.
fn parse_pod_selector(args: &Args) -> CliResult<Option<Selector>> {
    let parsed = args.pod_selector.as_deref().map(Selector::parse).transpose();
    parsed.map_err(|_| Failure::plain("--pod-selector=<pod_selector> must be a valid label selector"))
}

fn pods_of(args: &Args, context: &mut CommandContext, node: &str) -> CliResult<Vec<Object>> {
    let labels = parse_pod_selector(args)?;
    let fields = FieldSelector::parse(&format!("spec.nodeName={node}"));
    let fields = fields.map_err(|error| Failure::plain(error.to_string()))?;
    let selection = ListSelection { labels, fields: Some(fields) };
    let pods = &kinds::pod::KIND;
    context.read_view(|txn| read::list(txn, pods, None, &selection))
}

/// Pods to evict, with warnings and errors.
#[derive(Default)]
struct DrainSelection {
    pods: Vec<Object>,
    warnings: Vec<String>,
    errors: Vec<String>,
}

/// Result of one of kubectl's pod filters.
enum DrainFilterResult {
    /// Evict the pod.
    Evict,
    /// Evict the pod, with a warning.
    EvictWithWarning(String),
    /// Skip the pod, possibly with a warning.
    Skip(Option<&'static str>),
    /// The pod prevents the drain.
    Refused(String),
}

impl DrainSelection {
    fn from_pods(args: &Args, context: &mut CommandContext, pods: Vec<Object>) -> CliResult<DrainSelection> {
        let mut selection = DrainSelection::default();
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        for pod in pods {
            let name = format!("{}/{}", pod.namespace(), pod.name());
            match filter_pod(args, context, &pod)? {
                DrainFilterResult::Evict => selection.pods.push(pod),
                DrainFilterResult::EvictWithWarning(warning) => {
                    add_notice(&mut warnings, warning, name);
                    selection.pods.push(pod);
                }
                DrainFilterResult::Skip(warning) => {
                    warning.into_iter().for_each(|text| add_notice(&mut warnings, text.into(), name.clone()))
                }
                DrainFilterResult::Refused(error) => add_notice(&mut errors, error, name),
            }
        }
        let message = |(what, names): (String, Vec<String>)| format!("{what}: {}", names.join(", "));
        selection.warnings = warnings.into_iter().map(message).collect();
        selection.errors = errors.into_iter().map(message).map(|text| format!("cannot delete {text}")).collect();
        Ok(selection)
    }
}

/// Adds a pod's name to a message.
fn add_notice(notices: &mut Vec<(String, Vec<String>)>, what: String, name: String) {
    match notices.iter_mut().find(|(known, _)| *known == what) {
        Some((_, names)) => names.push(name),
        None => notices.push((what, vec![name])),
    }
}

/// Applies kubectl's filters in their order (`pkg/drain/filters.go`). The first filter that skips
/// or refuses a pod decides; otherwise the last warning counts.
fn filter_pod(args: &Args, context: &mut CommandContext, pod: &Object) -> CliResult<DrainFilterResult> {
    let ended = matches!(pod.text(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let skip = args.skip_wait_for_delete_timeout;
    if pod.annotation(MIRROR).is_some() || is_late(pod, skip, context) {
        return Ok(DrainFilterResult::Skip(None));
    }
    let owner = pod.controller();
    let mut result = DrainFilterResult::Evict;
    if let Some(owner) = owner.as_ref().filter(|owner| owner.kind == "DaemonSet" && !ended) {
        let key = Key::new(Resource("daemonsets.apps"), pod.namespace(), &owner.name);
        if context.read_view(|txn| txn.exists(&key))? {
            return Ok(match args.ignore_daemonsets {
                true => DrainFilterResult::Skip(Some("ignoring DaemonSet-managed Pods")),
                false => {
                    DrainFilterResult::Refused("DaemonSet-managed Pods (use --ignore-daemonsets to ignore)".into())
                }
            });
        }
        let missing = Status::not_found(key.resource, &key.name).message;
        if !args.force {
            return Ok(DrainFilterResult::Refused(missing));
        }
        result = DrainFilterResult::EvictWithWarning(missing);
    }
    if ended {
        return Ok(DrainFilterResult::Evict);
    }
    if pod.items(&["spec", "volumes"]).iter().any(|volume| volume.get("emptyDir").is_some()) {
        if !args.delete_emptydir_data {
            let text = "Pods with local storage (use --delete-emptydir-data to override)";
            return Ok(DrainFilterResult::Refused(text.into()));
        }
        result = DrainFilterResult::Evict;
    }
    Ok(match (owner, args.force) {
        (Some(_), _) => result,
        (None, true) => DrainFilterResult::EvictWithWarning("deleting Pods that declare no controller".into()),
        (None, false) => DrainFilterResult::Refused("Pods that declare no controller (use --force to override)".into()),
    })
}

/// Whether a pod was marked for deletion longer than `skip` seconds ago.
fn is_late(pod: &Object, skip: i64, context: &CommandContext) -> bool {
    pod.deletion().is_some_and(|at| skip > 0 && context.now().duration_since(at).as_secs() > skip)
}

/// A pod that is being evicted.
struct PodToEvict {
    pod: Object,
    /// Time of the next attempt; `None` once the eviction was accepted.
    retry: Option<Instant>,
}

/// Evicts all pods, repeats evictions that are refused for now, and waits until the pods are gone.
/// Returns the errors.
fn remove(
    args: &Args,
    context: &mut CommandContext,
    pods: Vec<Object>,
    timeout: Option<Duration>,
    dry_run: DryRun,
) -> CliResult<Vec<String>> {
    if dry_run != DryRun::None {
        let word = if args.disable_eviction { "deleting" } else { "evicting" };
        for pod in &pods {
            context.print_line(&format!("{word} pod {}/{}{}", pod.namespace(), pod.name(), dry_run.suffix()))?;
        }
        return Ok(Vec::new());
    }
    let deadline = Deadline::with_control_plane(context, timeout.filter(|timeout| !timeout.is_zero()))?;
    let (now, all) = (Instant::now(), pods.len());
    let mut pending: Vec<PodToEvict> = pods.into_iter().map(|pod| PodToEvict { pod, retry: Some(now) }).collect();
    let mut errors = Vec::new();
    loop {
        let mut tried = Vec::new();
        for entry in pending {
            if entry.retry.is_none_or(|at| at > Instant::now()) {
                tried.push(entry);
                continue;
            }
            match remove_one(args, context, &entry.pod)? {
                EvictionTry::Accepted => tried.push(PodToEvict { retry: None, ..entry }),
                EvictionTry::Later => tried.push(PodToEvict { retry: Some(Instant::now() + RETRY), ..entry }),
                EvictionTry::Never(error) => errors.push(error),
            }
        }
        pending = tried;
        pending = remaining_pods(args, context, pending)?;
        if pending.is_empty() {
            context.end_progress();
            return Ok(errors);
        }
        context.show_progress(|| format!("draining: {} of {all} pods are gone", all.saturating_sub(pending.len())));
        if !deadline.wait() {
            errors.extend(timeout_errors(args, &pending, timeout.unwrap_or_default()));
            return Ok(errors);
        }
    }
}

/// Errors after the timeout: one for each pod, or a single one with `--disable-eviction`.
fn timeout_errors(args: &Args, pending: &[PodToEvict], timeout: Duration) -> Vec<String> {
    let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    let reached = format!("{REACHED}: {}", time::format_duration(timeout));
    if args.disable_eviction {
        return vec![reached];
    }
    let message = |PodToEvict { pod, retry }: &PodToEvict| match retry {
        Some(_) => format!("error when evicting pods/{:?} -n {:?}: {reached}", pod.name(), pod.namespace()),
        None => format!(
            "error when waiting for pod {:?} in namespace {:?} to terminate: {reached}",
            pod.name(),
            pod.namespace()
        ),
    };
    pending.iter().map(message).collect()
}

/// Result of one attempt to evict a pod.
enum EvictionTry {
    Accepted,
    Later,
    Never(String),
}

/// Evicts a pod, or deletes it with `--disable-eviction`.
fn remove_one(args: &Args, context: &mut CommandContext, pod: &Object) -> CliResult<EvictionTry> {
    let Some(kind) = crate::kinds::by_name("pods") else { return Ok(EvictionTry::Accepted) };
    let (name, namespace) = (pod.name(), pod.namespace());
    if !args.disable_eviction {
        context.print_line(&format!("evicting pod {namespace}/{name}"))?;
    }
    let key = key_of(kind, pod);
    let grace = Some(args.grace_period).filter(|grace| *grace >= 0);
    let options = DeleteOptions { grace, uid: Some(pod.uid().to_owned()), ..DeleteOptions::default() };
    let done = context.api()?.write(false, |txn| match args.disable_eviction {
        true => delete(txn, kind, &key, &options),
        false => evict(txn, &key, &options, false),
    });
    Ok(match done {
        Ok(_) => EvictionTry::Accepted,
        Err(status) if status.reason == Reason::NotFound => EvictionTry::Accepted,
        Err(Status { reason: Reason::TooManyRequests, message, .. }) => {
            let why = format!("error when evicting pods/{name:?} -n {namespace:?} (will retry after 5s): {message}");
            context.print_notice(&why);
            EvictionTry::Later
        }
        Err(status) if args.disable_eviction => EvictionTry::Never(status.message),
        Err(status) => {
            EvictionTry::Never(format!("error when evicting pods/{name:?} -n {namespace:?}: {}", status.message))
        }
    })
}

/// Returns the pods that still exist. Prints which are gone, and which are no longer waited for.
fn remaining_pods(args: &Args, context: &mut CommandContext, pending: Vec<PodToEvict>) -> CliResult<Vec<PodToEvict>> {
    let mut remaining = Vec::new();
    for entry in pending {
        let key = Key::new(Resource("pods"), entry.pod.namespace(), entry.pod.name());
        let now = context.read_view(|txn| txn.get(&key))?.filter(|now| now.uid() == entry.pod.uid());
        let skip = args.skip_wait_for_delete_timeout;
        match now {
            Some(now) if is_late(&now, skip, context) => {
                let name = entry.pod.name();
                context
                    .print_line(&format!("pod {name:?} has DeletionTimestamp older than {skip} seconds, skipping"))?;
            }
            Some(_) => remaining.push(entry),
            None => {
                let word = if args.disable_eviction { "deleted" } else { "evicted" };
                context.print_line(&format!("pod/{} {word}", entry.pod.name()))?;
            }
        }
    }
    Ok(remaining)
}
