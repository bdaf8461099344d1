//! `kloop describe`: prints details of objects and of related objects.

use super::cluster::control_plane;
use super::cluster::past::AtFlag;
use super::cluster::targets::{self, Scope, Target, TargetFlags, Targets};
use super::get::computed;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::Transaction;
use crate::apiserver::read::{self, ListSelection};
use crate::kinds::view::{RelatedObjects, generic};
use crate::kinds::{self, Kind};
use crate::object::{Key, Object, Reason, Time};
use crate::runtime::{folder, usage};
use crate::show::describe::{SEPARATOR, describe, describe_with};
use std::path::Path;

/// Show details of a specific resource or group of resources.
///
/// Print a detailed description of the selected resources, including related resources such as events or controllers. You may
/// select a single object by name, all objects of that type, provide a name prefix, or label selector.
///
/// If no object has the name, describes the objects whose names start with it.
///
/// Use "kloop api-resources" for a complete list of supported resources.
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | TYPE [NAME_PREFIX | -l label] | TYPE/NAME)",
    after_help = "\
# Describe a node
kloop describe nodes kubernetes-node-emt8.c.myproject.internal

# Describe a pod
kloop describe pods/nginx

# Describe a pod identified by type and name in \"pod.json\"
kloop describe -f pod.json

# Describe all pods
kloop describe pods

# Describe pods by label name=myLabel
kloop describe pods -l name=myLabel

# Describe all pods managed by the 'frontend' replica set (their names start with its name)
kloop describe pods frontend"
)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    #[command(flatten)]
    at: AtFlag,
    /// If present, list the requested object(s) across all namespaces. Namespace in current context is ignored even if specified
    /// with --namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// If true, display events related to the described object [default: true for a single object].
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    show_events: Option<bool>,
    /// Return large lists in chunks rather than all at once. Pass 0 to disable. A state file is read at once.
    #[arg(long, default_value_t = 500, value_name = "N")]
    chunk_size: i64,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    context.set_chunk_size(args.chunk_size);
    args.at.travel(context)?;
    if args.which.is_empty() {
        return Err(Failure::plain(
            "You must specify the type of resource to describe. Use \"kloop api-resources\" for a complete list of supported resources.\n",
        ));
    }
    if let Some(target) = computed::parse(context.kinds(), &args.which.words) {
        let found = target.read(args.all_namespaces, args.which.select.labels.text(), context)?;
        let show_events = args.show_events.unwrap_or(found.len() == 1);
        return print(context, &found, show_events, |object, related| describe_with(&generic::VIEW, object, related));
    }
    let scope = Scope { all_namespaces: args.all_namespaces, selects_in_files: true, ..args.which.scope() };
    let (found, failures) = targets::find(context, &scope)?;
    let exact = found.len() + failures.len() == 1;
    let (found, failures) = match &failures[..] {
        [Failure::Api { status, .. }] if found.is_empty() && status.reason == Reason::NotFound => {
            let similar = with_prefix(&args, context)?;
            if similar.is_empty() { (similar, failures) } else { (similar, Vec::new()) }
        }
        _ => (found, failures),
    };
    let was_prefix = exact && failures.is_empty() && args.which.words.len() == 2 && !named_exactly(&args, &found);
    found.iter().for_each(|target| context.warn_of_deprecation(target.kind));
    let show_events = args.show_events.unwrap_or(found.len() == 1 && !was_prefix);
    print(context, &found, show_events, |target, related| describe(target.kind, &target.object, related))?;
    if found.is_empty() && failures.is_empty() {
        let place = format!(" in {} namespace.", context.namespace());
        let text = format!("No resources found{}", if args.all_namespaces { "" } else { &place });
        control_plane::print_nothing_found(context, &text)?;
    }
    Failure::from_failures(failures)
}

fn named_exactly(args: &Args, found: &[Target]) -> bool {
    found.iter().any(|target| Some(target.object.name()) == args.which.words.get(1).map(String::as_str))
}

/// Returns the objects of a kind whose names start with the given name.
fn with_prefix(args: &Args, context: &mut CommandContext) -> CliResult<Vec<Target>> {
    let [_, prefix] = &args.which.words[..] else { return Ok(Vec::new()) };
    let Targets::Named(named) = targets::parse(context.kinds(), &args.which.words)? else { return Ok(Vec::new()) };
    let Some((kind, _)) = named.first() else { return Ok(Vec::new()) };
    let kind: &'static Kind = kind;
    let namespace = context.namespace().to_owned();
    let namespace = Some(namespace.as_str()).filter(|_| !args.all_namespaces);
    let objects = context.read_view(|txn| read::list(txn, kind, namespace, &ListSelection::default()))?;
    let similar = objects.into_iter().filter(|object| object.name().starts_with(prefix.as_str()));
    Ok(similar.map(|object| Target { kind, object }).collect())
}

/// Describes all objects from one snapshot.
fn print<T>(
    context: &mut CommandContext,
    found: &[T],
    show_events: bool,
    describe: impl Fn(&T, &dyn RelatedObjects) -> String,
) -> CliResult {
    let now = context.now();
    let state = context.home()?;
    let texts: Vec<String> = context.read_view(|txn| {
        let beside = SnapshotRelated { txn, state: state.as_deref(), now, show_events };
        Ok(found.iter().map(|each| describe(each, &beside)).collect())
    })?;
    context.print(&texts.join(SEPARATOR))
}

/// Reads related objects from the snapshot. Leaves out objects that cannot be read.
struct SnapshotRelated<'a> {
    txn: &'a dyn Transaction,
    /// The cluster's folder, for facts that only this machine knows, such as process IDs.
    state: Option<&'a Path>,
    now: Time,
    show_events: bool,
}

impl RelatedObjects for SnapshotRelated<'_> {
    fn list(&self, resource: &str, namespace: &str) -> Vec<Object> {
        let Some(kind) = kinds::by_name(resource) else { return Vec::new() };
        self.txn.list(kind.resource, Some(namespace).filter(|name| !name.is_empty())).unwrap_or_default()
    }

    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Object> {
        let kind = kinds::by_name(resource)?;
        self.txn.get(&Key::new(kind.resource, namespace, name)).ok().flatten()
    }

    fn now(&self) -> Time {
        self.now
    }

    fn throttled(&self, pod: &Object, container: &str) -> Option<String> {
        let samples = usage::sample_pod(self.state?, pod.local_uid());
        let throttling = samples.get(container)?.throttling;
        (throttling.throttled > 0).then(|| throttling.to_string())
    }

    fn process_id(&self, pod: &Object, container: &str) -> Option<i32> {
        folder::main_process(self.state?, pod.local_uid(), container).map(|process| process.pid)
    }

    fn show_events(&self) -> bool {
        self.show_events
    }
}
