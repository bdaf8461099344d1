//! CronJobs.

use super::age::{age_since, rfc1123};
use super::body::{BodyRead, text_or, truth_or_unset};
use super::containers::{names_and_images, template};
use super::related::selector;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};

/// The view of cron jobs.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Schedule"),
    Column::text("Timezone"),
    Column::truth("Suspend"),
    Column::int("Active"),
    Column::text("Last Schedule"),
    Column::text("Age"),
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];

fn cells(job: &Object, now: Time) -> Vec<TableCell> {
    let body = &job.0;
    let (names, images) = names_and_images(body.value_at("spec.jobTemplate.spec.template.spec"));
    let last = body.time("status.lastScheduleTime");
    vec![
        job.name().into(),
        body.text("spec.schedule").into(),
        TableCell::or_none(body.text("spec.timeZone")),
        truth_or_unset(body.value_at("spec.suspend")).into(),
        body.list("status.active").len().into(),
        last.map_or_else(|| "<none>".into(), |last| age_since(Some(last), now)).into(),
        age_since(job.created(), now).into(),
        names.into(),
        images.into(),
        selector(body.value_at("spec.jobTemplate.spec.selector")).to_string().into(),
    ]
}

fn describe(job: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let (body, spec) = (&job.0, job.0.value_at("spec"));
    let template_spec = spec.value_at("jobTemplate.spec");
    let or_unset = |text: String, unit: &str| if text.is_empty() { "<unset>".into() } else { text + unit };
    out.name_and_namespace(job);
    out.labels_and_annotations(job);
    out.field(0, "Schedule", spec.text("schedule"));
    out.field(0, "Concurrency Policy", spec.text("concurrencyPolicy"));
    out.field(0, "Suspend", truth_or_unset(spec.value_at("suspend")));
    out.field(0, "Time Zone", text_or(spec.text("timeZone"), "<unset>"));
    out.field(0, "Successful Job History Limit", or_unset(spec.plain("successfulJobsHistoryLimit"), ""));
    out.field(0, "Failed Job History Limit", or_unset(spec.plain("failedJobsHistoryLimit"), ""));
    out.field(0, "Starting Deadline Seconds", or_unset(spec.plain("startingDeadlineSeconds"), "s"));
    match template_spec.get("selector") {
        Some(labels) => out.field(0, "Selector", selector(labels)),
        None => out.field(0, "Selector", "<unset>"),
    }
    out.field(0, "Parallelism", or_unset(template_spec.plain("parallelism"), ""));
    out.field(0, "Completions", or_unset(template_spec.plain("completions"), ""));
    if template_spec.has("activeDeadlineSeconds") {
        out.field(0, "Active Deadline Seconds", format_args!("{}s", template_spec.int("activeDeadlineSeconds")));
    }
    template(out, template_spec.value_at("template"));
    match body.time("status.lastScheduleTime") {
        Some(last) => out.field(0, "Last Schedule Time", rfc1123(Some(last))),
        None => out.field(0, "Last Schedule Time", "<unset>"),
    }
    let active: Vec<&str> = body.list("status.active").iter().map(|active| active.text("name")).collect();
    out.field(0, "Active Jobs", text_or(&active.join(", "), "<none>"));
    events::write_events(job, related, out);
}
