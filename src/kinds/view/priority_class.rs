//! PriorityClasses.

use super::age::since;
use super::body::Body;
use super::{Cell, Column, Describe, Related, View, events};
use crate::object::{Object, Time};

/// The view of priority classes.
pub static VIEW: View = View { resource: "priorityclasses.scheduling.k8s.io", columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Value"),
    Column::text("Global-Default"),
    Column::text("Age"),
    Column::text("PreemptionPolicy"),
];

fn cells(class: &Object, now: Time) -> Vec<Cell> {
    vec![
        class.name().into(),
        class.0.int("value").into(),
        class.0.flag("globalDefault").into(),
        since(class.created(), now).into(),
        class.0.text("preemptionPolicy").into(),
    ]
}

fn describe(class: &Object, related: &dyn Related, out: &mut Describe) {
    out.field(0, "Name", class.name());
    out.field(0, "Value", class.0.int("value"));
    out.field(0, "GlobalDefault", class.0.flag("globalDefault"));
    out.field(0, "PreemptionPolicy", class.0.text("preemptionPolicy"));
    out.field(0, "Description", class.0.text("description"));
    out.inline_pairs(0, "Annotations", &class.0.pairs("metadata.annotations"));
    events::of(class, related, out);
}
