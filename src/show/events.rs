//! The table of `kubectl events`.

use super::table::{Table, TableRow};
use crate::kinds::view::body::BodyRead;
pub use crate::kinds::view::events::sort;
use crate::kinds::view::{Column, events};
use crate::object::{Object, Time};

/// Returns the table of events, oldest first.
pub fn table(events: &mut [Object], now: Time) -> Table<'_> {
    events::sort(events);
    let columns = ["Last Seen", "Type", "Reason", "Object", "Message"].map(Column::text).to_vec();
    let rows = events.iter().map(|event| {
        let body = &event.0;
        let about = body.value_at("involvedObject");
        let cells = vec![
            events::last_seen(event, now).into(),
            body.text("type").into(),
            body.text("reason").into(),
            format!("{}/{}", about.text("kind"), about.text("name")).into(),
            body.text("message").trim().into(),
        ];
        TableRow { cells, object: Some(event) }
    });
    Table { columns, rows: rows.collect() }
}
