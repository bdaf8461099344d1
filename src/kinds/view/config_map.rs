//! ConfigMaps.

use super::age::age_since;
use super::body::BodyRead;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};
use base64::Engine;

/// The view of config maps.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[Column::text("Name"), Column::text("Data"), Column::text("Age")];

fn cells(map: &Object, now: Time) -> Vec<TableCell> {
    let keys = map.0.pairs("data").len() + map.0.pairs("binaryData").len();
    vec![map.name().into(), keys.into(), age_since(map.created(), now).into()]
}

fn describe(map: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.name_and_namespace(map);
    out.labels_and_annotations(map);
    out.blank();
    out.line(0, "Data\n====");
    for (key, value) in map.0.pairs("data") {
        out.line(0, format_args!("{key}:\n----\n{value}\n"));
    }
    out.blank();
    out.line(0, "BinaryData\n====");
    for (key, value) in map.0.pairs("binaryData") {
        out.line(0, format_args!("{key}: {} bytes", decoded_length(&value)));
    }
    out.blank();
    events::write_events(map, related, out);
}

/// Length in bytes of decoded base64 text; 0 when it is invalid.
pub fn decoded_length(text: &str) -> usize {
    base64::engine::general_purpose::STANDARD.decode(text).map_or(0, |bytes| bytes.len())
}
