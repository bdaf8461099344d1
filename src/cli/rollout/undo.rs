//! `kloop rollout undo`: restores the template of an earlier revision.

use super::revisions::{self, WorkloadRevision, described, without_hash};
use super::{for_each_workload, group_kind};
use crate::cli::cluster::change::change;
use crate::cli::cluster::targets::{Target, TargetFlags};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::ChangeFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::deployment;
use crate::object::LAST_APPLIED;
use crate::object::Object;
use serde_json::{Map, Value};

/// Roll back to a previous rollout.
#[derive(clap::Args)]
#[command(
    override_usage = "(TYPE NAME | TYPE/NAME)",
    after_help = "\
# Roll back to the previous deployment
kloop rollout undo deployment/abc

# Roll back to daemonset revision 3
kloop rollout undo daemonset/abc --to-revision=3

# Roll back to the previous deployment with dry-run
kloop rollout undo --dry-run=server deployment/abc"
)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    #[command(flatten)]
    change: ChangeFlags,
    /// The revision to rollback to. Default to 0 (last revision).
    #[arg(long, default_value_t = 0, value_name = "REVISION", allow_negative_numbers = true)]
    to_revision: i64,
}

/// Annotations that belong to the Deployment and not to its revisions. Kubernetes:
/// `annotationsToSkip`.
const KEPT: [&str; 6] = [
    LAST_APPLIED,
    deployment::REVISION,
    deployment::REVISION_HISTORY,
    deployment::DESIRED_REPLICAS,
    deployment::MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let dry_run = args.change.dry_run(context)?;
    for_each_workload(context, &args.which, |context, target| undo_object(&args, context, target, dry_run))
}

fn undo_object(args: &Args, context: &mut CommandContext, target: &Target, dry_run: DryRun) -> CliResult {
    let Some(revisions) = revisions::workload_revisions(context, target)? else {
        let kind = group_kind(target);
        return Err(Failure::plain(format!("no rollbacker has been implemented for {kind:?}")));
    };
    warn_of_apply(context, target);
    let to = choose(target, &revisions, args.to_revision)?;
    let name = context.name_of(target.kind, &target.object);
    if dry_run == DryRun::Client {
        return context.print_line(&format!("{name} {}{}", described(&to.template), dry_run.suffix()));
    }
    let template = without_hash(&to.template);
    let mut skipped = false;
    let reply = change(context, target, dry_run, |object| {
        if object.value_at(&["spec", "paused"]).is_some_and(|value| value == true) {
            let text =
                "you cannot rollback a paused deployment; resume it first with 'kloop rollout resume' and try again";
            return Err(Failure::plain(text));
        }
        skipped = object.value_at(&["spec", "template"]).is_some_and(|now| without_hash(now) == template);
        if !skipped {
            object.set(&["spec", "template"], template.clone());
            if to.object.kind() == "ReplicaSet" {
                restore_annotations(object, &to.object);
            }
        }
        Ok(())
    })?;
    let word = match skipped {
        true => format!("skipped rollback (current template already matches revision {})", args.to_revision),
        false => "rolled back".to_owned(),
    };
    args.change.print.result(context, &reply.object, &format!("{name} {word}{}", dry_run.suffix()))
}

fn warn_of_apply(context: &mut CommandContext, target: &Target) {
    if target.object.annotation(LAST_APPLIED).is_some() {
        context.warn(&[format!(
            "resource {}/{} was previously managed with 'kloop apply'. Rolling back will not update the {LAST_APPLIED} \
             annotation, which may cause unexpected behavior on future 'kloop apply' operations. Consider using \
             'kloop apply' with your previous configuration file instead.",
            target.kind.resource.plural(),
            target.object.name()
        )]);
    }
}

/// Returns the requested revision, or the previous one if `wanted` is zero.
fn choose<'a>(target: &Target, revisions: &'a [WorkloadRevision], wanted: i64) -> CliResult<&'a WorkloadRevision> {
    let is_deployment = target.kind.resource == "deployments.apps";
    if wanted == 0 {
        let previous = revisions.len().checked_sub(2).and_then(|at| revisions.get(at));
        return previous.ok_or_else(|| match is_deployment {
            true => Failure::plain(format!("no rollout history found for deployment {:?}", target.object.name())),
            false => Failure::plain("no last revision to roll back to"),
        });
    }
    let found = revisions.iter().find(|revision| revision.number == wanted);
    found.ok_or_else(|| Failure::plain(format!("unable to find specified revision {wanted} in history")))
}

fn restore_annotations(object: &mut Object, from: &Object) {
    let mut annotations = Map::new();
    let copy_annotations = |object: &Object, is_kept: bool, annotations: &mut Map<String, Value>| {
        for (key, value) in object.pairs(&["metadata", "annotations"]) {
            if KEPT.contains(&key) == is_kept {
                annotations.insert(key.to_owned(), value.into());
            }
        }
    };
    copy_annotations(object, true, &mut annotations);
    copy_annotations(from, false, &mut annotations);
    object.set(&["metadata", "annotations"], annotations);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn deployment_keeps_its_own_annotations() {
        let mut deployment = Object(json!({"metadata": {"annotations": {
            "deployment.kubernetes.io/revision": "3", "kubernetes.io/change-cause": "second"}}}));
        let set = Object(json!({"metadata": {"annotations": {
            "deployment.kubernetes.io/revision": "1", "kubernetes.io/change-cause": "first"}}}));
        restore_annotations(&mut deployment, &set);
        let expected = json!({"deployment.kubernetes.io/revision": "3", "kubernetes.io/change-cause": "first"});
        assert_eq!(deployment.value_at(&["metadata", "annotations"]), Some(&expected));
    }
}
