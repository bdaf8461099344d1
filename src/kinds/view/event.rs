//! Events, of the core group and of events.k8s.io.

use super::age::age_since;
use super::body::{BodyRead, text_or};
use super::{Column, KindView, TableCell, generic};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of core events.
pub static CORE: KindView = KindView { columns: COLUMNS, cells, describe: generic::describe };

const COLUMNS: &[Column] = &[
    Column::text("Last Seen"),
    Column::text("Type"),
    Column::text("Reason"),
    Column::text("Object"),
    Column::wide("Subobject"),
    Column::wide("Source"),
    Column::text("Message"),
    Column::wide("First Seen"),
    Column::wide("Count"),
    Column::wide("Name"),
];

/// The field in core, or its counterpart in events.k8s.io.
fn either<'a>(body: &'a Value, core: &str, other: &str) -> &'a Value {
    if body.has(core) { body.value_at(core) } else { body.value_at(other) }
}

fn cells(event: &Object, now: Time) -> Vec<TableCell> {
    let body = &event.0;
    let moment = |paths: &[&str]| paths.iter().find_map(|path| body.time(path));
    let first = moment(&["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]);
    let last = moment(&["series.lastObservedTime", "lastTimestamp", "deprecatedLastTimestamp"]).or(first);
    let count = ["series.count", "count", "deprecatedCount"].into_iter().find(|path| body.int(path) > 0);
    let about = either(body, "involvedObject", "regarding");
    let object = match (about.text("kind").to_lowercase(), about.text("name")) {
        (kind, "") => kind,
        (kind, name) => format!("{kind}/{name}"),
    };
    vec![
        age_since(last, now).into(),
        body.text("type").into(),
        body.text("reason").into(),
        object.into(),
        about.text("fieldPath").into(),
        source(body).into(),
        body.text(if body.has("message") { "message" } else { "note" }).trim().into(),
        age_since(first, now).into(),
        count.map_or(1, |path| body.int(path)).into(),
        event.name().into(),
    ]
}

fn source(body: &Value) -> String {
    let source = either(body, "source", "deprecatedSource");
    let component = text_or(
        source.text("component"),
        either(body, "reportingComponent", "reportingController").as_str().unwrap_or_default(),
    );
    let host = text_or(source.text("host"), body.text("reportingInstance"));
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}
