//! DaemonSets.

use super::age::age_since;
use super::body::{BodyRead, joined_pairs};
use super::containers::{names_and_images, template};
use super::related::{pods_status, selector};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};

/// The view of daemon sets.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::int("Desired"),
    Column::int("Current"),
    Column::int("Ready"),
    Column::int("Up-to-date"),
    Column::int("Available"),
    Column::text("Node Selector"),
    Column::text("Age"),
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];

fn cells(set: &Object, now: Time) -> Vec<TableCell> {
    let (body, status) = (&set.0, set.0.value_at("status"));
    let (names, images) = names_and_images(body.value_at("spec.template.spec"));
    vec![
        set.name().into(),
        status.int("desiredNumberScheduled").into(),
        status.int("currentNumberScheduled").into(),
        status.int("numberReady").into(),
        status.int("updatedNumberScheduled").into(),
        status.int("numberAvailable").into(),
        joined_pairs(&body.pairs("spec.template.spec.nodeSelector")).into(),
        age_since(set.created(), now).into(),
        names.into(),
        images.into(),
        selector(body.value_at("spec.selector")).to_string().into(),
    ]
}

fn describe(set: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let (body, status) = (&set.0, set.0.value_at("status"));
    out.name_and_namespace(set);
    out.field(0, "Selector", selector(body.value_at("spec.selector")));
    out.field(0, "Node-Selector", joined_pairs(&body.pairs("spec.template.spec.nodeSelector")));
    out.labels_and_annotations(set);
    let counts = [
        ("Desired Number of Nodes Scheduled", "desiredNumberScheduled"),
        ("Current Number of Nodes Scheduled", "currentNumberScheduled"),
        ("Number of Nodes Scheduled with Up-to-date Pods", "updatedNumberScheduled"),
        ("Number of Nodes Scheduled with Available Pods", "numberAvailable"),
        ("Number of Nodes Misscheduled", "numberMisscheduled"),
    ];
    // Not aligned with the other fields, as in kubectl.
    counts.iter().for_each(|(label, field)| out.line(0, format_args!("{label}: {}", status.int(field))));
    out.field(0, "Pods Status", pods_status(set, body.value_at("spec.selector"), related));
    template(out, body.value_at("spec.template"));
    events::write_events(set, related, out);
}
