//! The revisions of a workload: a Deployment's ReplicaSets, or the ControllerRevisions of other
//! kinds.

use crate::apiserver::rules::names::key_of;
use crate::cli::cluster::change_cause::CHANGE_CAUSE;
use crate::cli::cluster::targets::Target;
use crate::cli::{CliResult, CommandContext};
use crate::kinds::catalogue::merge_rules;
use crate::kinds::deployment::{POD_TEMPLATE_HASH, REVISION};
use crate::kinds::view::{Describe, containers};
use crate::object::{Object, Resource, merge};
use serde_json::{Value, json};

/// One revision of a workload.
pub struct WorkloadRevision {
    /// Number, in ascending order.
    pub number: i64,
    /// The pod template.
    pub template: Value,
    /// The ReplicaSet or ControllerRevision.
    pub object: Object,
}

impl WorkloadRevision {
    /// Returns the change cause, if it is recorded.
    pub fn change_cause(&self) -> Option<&str> {
        self.object.annotation(CHANGE_CAUSE).filter(|cause| !cause.is_empty())
    }
}

/// Returns the revisions of a workload by number; `None` for kinds without revisions.
pub fn workload_revisions(context: &mut CommandContext, target: &Target) -> CliResult<Option<Vec<WorkloadRevision>>> {
    let resource = match target.kind.resource.0 {
        "deployments.apps" => Resource("replicasets.apps"),
        "daemonsets.apps" | "statefulsets.apps" => Resource("controllerrevisions.apps"),
        _ => return Ok(None),
    };
    let namespace = key_of(target.kind, &target.object).namespace;
    let objects = context.read_view(|txn| txn.list(resource, Some(&namespace)))?;
    let owned = |object: &Object| object.controller().is_some_and(|owner| owner.uid == target.object.uid());
    let mut revisions: Vec<WorkloadRevision> =
        objects.into_iter().filter(owned).filter_map(|object| revision(target, object)).collect();
    revisions.sort_by_key(|revision| revision.number);
    Ok(Some(revisions))
}

fn revision(target: &Target, object: Object) -> Option<WorkloadRevision> {
    if object.kind() == "ReplicaSet" {
        let number = object.annotation(REVISION)?.parse().ok()?;
        let template = object.value_at(&["spec", "template"])?.clone();
        return Some(WorkloadRevision { number, template, object });
    }
    let restored = restored(target, &object)?;
    Some(WorkloadRevision {
        number: object.int(&["revision"])?,
        template: restored.value_at(&["spec", "template"])?.clone(),
        object,
    })
}

/// Restores the workload from a ControllerRevision, whose data is a patch.
fn restored(target: &Target, revision: &Object) -> Option<Object> {
    let schema = merge_rules::schema_for(&target.kind.api_version(), target.kind.kind)?;
    merge::strategic_merge(&target.object.0, revision.value_at(&["data"])?, schema).ok().map(Object)
}

/// Returns a template without the pod-template-hash label.
pub fn without_hash(template: &Value) -> Value {
    let mut template = Object(template.clone());
    template.unset(&["metadata", "labels", POD_TEMPLATE_HASH]);
    if template.value_at(&["metadata", "labels"]) == Some(&json!({})) {
        template.unset(&["metadata", "labels"]);
    }
    template.0
}

/// Describes a template as in the output of `rollout`, without alignment.
pub fn described(template: &Value) -> String {
    let mut out = Describe::new();
    containers::template(&mut out, template);
    crate::show::escape::text(out.raw())
}
