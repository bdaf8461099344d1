//! CronJob (batch/v1).

pub mod schedule;

use super::catalogue::{merge_rules, shapes};
use super::shared::omit::default_text;
use super::shared::{omit, selector, workload};
use super::{FieldErrors, FieldPath, Kind, Typed, job};
use crate::kinds::view;
use crate::object::Object;
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, JobTemplateSpec};
use schedule::Schedule;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["cj"],
    categories: &["all"],
    merge_rules: &MERGE_RULES,
    shape: &SHAPE,
    ..Kind::new::<CronJob>("cronjobs.batch", "v1", "CronJob", &view::cron_job::VIEW)
};

static MERGE_RULES: MergeSchema = MergeSchema::new(&[merge_rules::META, ("spec", merge_rules::map(&SPEC_MERGE_RULES))]);
static SPEC_MERGE_RULES: MergeSchema = MergeSchema::new(&[("jobTemplate", merge_rules::map(&merge_rules::WORKLOAD))]);
static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))),
    ("status", shapes::in_place(shapes::map(&shapes::ANY))),
]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("jobTemplate", shapes::in_place(shapes::map(&job::SHAPE)))]);

impl Typed for CronJob {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = &mut self.spec;
        default_text(&mut spec.concurrency_policy, "Allow");
        spec.suspend.get_or_insert(false);
        spec.successful_jobs_history_limit.get_or_insert(3);
        spec.failed_jobs_history_limit.get_or_insert(1);
        omit::metadata(spec.job_template.metadata.get_or_insert_default());
        job::template(spec.job_template.spec.get_or_insert_default());
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({}));
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (spec, path) = (&self.spec, FieldPath::root("spec"));
        check_schedule(spec, &path, errors);
        workload::check_counts(&[("startingDeadlineSeconds", spec.starting_deadline_seconds)], &path, errors);
        if old.is_none_or(|old| old.spec.time_zone != spec.time_zone) {
            check_zone(spec.time_zone.as_deref(), &path.child("timeZone"), errors);
        }
        let (policy, known) = (spec.concurrency_policy.as_deref().unwrap_or_default(), ["Allow", "Forbid", "Replace"]);
        if !known.contains(&policy) {
            errors.unsupported(&path.child("concurrencyPolicy"), policy, &known);
        }
        check_template(&spec.job_template, &path.child("jobTemplate").child("spec"), errors);
        let limits = [
            ("successfulJobsHistoryLimit", spec.successful_jobs_history_limit.map(i64::from)),
            ("failedJobsHistoryLimit", spec.failed_jobs_history_limit.map(i64::from)),
        ];
        workload::check_counts(&limits, &path, errors);
        // A Job's name has eleven more characters, and becomes a label.
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if old.is_none() && name.len() > 52 {
            errors.invalid(&FieldPath::root("metadata").child("name"), name, "must be no more than 52 characters");
        }
    }
}

fn check_schedule(spec: &CronJobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let (text, path) = (spec.schedule.as_str(), path.child("schedule"));
    if text.is_empty() {
        return errors.required(&path, "");
    }
    if let Err(problem) = Schedule::parse(text) {
        errors.invalid(&path, text, &problem);
    }
    if text.contains("TZ") {
        errors.invalid(&path, text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    }
}

fn check_zone(zone: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    match zone {
        None => {}
        Some("") => errors.invalid(path, "", "timeZone must be nil or non-empty string"),
        Some(local) if local.eq_ignore_ascii_case("local") => {
            let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
            errors.invalid(path, local, detail);
        }
        Some(name) if schedule::zone(name).is_none() => {
            errors.invalid(path, name, &format!("unknown time zone {name}"));
        }
        Some(_) => {}
    }
}

fn check_template(template: &JobTemplateSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(spec) = &template.spec else { return };
    job::check::check_spec(spec, path, errors);
    if let Some(selector) = &spec.selector {
        let detail = "`selector` will be auto-generated";
        errors.invalid_text(&path.child("selector"), &selector::text(selector), detail);
    }
    if spec.manual_selector == Some(true) {
        errors.unsupported(&path.child("manualSelector"), true, &["nil", "false"]);
    }
}
