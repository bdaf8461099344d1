//! Namespaces.

use super::age::{age_since, rfc1123};
use super::body::BodyRead;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, limit_range, resource_quota};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of namespaces.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[Column::text("Name"), Column::text("Status"), Column::text("Age")];

fn cells(namespace: &Object, now: Time) -> Vec<TableCell> {
    vec![namespace.name().into(), namespace.0.text("status.phase").into(), age_since(namespace.created(), now).into()]
}

fn describe(namespace: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.field(0, "Name", namespace.name());
    out.labels_and_annotations(namespace);
    out.field(0, "Status", namespace.0.text("status.phase"));
    conditions(out, namespace.0.list("status.conditions"));
    out.blank();
    resource_quota::all_of_namespace(out, related.list("resourcequotas", namespace.name()));
    out.blank();
    limit_range::all_of_namespace(out, &related.list("limitranges", namespace.name()));
}

/// Writes `Conditions:` with their last change, if there are any.
pub fn conditions(out: &mut Describe, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    out.heading(0, "Conditions");
    out.header(1, &["Type", "Status", "LastTransitionTime", "Reason", "Message"]);
    for known in conditions {
        let changed = rfc1123(known.time("lastTransitionTime"));
        out.row(
            1,
            &[&known.text("type"), &known.text("status"), &changed, &known.text("reason"), &known.text("message")],
        );
    }
}
