//! ReplicaSets and ReplicationControllers, which look alike.

use super::age::since;
use super::body::Body;
use super::containers::{names_and_images, template};
use super::deployment::conditions;
use super::related::{controlled_by, pods_status, selector};
use super::{Cell, Column, Describe, Related, View, events};
use crate::object::{Object, Time};
use serde_json::{Value, json};

/// The view of replica sets.
pub static VIEW: View = View { resource: "replicasets.apps", columns: COLUMNS, cells, describe };

/// The view of replication controllers.
pub static CONTROLLER: View = View { resource: "replicationcontrollers", columns: COLUMNS, cells, describe };

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

/// A controller's selector is a plain map, a replica set's is a label selector.
fn label_selector(set: &Object) -> Value {
    let selector = set.0.at("spec.selector");
    if set.kind() == "ReplicationController" { json!({ "matchLabels": selector }) } else { selector.clone() }
}

fn cells(set: &Object, now: Time) -> Vec<Cell> {
    let body = &set.0;
    let (names, images) = names_and_images(body.at("spec.template.spec"));
    vec![
        set.name().into(),
        body.int("spec.replicas").into(),
        body.int("status.replicas").into(),
        body.int("status.readyReplicas").into(),
        since(set.created(), now).into(),
        names.into(),
        images.into(),
        selector(&label_selector(set)).to_string().into(),
    ]
}

fn describe(set: &Object, related: &dyn Related, out: &mut Describe) {
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
    template(out, body.at("spec.template"));
    conditions(out, body.list("status.conditions"));
    events::of(set, related, out);
}
