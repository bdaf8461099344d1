//! `kloop set`: changes single features of existing objects.
//!
//! Knows: the common parts of its verbs ([`SetFlags`], [`pod_spec`]). Start reading at [`SetVerb`].

mod env;
mod image;
mod resources;
mod selector;
mod serviceaccount;
pub mod subject;

use super::cluster::change::change;
use super::cluster::targets::{self, Scope, ScopeFlags, Target};
use super::command_line::dry_run::DryRun;
use super::command_line::flags::ChangeFlags;
use super::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::object::Object;
use crate::serve::protobuf;
use clap::Subcommand;
use serde_json::Value;

/// Configure application resources: set specific features on objects.
///
/// These commands help you make changes to existing application resources.
#[derive(clap::Args)]
#[command(override_usage = "SUBCOMMAND")]
pub struct Args {
    #[command(subcommand)]
    verb: SetVerb,
}

#[derive(Subcommand)]
enum SetVerb {
    Env(env::Args),
    Image(image::Args),
    Resources(resources::Args),
    Selector(selector::Args),
    #[command(visible_alias = "sa")]
    Serviceaccount(serviceaccount::Args),
    Subject(subject::Args),
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.verb {
        SetVerb::Env(args) => env::run(args, context),
        SetVerb::Image(args) => image::run(args, context),
        SetVerb::Resources(args) => resources::run(args, context),
        SetVerb::Selector(args) => selector::run(args, context),
        SetVerb::Serviceaccount(args) => serviceaccount::run(args, context),
        SetVerb::Subject(args) => subject::run(args, context),
    }
}

/// Flags of all verbs.
#[derive(clap::Args)]
struct SetFlags {
    #[command(flatten)]
    scope: ScopeFlags,
    #[command(flatten)]
    change: ChangeFlags,
    /// If true, set will NOT contact the api-server but run locally.
    #[arg(long)]
    local: bool,
}

impl SetFlags {
    /// Refuses flags that exclude each other, and a command without resources.
    fn check(&self, resources: &[String], dry_run: DryRun) -> CliResult {
        let named = || resources.len() > 1 || resources.iter().any(|word| word.contains('/'));
        if self.scope.all && self.scope.select.labels.text().is_some() && named() {
            let text = "selectors and the all flag cannot be used when passing resource/name arguments";
            return Err(Failure::plain(text));
        }
        if self.scope.all && self.scope.select.labels.text().is_some() {
            return Err(Failure::plain("cannot set --all and --selector at the same time"));
        }
        self.require_resources(resources)?;
        if self.local && dry_run == DryRun::Server {
            let text = "cannot specify --local and --dry-run=server - did you mean --dry-run=client?";
            return Err(Failure::plain(text));
        }
        Ok(())
    }

    /// Refuses a command without resources.
    fn require_resources(&self, resources: &[String]) -> CliResult {
        let is_given = !resources.is_empty() || !self.scope.files.is_empty();
        if is_given { Ok(()) } else { Err(targets::no_resources()) }
    }

    fn scope<'a>(&'a self, resources: &'a [String]) -> Scope<'a> {
        Scope { typed: true, ..self.scope.with_local(resources, self.local) }
    }

    /// Changes each object with `edit`, and prints `<name> <what> updated`, for most verbs only for those that changed. An error of a
    /// refused write also contains `what`.
    fn update(
        &self,
        context: &mut CommandContext,
        resources: &[String],
        what: SetVerbText,
        mut edit: impl FnMut(&mut CommandContext, &Target) -> CliResult<ObjectEdit>,
    ) -> CliResult {
        let dry_run = self.change.dry_run(context)?;
        self.check(resources, dry_run)?;
        targets::for_each_target(context, &self.scope(resources), |context, target| {
            let edit = edit(context, target)?;
            self.edit_object(context, target, dry_run, what, edit)
        })
    }

    fn edit_object(
        &self,
        context: &mut CommandContext,
        target: &Target,
        dry_run: DryRun,
        what: SetVerbText,
        edit: ObjectEdit,
    ) -> CliResult {
        let kept = if self.local { DryRun::Client } else { dry_run };
        let reply = change(context, target, kept, edit).map_err(|failure| match failure {
            Failure::Api { status, .. } if !what.patched.is_empty() => {
                Failure::plain(format!("failed to patch {} {status}", what.patched))
            }
            other => other,
        })?;
        if !reply.changed && !what.prints_unchanged {
            return Ok(());
        }
        let line =
            format!("{} {} updated{}", context.name_of(target.kind, &reply.object), what.updated, dry_run.suffix());
        if self.local {
            return self.change.print.result(context, &protobuf::go_form(&reply.object), &line);
        }
        self.change.print.result(context, &reply.object, &line)
    }
}

/// A change of one object.
type ObjectEdit = Box<dyn FnMut(&mut Object) -> CliResult>;

/// A verb's names in messages.
#[derive(Clone, Copy)]
struct SetVerbText {
    /// `deployment.apps/web <image> updated`.
    updated: &'static str,
    /// `failed to patch <image update to pod template>`; empty for the API server's error alone.
    patched: &'static str,
    /// Whether an object that stays the same is printed, too: kubectl compares the objects for some verbs only.
    prints_unchanged: bool,
}

/// Returns the path of a kind's pod spec.
fn pod_spec_path(kind: &Kind) -> Option<&'static [&'static str]> {
    match kind.kind {
        "Pod" => Some(&["spec"]),
        "CronJob" => Some(&["spec", "jobTemplate", "spec", "template", "spec"]),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => {
            Some(&["spec", "template", "spec"])
        }
        "PodTemplate" => Some(&["template", "spec"]),
        _ => None,
    }
}

/// Returns the pod spec of an object. The error names the object as kubectl does: `service/s` in a
/// local file, `services/s` in the cluster.
fn pod_spec<'a>(kind: &Kind, object: &'a mut Object, is_local: bool) -> CliResult<&'a mut Value> {
    let place = if is_local { kind.qualified_singular() } else { kind.resource.plural().to_owned() };
    let name = format!("{place}/{}", object.name());
    let found =
        pod_spec_path(kind).and_then(|path| path.iter().try_fold(&mut object.0, |value, name| value.get_mut(*name)));
    found.ok_or_else(|| {
        let found = format!("*{}.{}", kind.version, kind.kind);
        Failure::plain(format!("{name} the object is not a pod or does not have a pod template: {found}"))
    })
}

/// Returns the containers of a pod spec, init containers last.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["containers", "initContainers"];
    lists.into_iter().filter_map(|list| spec.get(list)?.as_array()).flatten()
}

/// Returns the containers with matching names for modification.
fn containers_mut(spec: &mut Value, matches: impl Fn(&str) -> bool) -> Vec<&mut serde_json::Map<String, Value>> {
    let Some(spec) = spec.as_object_mut() else { return Vec::new() };
    let mut lists: Vec<(bool, &mut Value)> = spec
        .iter_mut()
        .filter_map(|(name, value)| match name.as_str() {
            "containers" => Some((false, value)),
            "initContainers" => Some((true, value)),
            _ => None,
        })
        .collect();
    lists.sort_by_key(|(is_init, _)| *is_init);
    let containers = lists.into_iter().filter_map(|(_, list)| list.as_array_mut()).flatten();
    containers
        .filter_map(Value::as_object_mut)
        .filter(|container| matches(container.get("name").and_then(Value::as_str).unwrap_or_default()))
        .collect()
}
