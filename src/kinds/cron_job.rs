//! CronJob (batch/v1).

use super::pod::defaults::text;
use super::{Errors, Kind, Typed, job, omit};
use crate::object::Object;
use k8s_openapi::api::batch::v1::CronJob;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind =
    Kind { short: &["cj"], categories: &["all"], ..Kind::of::<CronJob>("cronjobs.batch", "v1", "CronJob") };

impl Typed for CronJob {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = &mut self.spec;
        text(&mut spec.concurrency_policy, "Allow");
        spec.suspend.get_or_insert(false);
        spec.successful_jobs_history_limit.get_or_insert(3);
        spec.failed_jobs_history_limit.get_or_insert(1);
        omit::metadata(spec.job_template.metadata.get_or_insert_default());
        job::template(spec.job_template.spec.get_or_insert_default());
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.set(&["status"], json!({}));
        }
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut Errors) {}
}
