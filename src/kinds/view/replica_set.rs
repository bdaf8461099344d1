//! ReplicaSets and ReplicationControllers.

use super::age::age_since;
use super::body::BodyRead;
use super::containers::{names_and_images, template};
use super::deployment::conditions;
use super::related::{controlled_by, pods_status, selector};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};
use serde_json::{Value, json};

/// The view of replica sets.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

/// The view of replication controllers.
pub static CONTROLLER: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::int("Desired"),
    Column::int("Current"),
    Column::int("Ready"),
    Column::text("Age"),
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];

/// The label selector; that of a replication controller is converted from a plain map.
fn label_selector(set: &Object) -> Value {
    let selector = set.0.value_at("spec.selector");
    if set.kind() == "ReplicationController" { json!({ "matchLabels": selector }) } else { selector.clone() }
}

fn cells(set: &Object, now: Time) -> Vec<TableCell> {
    let body = &set.0;
    let (names, images) = names_and_images(body.value_at("spec.template.spec"));
    vec![
        set.name().into(),
        body.int("spec.replicas").into(),
        body.int("status.replicas").into(),
        body.int("status.readyReplicas").into(),
        age_since(set.created(), now).into(),
        names.into(),
        images.into(),
        selector(&label_selector(set)).to_string().into(),
    ]
}

fn describe(set: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &set.0;
    let label_selector = label_selector(set);
    out.name_and_namespace(set);
    out.field(0, "Selector", selector(&label_selector));
    out.labels_and_annotations(set);
    if let Some(owner) = controlled_by(set) {
        out.field(0, "Controlled By", owner);
    }
    let (current, desired) = (body.int("status.replicas"), body.int("spec.replicas"));
    out.field(0, "Replicas", format_args!("{current} current / {desired} desired"));
    out.field(0, "Pods Status", pods_status(set, &label_selector, related));
    template(out, body.value_at("spec.template"));
    conditions(out, body.list("status.conditions"));
    events::write_events(set, related, out);
}
