//! Secrets: their keys and sizes, never their values.

use super::age::age_since;
use super::body::BodyRead;
use super::config_map::decoded_length;
use super::{Column, Describe, KindView, RelatedObjects, TableCell};
use crate::object::{Object, Time};

/// The view of secrets.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[Column::text("Name"), Column::text("Type"), Column::text("Data"), Column::text("Age")];

fn cells(secret: &Object, now: Time) -> Vec<TableCell> {
    vec![
        secret.name().into(),
        secret.0.text("type").into(),
        secret.0.pairs("data").len().into(),
        age_since(secret.created(), now).into(),
    ]
}

fn describe(secret: &Object, _related: &dyn RelatedObjects, out: &mut Describe) {
    out.name_and_namespace(secret);
    out.labels_and_annotations(secret);
    out.blank();
    out.field(0, "Type", secret.0.text("type"));
    out.blank();
    out.line(0, "Data\n====");
    for (key, value) in secret.0.pairs("data") {
        out.field(0, key, format_args!("{} bytes", decoded_length(&value)));
    }
}
