//! `kloop drain`: cordons nodes and moves their pods away, as far as disruption budgets allow.

use super::{cordon_one, find};
use crate::apiserver::create::key_of;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::evict::evict;
use crate::apiserver::read::{self, Wanted};
use crate::cli::flags::{self, DryRun, WriteFlags};
use crate::cli::patience::Patience;
use crate::cli::targets;
use crate::cli::{Context, Failure, Outcome};
use crate::object::selector::{FieldSelector, Selector};
use crate::object::{Key, MIRROR, Object, Reason, Resource, Status};
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
    /// Accepted for kubectl's sake: lists are never cut into chunks here.
    #[arg(long, default_value_t = 500, value_name = "N")]
    chunk_size: i64,
}

/// The pause before a refused eviction is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    let dry_run = args.write.dry_run(context)?;
    let timeout = flags::duration("timeout", &args.timeout)?;
    let (found, failures) = find(context, "drain", &args.names, args.selector.as_deref())?;
    Failure::all(failures)?;
    for target in &found {
        cordon_one(context, target, true, dry_run)?;
    }
    let mut failed: Vec<(String, String)> = Vec::new();
    for target in &found {
        let name = target.object.name().to_owned();
        match drain(&args, context, &name, timeout, dry_run) {
            Ok(()) => context.say(&format!("node/{name} drained{}", dry_run.suffix()))?,
            Err(Failure::Plain(why)) => {
                context
                    .tell(&format!("error: unable to drain node {name:?} due to error: {why}, continuing command..."));
                failed.push((name, why));
            }
            Err(other) => return Err(other),
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    context.tell("There are pending nodes to be drained:");
    for (name, _) in &failed {
        context.tell(&format!(" {name}"));
    }
    for (_, why) in &failed {
        let causes = why.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(why);
        for cause in causes.split(", cannot delete ").enumerate().map(|(at, cause)| match at {
            0 => cause.to_owned(),
            _ => format!("cannot delete {cause}"),
        }) {
            context.tell(&cause);
        }
    }
    Err(Failure::Code(1))
}

fn drain(args: &Args, context: &mut Context, node: &str, timeout: Option<Duration>, dry_run: DryRun) -> Outcome {
    let pods = pods_of(args, context, node)?;
    let chosen = Chosen::of(args, context, pods)?;
    if !chosen.errors.is_empty() {
        let text = match &chosen.errors[..] {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        return Err(Failure::plain(text));
    }
    if !chosen.warnings.is_empty() {
        context.warn(&[chosen.warnings.join("; ")]);
    }
    remove(args, context, chosen.pods, timeout, dry_run)
}

fn pods_of(args: &Args, context: &mut Context, node: &str) -> Outcome<Vec<Object>> {
    let wrong = |error: &dyn std::fmt::Display| Failure::plain(error.to_string());
    let labels = args.pod_selector.as_deref().map(Selector::parse).transpose().map_err(|error| wrong(&error))?;
    let fields = FieldSelector::parse(&format!("spec.nodeName={node}")).map_err(|error| wrong(&error))?;
    let wanted = Wanted { labels, fields: Some(fields) };
    let pods = targets::kind("pods")?;
    context.look(|ledger| read::list(ledger, pods, None, &wanted))
}

/// Which pods go, and what stands against it.
#[derive(Default)]
struct Chosen {
    pods: Vec<Object>,
    warnings: Vec<String>,
    errors: Vec<String>,
}

impl Chosen {
    /// The filters of kubectl, which all look at a pod in turn: DaemonSets, mirrors, local storage, controllers.
    fn of(args: &Args, context: &mut Context, pods: Vec<Object>) -> Outcome<Chosen> {
        let mut found: Vec<(&str, bool, Vec<String>)> = vec![
            ("DaemonSet-managed Pods (use --ignore-daemonsets to ignore)", args.ignore_daemonsets, Vec::new()),
            ("Pods with local storage (use --delete-emptydir-data to override)", args.delete_emptydir_data, Vec::new()),
            ("Pods that declare no controller (use --force to override)", args.force, Vec::new()),
        ];
        let mut chosen = Chosen::default();
        for pod in pods {
            let name = format!("{}/{}", pod.namespace(), pod.name());
            let ended = matches!(pod.text(&["status", "phase"]), Some("Succeeded" | "Failed"));
            if pod.annotation(MIRROR).is_some() {
                continue;
            }
            if is_of_daemon_set(context, &pod)? && !ended {
                found[0].2.push(name);
                continue;
            }
            let has_data = pod.items(&["spec", "volumes"]).iter().any(|volume| volume.get("emptyDir").is_some());
            let (local, alone) = (has_data && !ended, pod.controller().is_none() && !ended);
            if local {
                found[1].2.push(name.clone());
            }
            if alone && (!local || args.delete_emptydir_data) {
                found[2].2.push(name);
            }
            chosen.pods.push(pod);
        }
        let words = [
            "ignoring DaemonSet-managed Pods",
            "deleting Pods with local storage",
            "deleting Pods that declare no controller",
        ];
        for ((what, allowed, names), warning) in found.into_iter().zip(words) {
            match (names.is_empty(), allowed) {
                (true, _) => {}
                (false, true) if warning.contains("local storage") => {}
                (false, true) => chosen.warnings.push(format!("{warning}: {}", names.join(", "))),
                (false, false) => chosen.errors.push(format!("cannot delete {what}: {}", names.join(", "))),
            }
        }
        Ok(chosen)
    }
}

fn is_of_daemon_set(context: &mut Context, pod: &Object) -> Outcome<bool> {
    let Some(owner) = pod.controller().filter(|owner| owner.kind == "DaemonSet") else { return Ok(false) };
    let key = Key::new(Resource("daemonsets.apps"), pod.namespace(), &owner.name);
    context.look(|ledger| ledger.exists(&key))
}

/// Evicts all, trying again what is refused for now, and waits until all are gone.
fn remove(
    args: &Args,
    context: &mut Context,
    pods: Vec<Object>,
    timeout: Option<Duration>,
    dry_run: DryRun,
) -> Outcome {
    let word = if args.disable_eviction { "deleting" } else { "evicting" };
    for pod in &pods {
        context.tell(&format!("{word} pod {}/{}{}", pod.namespace(), pod.name(), dry_run.suffix()));
    }
    if dry_run != DryRun::None {
        return Ok(());
    }
    let until = timeout.map(|timeout| Instant::now() + timeout);
    let patience = Patience::new(context, timeout)?;
    let (mut waiting, mut leaving) = (pods, Vec::new());
    let mut next_try = Instant::now();
    loop {
        if Instant::now() >= next_try && !waiting.is_empty() {
            let mut refused = Vec::new();
            for pod in waiting {
                match remove_one(args, context, &pod)? {
                    Some(why) => {
                        context.tell(&format!(
                            "error when evicting pods/{:?} -n {:?} (will retry after 5s): {why}",
                            pod.name(),
                            pod.namespace()
                        ));
                        refused.push(pod);
                    }
                    None => leaving.push(pod),
                }
            }
            waiting = refused;
            next_try = Instant::now() + RETRY;
        }
        leaving = still_there(args, context, leaving)?;
        if waiting.is_empty() && leaving.is_empty() {
            return Ok(());
        }
        if !patience.wait() || until.is_some_and(|until| Instant::now() >= until) {
            return Err(Failure::plain(format!("drain did not complete within {}", args.timeout)));
        }
    }
}

/// Evicts, or deletes, one pod; the reason when it is refused for now.
fn remove_one(args: &Args, context: &mut Context, pod: &Object) -> Outcome<Option<String>> {
    let Some(kind) = crate::kinds::by_name("pods") else { return Ok(None) };
    let key = key_of(kind, pod);
    let grace = Some(args.grace_period).filter(|grace| *grace >= 0);
    let options = DeleteOptions { grace, uid: Some(pod.uid().to_owned()), ..DeleteOptions::default() };
    let done = context.api()?.write(false, |ledger| match args.disable_eviction {
        true => delete(ledger, kind, &key, &options),
        false => evict(ledger, &key, &options, false),
    });
    match done {
        Ok(_) => Ok(None),
        Err(Status { reason: Reason::TooManyRequests, message, .. }) => Ok(Some(message)),
        Err(status) if status.reason == Reason::NotFound => Ok(None),
        Err(status) => {
            Err(Failure::plain(format!("error when evicting pods/{:?} -n {:?}: {status}", pod.name(), pod.namespace())))
        }
    }
}

/// Those that are not gone yet; says of the others that they are.
fn still_there(args: &Args, context: &mut Context, pods: Vec<Object>) -> Outcome<Vec<Object>> {
    let mut still = Vec::new();
    for pod in pods {
        let key = Key::new(Resource("pods"), pod.namespace(), pod.name());
        let now = context.look(|ledger| ledger.get(&key))?.filter(|now| now.uid() == pod.uid());
        let skip = args.skip_wait_for_delete_timeout;
        let is_late = |now: &Object| {
            now.deletion().is_some_and(|at| skip > 0 && context.now().duration_since(at).as_secs() > skip)
        };
        match now.filter(|now| !is_late(now)) {
            Some(_) => still.push(pod),
            None => {
                let word = if args.disable_eviction { "deleted" } else { "evicted" };
                context.say(&format!("pod/{} {word}", pod.name()))?;
            }
        }
    }
    Ok(still)
}
