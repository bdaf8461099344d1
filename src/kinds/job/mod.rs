//! Job (batch/v1).
//!
//! Defines its defaults, the selector and labels that the API server generates from its uid, and its checks.
//! Start reading at [`KIND`].

pub mod check;
mod policy;
mod status;

use super::catalogue::{merge_rules, shapes, typed};
use super::pod::defaults;
use super::shared::omit;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::kinds::view;
use crate::object::Object;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    categories: &["all"],
    selectable: &["status.successful"],
    orphans_dependents: true,
    merge_rules: &merge_rules::WORKLOAD,
    shape: &SHAPE,
    validate_status: |new, old| typed::validate_status(new, old, status::check_status),
    ..Kind::new::<Job>("jobs.batch", "v1", "Job", &view::job::VIEW)
};

static UNCOUNTED_PODS_SHAPE: StructShape = StructShape::new(&[("failed", shapes::SET), ("succeeded", shapes::SET)]);
static STATUS_SHAPE: StructShape = StructShape::new(&[("uncountedTerminatedPods", shapes::map(&UNCOUNTED_PODS_SHAPE))]);
static SPEC_SHAPE: StructShape = StructShape::new(&[shapes::SELECTOR, shapes::TEMPLATE]);
/// The shape of Jobs, and of the template in CronJobs.
pub static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))),
    ("status", shapes::in_place(shapes::map(&STATUS_SHAPE))),
]);

/// The label that selects a Job's pods, the only one in the generated selector.
pub const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

impl Typed for Job {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        template(spec);
        if spec.completions.is_none() && spec.parallelism.is_none() {
            spec.completions = Some(1);
        }
        spec.parallelism.get_or_insert(1);
        spec.backoff_limit.get_or_insert(if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 });
        spec.completion_mode.get_or_insert_with(|| "NonIndexed".into());
        spec.suspend.get_or_insert(false);
        spec.manual_selector.get_or_insert(false);
        let replacement = if spec.pod_failure_policy.is_some() { "Failed" } else { "TerminatingOrFailed" };
        spec.pod_replacement_policy.get_or_insert_with(|| replacement.into());
        for rule in spec.pod_failure_policy.iter_mut().flat_map(|policy| &mut policy.rules) {
            let patterns = rule.on_pod_conditions.iter_mut().flatten();
            patterns.for_each(|pattern| omit::default_text(&mut pattern.status, "True"));
        }
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.set(&["status"], json!({}));
            if new.value_at(&["spec", "manualSelector"]) != Some(&Value::Bool(true)) {
                generate(new);
            }
        }
        // A Job without labels gets those of its template.
        if new.labels().next().is_none()
            && let Some(labels) = new.value_at(&["spec", "template", "metadata", "labels"]).cloned()
        {
            new.set(&["metadata", "labels"], labels);
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let Some(spec) = &self.spec else { return };
        check::check_job(self, spec, &FieldPath::root("spec"), errors);
        match old {
            Some(old) => check::check_change(spec, old, &FieldPath::root("spec"), errors),
            None => check::check_host_names(self, spec, errors),
        }
    }
}

/// Fills in pod defaults, also for a CronJob's template.
pub fn template(spec: &mut JobSpec) {
    spec.selector.iter_mut().for_each(omit::selector);
    defaults::set_template_defaults(&mut spec.template);
}

/// Generates the selector and labels with the Job's uid. The two unprefixed labels are for clients from before
/// Kubernetes 1.27.
fn generate(new: &mut Object) {
    let (uid, name) = (new.uid().to_owned(), new.name().to_owned());
    let labels = [
        ("controller-uid", &uid),
        (CONTROLLER_UID, &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
    ];
    for (label, value) in labels {
        new.set(&["spec", "template", "metadata", "labels", label], value.as_str());
    }
    new.set(&["spec", "selector", "matchLabels", CONTROLLER_UID], uid);
}
