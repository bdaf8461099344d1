//! Deployment (apps/v1).

use super::catalogue::{merge_rules, shapes, typed};
use super::pod::defaults;
use super::shared::omit::default_text;
use super::shared::workload::{self, Workload};
use super::shared::{amount, omit};
pub use super::view::deployment::POD_TEMPLATE_HASH;
use super::{FieldErrors, FieldPath, Kind, Typed, view};
use crate::object::Object;
use crate::object::merge::schema::MergeSchema;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

/// The beginning of the annotations of the controller.
pub const OWN_ANNOTATIONS: &str = "deployment.kubernetes.io/";
/// Annotation with the rollout's revision.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation with the earlier revisions of a set whose template was rolled back to.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation with the Deployment's `spec.replicas` when the set was last scaled.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation with the same number plus the surge.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Reason of the condition Progressing of a rollout that takes too long.
pub const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["deploy"],
    categories: &["all"],
    scale: true,
    merge_rules: &MERGE_RULES,
    shape: &shapes::WORKLOAD,
    status_metadata: &["annotations", "finalizers", "ownerReferences"],
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<Deployment>("deployments.apps", "v1", "Deployment", &view::deployment::VIEW)
};

static MERGE_RULES: MergeSchema =
    MergeSchema::new(&[merge_rules::META, ("spec", merge_rules::map(&SPEC_MERGE_RULES)), merge_rules::STATUS]);
static SPEC_MERGE_RULES: MergeSchema = MergeSchema::new(&[
    merge_rules::TEMPLATE,
    ("strategy", merge_rules::retaining(merge_rules::map(&merge_rules::ANY))),
]);

impl Typed for Deployment {
    fn read(&mut self, body: &Value) {
        let spec = self.spec.get_or_insert_default();
        workload::read_selector(&mut spec.selector, body);
    }

    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.min_ready_seconds);
        omit::empty(&mut spec.paused);
        spec.replicas.get_or_insert(1);
        spec.revision_history_limit.get_or_insert(10);
        spec.progress_deadline_seconds.get_or_insert(600);
        let strategy = spec.strategy.get_or_insert_default();
        default_text(&mut strategy.type_, "RollingUpdate");
        if strategy.type_.as_deref() == Some("RollingUpdate") {
            let rolling = strategy.rolling_update.get_or_insert_default();
            rolling.max_surge.get_or_insert_with(|| IntOrString::String("25%".into()));
            rolling.max_unavailable.get_or_insert_with(|| IntOrString::String("25%".into()));
        }
        defaults::set_template_defaults(&mut spec.template);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({}));
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (Some(spec), path) = (&self.spec, FieldPath::root("spec")) else { return };
        amount::check_not_negative(spec.replicas.unwrap_or(1).into(), &path.child("replicas"), errors);
        let parts = Workload {
            selects_for: "deployment",
            runs_as: "ReplicaSet",
            selector: &spec.selector,
            template: &spec.template,
        };
        parts.check(&path, errors);
        if let Some(strategy) = &spec.strategy {
            check_strategy(strategy, &path.child("strategy"), errors);
        }
        let ready = spec.min_ready_seconds.unwrap_or(0);
        let counts = [
            ("minReadySeconds", Some(ready.into())),
            ("revisionHistoryLimit", spec.revision_history_limit.map(i64::from)),
            ("progressDeadlineSeconds", spec.progress_deadline_seconds.map(i64::from)),
        ];
        workload::check_counts(&counts, &path, errors);
        if let Some(deadline) = spec.progress_deadline_seconds.filter(|deadline| *deadline <= ready) {
            errors.invalid(&path.child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
        }
        if let Some(old) = old.and_then(|old| old.spec.as_ref()) {
            workload::check_same_selector(&spec.selector, &old.selector, &path, errors);
        }
    }
}

fn check_status(new: &Deployment, old: &Deployment, errors: &mut FieldErrors) {
    let (new, old) = (new.status.clone().unwrap_or_default(), old.status.clone().unwrap_or_default());
    let path = FieldPath::root("status");
    let counts = [
        ("observedGeneration", new.observed_generation),
        ("replicas", new.replicas.map(i64::from)),
        ("updatedReplicas", new.updated_replicas.map(i64::from)),
        ("readyReplicas", new.ready_replicas.map(i64::from)),
        ("availableReplicas", new.available_replicas.map(i64::from)),
        ("unavailableReplicas", new.unavailable_replicas.map(i64::from)),
        ("collisionCount", new.collision_count.map(i64::from)),
    ];
    workload::check_counts(&counts, &path, errors);
    let available = ("availableReplicas", new.available_replicas);
    let parts = [("updatedReplicas", new.updated_replicas), ("readyReplicas", new.ready_replicas), available];
    workload::check_at_most(&parts, new.replicas.unwrap_or(0), "status.replicas", &path, errors);
    workload::check_at_most(&[available], new.ready_replicas.unwrap_or(0), "readyReplicas", &path, errors);
    workload::check_collisions(new.collision_count, old.collision_count, &path, errors);
}

fn check_strategy(strategy: &DeploymentStrategy, path: &FieldPath, errors: &mut FieldErrors) {
    match (strategy.type_.as_deref().unwrap_or_default(), &strategy.rolling_update) {
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.forbidden(&path.child("rollingUpdate"), detail);
        }
        ("RollingUpdate", Some(rolling)) => check_rolling(rolling, &path.child("rollingUpdate"), errors),
        ("Recreate" | "RollingUpdate", _) => {}
        (other, _) => {
            let text = format!("{{\"Type\":{},\"RollingUpdate\":null}}", json!(other));
            errors.unsupported_text(path, &text, &["Recreate", "RollingUpdate"]);
        }
    }
}

fn check_rolling(rolling: &RollingUpdateDeployment, path: &FieldPath, errors: &mut FieldErrors) {
    let (Some(unavailable), Some(surge)) = (&rolling.max_unavailable, &rolling.max_surge) else { return };
    let at = path.child("maxUnavailable");
    amount::check_count_or_percent(unavailable, &at, errors);
    amount::check_count_or_percent(surge, &path.child("maxSurge"), errors);
    if workload::is_nothing(unavailable) && workload::is_nothing(surge) {
        errors.invalid(&at, json!(unavailable), "may not be 0 when `maxSurge` is 0");
    }
    amount::check_at_most_all(unavailable, &at, errors);
}
