//! Secrets: their keys and sizes, never their values.

use super::age::since;
use super::body::Body;
use super::config_map::decoded_length;
use super::{Cell, Column, Describe, Related, View};
use crate::object::{Object, Time};

/// The view of secrets.
pub static VIEW: View = View { resource: "secrets", columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[Column::text("Name"), Column::text("Type"), Column::text("Data"), Column::text("Age")];

fn cells(secret: &Object, now: Time) -> Vec<Cell> {
    vec![
        secret.name().into(),
        secret.0.text("type").into(),
        secret.0.pairs("data").len().into(),
        since(secret.created(), now).into(),
    ]
}

fn describe(secret: &Object, _related: &dyn Related, out: &mut Describe) {
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
