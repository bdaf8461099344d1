//! Jobs.

use super::age::{age_since, rfc1123, seconds_between};
use super::body::BodyRead;
use super::containers::{names_and_images, template};
use super::related::{controlled_by, selector};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time, time};
use serde_json::Value;

/// The view of jobs.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Status"),
    Column::text("Completions"),
    Column::text("Duration"),
    Column::text("Age"),
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];

/// Length at which a list of completed indexes is cut at the next comma (kubectl: `capIndexesListOrNone`).
const INDEXES_SHOWN: usize = 50;

fn cells(job: &Object, now: Time) -> Vec<TableCell> {
    let body = &job.0;
    let (names, images) = names_and_images(body.value_at("spec.template.spec"));
    vec![
        job.name().into(),
        status(job).into(),
        completions(body).into(),
        duration(body, now).into(),
        age_since(job.created(), now).into(),
        names.into(),
        images.into(),
        selector(body.value_at("spec.selector")).to_string().into(),
    ]
}

fn status(job: &Object) -> &'static str {
    let is = |kind: &str| job.has_condition(kind);
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if job.deletion().is_some() {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|kind| is(kind)).unwrap_or("Running")
    }
}

fn completions(body: &Value) -> String {
    let succeeded = body.int("status.succeeded");
    match (body.value_at("spec.completions").as_i64(), body.int("spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, many) if many > 1 => format!("{succeeded}/1 of {many}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(body: &Value, now: Time) -> String {
    let end = body.time("status.completionTime").unwrap_or(now);
    body.time("status.startTime").map(|start| time::age(seconds_between(start, end))).unwrap_or_default()
}

fn describe(job: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &job.0;
    out.name_and_namespace(job);
    out.field(0, "Selector", selector(body.value_at("spec.selector")));
    out.labels_and_annotations(job);
    if let Some(owner) = controlled_by(job) {
        out.field(0, "Controlled By", owner);
    }
    let field = |out: &mut Describe, label: &str, path: &str| {
        if body.has(path) {
            out.field(0, label, body.plain(path));
        }
    };
    field(out, "Parallelism", "spec.parallelism");
    out.field(0, "Completions", super::body::text_or(&body.plain("spec.completions"), "<unset>"));
    field(out, "Completion Mode", "spec.completionMode");
    field(out, "Suspend", "spec.suspend");
    field(out, "Backoff Limit", "spec.backoffLimit");
    field(out, "TTL Seconds After Finished", "spec.ttlSecondsAfterFinished");
    times(body, out);
    pods_statuses(body, out);
    template(out, body.value_at("spec.template"));
    events::write_events(job, related, out);
}

fn times(body: &Value, out: &mut Describe) {
    let (start, end) = (body.time("status.startTime"), body.time("status.completionTime"));
    if start.is_some() {
        out.field(0, "Start Time", rfc1123(start));
    }
    if end.is_some() {
        out.field(0, "Completed At", rfc1123(end));
    }
    if let (Some(start), Some(end)) = (start, end) {
        out.field(0, "Duration", time::age(seconds_between(start, end)));
    }
    if body.has("spec.activeDeadlineSeconds") {
        out.field(0, "Active Deadline Seconds", format_args!("{}s", body.int("spec.activeDeadlineSeconds")));
    }
}

fn pods_statuses(body: &Value, out: &mut Describe) {
    let ready = match body.value_at("status.ready").as_i64() {
        Some(ready) => format!(" ({ready} Ready)"),
        None => String::new(),
    };
    let [active, succeeded, failed] = ["active", "succeeded", "failed"].map(|name| body.value_at("status").int(name));
    out.field(0, "Pods Statuses", format_args!("{active} Active{ready} / {succeeded} Succeeded / {failed} Failed"));
    if body.text("spec.completionMode") == "Indexed" {
        out.field(0, "Completed Indexes", capped(body.text("status.completedIndexes")));
    }
}

fn capped(indexes: &str) -> String {
    let comma = indexes.get(INDEXES_SHOWN..).and_then(|rest| rest.find(','));
    match comma {
        _ if indexes.is_empty() => "<none>".into(),
        Some(at) => format!("{}...", &indexes[..=INDEXES_SHOWN + at]),
        None => indexes.to_owned(),
    }
}
