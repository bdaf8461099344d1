//! PriorityClasses.

use super::age::age_since;
use super::body::BodyRead;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};

/// The view of priority classes.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Value"),
    Column::text("Global-Default"),
    Column::text("Age"),
    Column::text("PreemptionPolicy"),
];

fn cells(class: &Object, now: Time) -> Vec<TableCell> {
    vec![
        class.name().into(),
        class.0.int("value").into(),
        class.0.flag("globalDefault").into(),
        age_since(class.created(), now).into(),
        class.0.text("preemptionPolicy").into(),
    ]
}

fn describe(class: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.field(0, "Name", class.name());
    out.field(0, "Value", class.0.int("value"));
    out.field(0, "GlobalDefault", class.0.flag("globalDefault"));
    out.field(0, "PreemptionPolicy", class.0.text("preemptionPolicy"));
    out.field(0, "Description", class.0.text("description"));
    out.inline_pairs(0, "Annotations", &class.0.pairs("metadata.annotations"));
    events::write_events(class, related, out);
}
