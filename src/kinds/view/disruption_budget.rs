//! PodDisruptionBudgets.

use super::age::age_since;
use super::body::{BodyRead, text_or};
use super::related::selector;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};

/// The view of disruption budgets.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Min Available"),
    Column::text("Max Unavailable"),
    Column::int("Allowed Disruptions"),
    Column::text("Age"),
];

fn cells(budget: &Object, now: Time) -> Vec<TableCell> {
    let spec = budget.0.value_at("spec");
    vec![
        budget.name().into(),
        text_or(&spec.plain("minAvailable"), "N/A").into(),
        text_or(&spec.plain("maxUnavailable"), "N/A").into(),
        budget.0.int("status.disruptionsAllowed").into(),
        age_since(budget.created(), now).into(),
    ]
}

fn describe(budget: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let (spec, status) = (budget.0.value_at("spec"), budget.0.value_at("status"));
    out.name_and_namespace(budget);
    if spec.has("minAvailable") {
        out.field(0, "Min available", spec.plain("minAvailable"));
    } else if spec.has("maxUnavailable") {
        out.field(0, "Max unavailable", spec.plain("maxUnavailable"));
    }
    match spec.get("selector") {
        Some(labels) => out.field(0, "Selector", selector(labels)),
        None => out.field(0, "Selector", "<unset>"),
    }
    out.heading(0, "Status");
    let counts = [
        ("Allowed disruptions", "disruptionsAllowed"),
        ("Current", "currentHealthy"),
        ("Desired", "desiredHealthy"),
        ("Total", "expectedPods"),
    ];
    counts.iter().for_each(|(label, field)| out.field(2, label, status.int(field)));
    events::write_events(budget, related, out);
}
