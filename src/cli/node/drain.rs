//! `kloop drain`: cordons nodes and moves their pods away, as far as disruption budgets allow.

use super::{cordon_one, find};
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::evict::evict;
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::rules::names::key_of;
use crate::cli::deadline::Deadline;
use crate::cli::dry_run::DryRun;
use crate::cli::flags::{self, WriteFlags};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::object::selector::{FieldSelector, Selector};
use crate::object::{Key, MIRROR, Object, Reason, Resource, Status, time};
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
    /// Selector (label query) to filter on.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
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
    #[arg(long, default_value = "0s", value_name = "DURATION")]
    timeout: String,
    /// If a pod has been marked for deletion for longer than this many seconds, skip waiting for it.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    skip_wait_for_delete_timeout: i64,
    /// Accepted for compatibility with kubectl; lists are always returned whole.
    #[arg(long, default_value_t = 500, value_name = "N")]
    chunk_size: i64,
}

/// Message after the timeout.
const REACHED: &str = "global timeout reached";

/// The pause before a refused eviction is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let dry_run = args.write.dry_run(context)?;
    let timeout = flags::duration("timeout", &args.timeout)?;
    let (found, failures) = find(context, "drain", &args.names, args.selector.as_deref())?;
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
        let why = together(&errors);
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
    // For one node, each cause is a line; for several, each node is.
    match &failed[..] {
        [(_, errors)] if args.disable_eviction && errors[0].starts_with(REACHED) => {
            context.print_notice(&format!("error: {}", errors[0]));
        }
        [(_, errors)] => errors.iter().for_each(|error| context.print_notice(error)),
        several => several.iter().for_each(|(_, errors)| context.print_notice(&together(errors))),
    }
    Err(Failure::Code(1))
}

/// Several errors as one text, in the form of Kubernetes' aggregates.
fn together(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Moves the pods of one node away; the errors that stand against it.
fn drain(
    args: &Args,
    context: &mut CommandContext,
    node: &str,
    timeout: Option<Duration>,
    dry_run: DryRun,
) -> CliResult<Vec<String>> {
    let chosen = chosen(args, context, node)?;
    if !chosen.errors.is_empty() {
        return Ok(chosen.errors);
    }
    if !chosen.warnings.is_empty() {
        context.warn(&[chosen.warnings.join("; ")]);
    }
    let errors = remove(args, context, chosen.pods, timeout, dry_run)?;
    if !errors.is_empty() {
        tell_pending(args, context, node, &together(&errors))?;
    }
    Ok(errors)
}

/// Prints the pods that remain on a node that could not be drained.
fn tell_pending(args: &Args, context: &mut CommandContext, node: &str, error: &str) -> CliResult {
    let left = chosen(args, context, node)?;
    if !left.pods.is_empty() {
        context.print_notice(&format!("There are pending pods in node {node:?} when an error occurred: {error}"));
        left.pods.iter().for_each(|pod| context.print_notice(&format!("pod/{}", pod.name())));
    }
    if !left.errors.is_empty() {
        let errors = together(&left.errors);
        context.print_notice(&format!("Following errors occurred while getting the list of pods to delete:\n{errors}"));
    }
    Ok(())
}

fn chosen(args: &Args, context: &mut CommandContext, node: &str) -> CliResult<DrainSelection> {
    let pods = pods_of(args, context, node)?;
    DrainSelection::from_pods(args, context, pods)
}

fn pods_of(args: &Args, context: &mut CommandContext, node: &str) -> CliResult<Vec<Object>> {
    let wrong = |error: &dyn std::fmt::Display| Failure::plain(error.to_string());
    let labels = args.pod_selector.as_deref().map(Selector::parse).transpose().map_err(|error| wrong(&error))?;
    let fields = FieldSelector::parse(&format!("spec.nodeName={node}")).map_err(|error| wrong(&error))?;
    let wanted = ListSelection { labels, fields: Some(fields) };
    let pods = &kinds::pod::KIND;
    context.read_view(|txn| read::list(txn, pods, None, &wanted))
}

/// Pods to evict, and the obstacles.
#[derive(Default)]
struct DrainSelection {
    pods: Vec<Object>,
    warnings: Vec<String>,
    errors: Vec<String>,
}

/// Result of one of kubectl's pod filters.
enum DrainFilterResult {
    /// It goes.
    Goes,
    /// It goes, with a warning.
    Warned(String),
    /// It stays, with a warning.
    Stays(Option<&'static str>),
    /// It must not be touched.
    Refused(String),
}

impl DrainSelection {
    fn from_pods(args: &Args, context: &mut CommandContext, pods: Vec<Object>) -> CliResult<DrainSelection> {
        let mut chosen = DrainSelection::default();
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        for pod in pods {
            let name = format!("{}/{}", pod.namespace(), pod.name());
            match filter_pod(args, context, &pod)? {
                DrainFilterResult::Goes => chosen.pods.push(pod),
                DrainFilterResult::Warned(warning) => {
                    add_notice(&mut warnings, warning, name);
                    chosen.pods.push(pod);
                }
                DrainFilterResult::Stays(warning) => {
                    warning.into_iter().for_each(|text| add_notice(&mut warnings, text.into(), name.clone()))
                }
                DrainFilterResult::Refused(error) => add_notice(&mut errors, error, name),
            }
        }
        let told = |(what, names): (String, Vec<String>)| format!("{what}: {}", names.join(", "));
        chosen.warnings = warnings.into_iter().map(told).collect();
        chosen.errors = errors.into_iter().map(told).map(|text| format!("cannot delete {text}")).collect();
        Ok(chosen)
    }
}

/// Adds a pod's name to those of which the same is said.
fn add_notice(said: &mut Vec<(String, Vec<String>)>, what: String, name: String) {
    match said.iter_mut().find(|(known, _)| *known == what) {
        Some((_, names)) => names.push(name),
        None => said.push((what, vec![name])),
    }
}

/// The filters of kubectl in their order: the first that keeps a pod ends it, the last that warns is heard
/// (`pkg/drain/filters.go`).
fn filter_pod(args: &Args, context: &mut CommandContext, pod: &Object) -> CliResult<DrainFilterResult> {
    let ended = matches!(pod.text(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let skip = args.skip_wait_for_delete_timeout;
    if pod.annotation(MIRROR).is_some() || is_late(pod, skip, context) {
        return Ok(DrainFilterResult::Stays(None));
    }
    let owner = pod.controller();
    let mut judged = DrainFilterResult::Goes;
    if let Some(owner) = owner.as_ref().filter(|owner| owner.kind == "DaemonSet" && !ended) {
        let key = Key::new(Resource("daemonsets.apps"), pod.namespace(), &owner.name);
        if context.read_view(|txn| txn.exists(&key))? {
            return Ok(match args.ignore_daemonsets {
                true => DrainFilterResult::Stays(Some("ignoring DaemonSet-managed Pods")),
                false => {
                    DrainFilterResult::Refused("DaemonSet-managed Pods (use --ignore-daemonsets to ignore)".into())
                }
            });
        }
        let missing = Status::not_found(key.resource, &key.name).message;
        if !args.force {
            return Ok(DrainFilterResult::Refused(missing));
        }
        judged = DrainFilterResult::Warned(missing);
    }
    if ended {
        return Ok(DrainFilterResult::Goes);
    }
    if pod.items(&["spec", "volumes"]).iter().any(|volume| volume.get("emptyDir").is_some()) {
        if !args.delete_emptydir_data {
            let text = "Pods with local storage (use --delete-emptydir-data to override)";
            return Ok(DrainFilterResult::Refused(text.into()));
        }
        judged = DrainFilterResult::Goes;
    }
    Ok(match (owner, args.force) {
        (Some(_), _) => judged,
        (None, true) => DrainFilterResult::Warned("deleting Pods that declare no controller".into()),
        (None, false) => DrainFilterResult::Refused("Pods that declare no controller (use --force to override)".into()),
    })
}

/// Whether a pod is marked for deletion for longer than is to be waited.
fn is_late(pod: &Object, skip: i64, context: &CommandContext) -> bool {
    pod.deletion().is_some_and(|at| skip > 0 && context.now().duration_since(at).as_secs() > skip)
}

/// A pod on its way.
struct PodToEvict {
    pod: Object,
    /// When it is tried again. None once it was accepted.
    retry: Option<Instant>,
}

/// Evicts all, trying again what is refused for now, and waits until all are gone; the errors of those that do not go.
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
            let text = format!("{word} pod {}/{}{}", pod.namespace(), pod.name(), dry_run.suffix());
            if dry_run == DryRun::Client { context.print_line(&text)? } else { context.print_notice(&text) }
        }
        return Ok(Vec::new());
    }
    let patience = Deadline::with_control_plane(context, timeout.filter(|timeout| !timeout.is_zero()))?;
    let now = Instant::now();
    let mut going: Vec<PodToEvict> = pods.into_iter().map(|pod| PodToEvict { pod, retry: Some(now) }).collect();
    let mut errors = Vec::new();
    loop {
        let mut tried = Vec::new();
        for one in going {
            if one.retry.is_none_or(|at| at > Instant::now()) {
                tried.push(one);
                continue;
            }
            match remove_one(args, context, &one.pod)? {
                EvictionTry::Accepted => tried.push(PodToEvict { retry: None, ..one }),
                EvictionTry::Later => tried.push(PodToEvict { retry: Some(Instant::now() + RETRY), ..one }),
                EvictionTry::Never(error) => errors.push(error),
            }
        }
        going = tried;
        going = still_there(args, context, going)?;
        if going.is_empty() {
            return Ok(errors);
        }
        if !patience.wait() {
            errors.extend(late(args, &going, timeout.unwrap_or_default()));
            return Ok(errors);
        }
    }
}

/// Messages after the timeout: one for each evicted pod, or one for all deleted ones.
fn late(args: &Args, going: &[PodToEvict], timeout: Duration) -> Vec<String> {
    let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    let reached = format!("{REACHED}: {}", time::format_duration(timeout));
    if args.disable_eviction {
        return vec![reached];
    }
    let told = |PodToEvict { pod, retry }: &PodToEvict| match retry {
        Some(_) => format!("error when evicting pods/{:?} -n {:?}: {reached}", pod.name(), pod.namespace()),
        None => format!(
            "error when waiting for pod {:?} in namespace {:?} to terminate: {reached}",
            pod.name(),
            pod.namespace()
        ),
    };
    going.iter().map(told).collect()
}

/// Result of one attempt.
enum EvictionTry {
    Accepted,
    Later,
    Never(String),
}

/// Evicts, or deletes, one pod.
fn remove_one(args: &Args, context: &mut CommandContext, pod: &Object) -> CliResult<EvictionTry> {
    let Some(kind) = crate::kinds::by_name("pods") else { return Ok(EvictionTry::Accepted) };
    let (name, namespace) = (pod.name(), pod.namespace());
    if !args.disable_eviction {
        context.print_notice(&format!("evicting pod {namespace}/{name}"));
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

/// Those that are not gone yet; says of the others that they are, or that they are waited for no longer.
fn still_there(args: &Args, context: &mut CommandContext, going: Vec<PodToEvict>) -> CliResult<Vec<PodToEvict>> {
    let mut still = Vec::new();
    for one in going {
        let key = Key::new(Resource("pods"), one.pod.namespace(), one.pod.name());
        let now = context.read_view(|txn| txn.get(&key))?.filter(|now| now.uid() == one.pod.uid());
        let skip = args.skip_wait_for_delete_timeout;
        match now {
            Some(now) if is_late(&now, skip, context) => {
                let name = one.pod.name();
                context
                    .print_line(&format!("pod {name:?} has DeletionTimestamp older than {skip} seconds, skipping"))?;
            }
            Some(_) => still.push(one),
            None => {
                let word = if args.disable_eviction { "deleted" } else { "evicted" };
                context.print_line(&format!("pod/{} {word}", one.pod.name()))?;
            }
        }
    }
    Ok(still)
}
