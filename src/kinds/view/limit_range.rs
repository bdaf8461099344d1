//! LimitRanges.

use super::body::{BodyRead, text_or};
use super::{Column, Describe, KindView, RelatedObjects, TableCell};
use crate::object::{Object, Time};
use serde_json::Value;
use std::collections::BTreeSet;

/// The view of limit ranges.
pub static VIEW: KindView = KindView { columns: CREATED, cells: created_at, describe };

/// The columns of kinds without a printer in Kubernetes.
pub const CREATED: &[Column] = &[Column::text("Name"), Column::text("Created At")];

/// The name and the time of creation.
pub fn created_at(object: &Object, _now: Time) -> Vec<TableCell> {
    vec![object.name().into(), object.0.text("metadata.creationTimestamp").into()]
}

const HEADER: [&str; 7] =
    ["Type", "Resource", "Min", "Max", "Default Request", "Default Limit", "Max Limit/Request Ratio"];

/// The fields of the columns after the resource.
const AMOUNTS: [&str; 5] = ["min", "max", "defaultRequest", "default", "maxLimitRequestRatio"];

fn describe(range: &Object, _related: &dyn RelatedObjects, out: &mut Describe) {
    out.name_and_namespace(range);
    out.header(0, &HEADER);
    rows(out, "", range);
}

/// Writes the limits of a namespace in its description.
pub fn all_of_namespace(out: &mut Describe, ranges: &[Object]) {
    if ranges.is_empty() {
        return out.line(0, "No LimitRange resource.");
    }
    out.line(0, "Resource Limits");
    out.line(0, format_args!(" {}", HEADER.join("\t")));
    out.line(0, format_args!(" {}", HEADER.map(|name| "-".repeat(name.len())).join("\t")));
    ranges.iter().for_each(|range| rows(out, " ", range));
}

fn rows(out: &mut Describe, indent: &str, range: &Object) {
    for limit in range.0.list("spec.limits") {
        let resources: BTreeSet<&str> = AMOUNTS
            .iter()
            .flat_map(|field| limit.value_at(field).as_object().into_iter().flatten())
            .map(|(name, _)| name.as_str())
            .collect();
        for resource in resources {
            let amount = |field: &str| limit.value_at(field).get(resource).and_then(Value::as_str).unwrap_or_default();
            let amounts = AMOUNTS.map(|field| text_or(amount(field), "-")).join("\t");
            out.line(0, format_args!("{indent}{}\t{resource}\t{amounts}", limit.text("type")));
        }
    }
}
