//! Deployments.

use super::age::{age_since, rfc1123};
use super::body::BodyRead;
use super::containers::{names_and_images, template};
use super::related::selector;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};
use serde_json::Value;

/// The label that a Deployment puts on its ReplicaSets and their pods; it is not part of a template's identity.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// The view of deployments.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Ready"),
    Column::text("Up-to-date"),
    Column::text("Available"),
    Column::text("Age"),
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];

fn cells(deployment: &Object, now: Time) -> Vec<TableCell> {
    let body = &deployment.0;
    let (names, images) = names_and_images(body.value_at("spec.template.spec"));
    vec![
        deployment.name().into(),
        format!("{}/{}", body.int("status.readyReplicas"), body.int("spec.replicas")).into(),
        body.int("status.updatedReplicas").into(),
        body.int("status.availableReplicas").into(),
        age_since(deployment.created(), now).into(),
        names.into(),
        images.into(),
        selector(body.value_at("spec.selector")).to_string().into(),
    ]
}

fn describe(deployment: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &deployment.0;
    out.name_and_namespace(deployment);
    out.field(0, "CreationTimestamp", rfc1123(deployment.created()));
    out.labels_and_annotations(deployment);
    out.field(0, "Selector", selector(body.value_at("spec.selector")));
    let replicas = format_args!(
        "{} desired | {} updated | {} total | {} available | {} unavailable",
        body.int("spec.replicas"),
        body.int("status.updatedReplicas"),
        body.int("status.replicas"),
        body.int("status.availableReplicas"),
        body.int("status.unavailableReplicas"),
    )
    .to_string();
    out.field(0, "Replicas", replicas);
    out.field(0, "StrategyType", body.text("spec.strategy.type"));
    out.field(0, "MinReadySeconds", body.int("spec.minReadySeconds"));
    if let Some(rolling) = body.value_at("spec.strategy").get("rollingUpdate") {
        let (unavailable, surge) = (rolling.plain("maxUnavailable"), rolling.plain("maxSurge"));
        out.field(0, "RollingUpdateStrategy", format_args!("{unavailable} max unavailable, {surge} max surge"));
    }
    template(out, body.value_at("spec.template"));
    conditions(out, body.list("status.conditions"));
    replica_sets(deployment, related, out);
    events::write_events(deployment, related, out);
}

/// Writes `Conditions:` of a workload, if it has any.
pub fn conditions(out: &mut Describe, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    out.heading(0, "Conditions");
    out.header(1, &["Type", "Status", "Reason"]);
    for known in conditions {
        out.line(1, format_args!("{} \t{}\t{}", known.text("type"), known.text("status"), known.text("reason")));
    }
}

/// Writes the replica set with the deployment's template, and the others.
fn replica_sets(deployment: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let mut owned = related.list("replicasets.apps", deployment.namespace());
    owned.retain(|set| set.controller().is_some_and(|owner| owner.uid == deployment.uid()));
    if owned.is_empty() {
        return;
    }
    let wanted = plain_template(deployment);
    // After a hash collision, several can have it; the oldest counts.
    let new = owned.iter().filter(|set| plain_template(set) == wanted).min_by_key(|set| set.created());
    let new_name = new.map(|set| set.name().to_owned());
    let (new, old): (Vec<_>, Vec<_>) = owned.iter().partition(|set| Some(set.name()) == new_name.as_deref());
    out.field(0, "OldReplicaSets", created(&old));
    out.field(0, "NewReplicaSet", created(&new));
}

/// The pod template without the label that the deployment adds.
fn plain_template(object: &Object) -> Value {
    let mut template = object.0.value_at("spec.template").clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(POD_TEMPLATE_HASH);
    }
    template
}

fn created(sets: &[&Object]) -> String {
    let text = |set: &&Object| {
        format!("{} ({}/{} replicas created)", set.name(), set.0.int("status.replicas"), set.0.int("spec.replicas"))
    };
    let texts: Vec<String> = sets.iter().map(text).collect();
    if texts.is_empty() { "<none>".into() } else { texts.join(", ") }
}
