//! DaemonSet (apps/v1).

use super::catalogue::{merge_rules, shapes, typed};
use super::pod::defaults;
use super::pod::spec::check_template;
use super::shared::omit::default_text;
use super::shared::{amount, omit, selector, workload};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::{Object, Selector};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["ds"],
    categories: &["all"],
    merge_rules: &merge_rules::WORKLOAD,
    shape: &shapes::WORKLOAD,
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<DaemonSet>("daemonsets.apps", "v1", "DaemonSet", &view::daemon_set::VIEW)
};

/// Annotation with the number of template changes, since apps/v1 has no field for it.
const TEMPLATE_GENERATION: [&str; 3] = ["metadata", "annotations", "deprecated.daemonset.template.generation"];

impl Typed for DaemonSet {
    fn read(&mut self, body: &Value) {
        workload::read_selector(&mut self.spec.get_or_insert_default().selector, body);
    }

    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.min_ready_seconds);
        spec.revision_history_limit.get_or_insert(10);
        let strategy = spec.update_strategy.get_or_insert_default();
        default_text(&mut strategy.type_, "RollingUpdate");
        if strategy.type_.as_deref() == Some("RollingUpdate") {
            let rolling = strategy.rolling_update.get_or_insert_default();
            rolling.max_unavailable.get_or_insert(IntOrString::Int(1));
            rolling.max_surge.get_or_insert(IntOrString::Int(0));
        }
        defaults::set_template_defaults(&mut spec.template);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        let Some(old) = old else {
            let none = json!({
                "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
            });
            new.set(&["status"], none);
            return new.set(&TEMPLATE_GENERATION, "1");
        };
        let before: i64 = old.text(&TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or(0);
        let changed = new.value_at(&["spec", "template"]) != old.value_at(&["spec", "template"]);
        new.set(&TEMPLATE_GENERATION, (before + i64::from(changed)).to_string());
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (Some(spec), path) = (&self.spec, FieldPath::root("spec")) else { return };
        if let Some(old) = old.and_then(|old| old.spec.as_ref()) {
            workload::check_same_selector(&spec.selector, &old.selector, &path, errors);
        }
        check_selector(spec, &path, errors);
        let template = path.child("template");
        check_template(&spec.template, &template, errors);
        workload::check_replaced(&spec.template, "DaemonSet", &template, errors);
        workload::check_counts(&[("minReadySeconds", spec.min_ready_seconds.map(i64::from))], &path, errors);
        if let Some(strategy) = &spec.update_strategy {
            check_strategy(strategy, &path.child("updateStrategy"), errors);
        }
        workload::check_counts(&[("revisionHistoryLimit", spec.revision_history_limit.map(i64::from))], &path, errors);
    }
}

fn check_status(new: &DaemonSet, old: &DaemonSet, errors: &mut FieldErrors) {
    let (new, old) = (new.status.clone().unwrap_or_default(), old.status.clone().unwrap_or_default());
    let path = FieldPath::root("status");
    let counts = [
        ("currentNumberScheduled", Some(new.current_number_scheduled.into())),
        ("numberMisscheduled", Some(new.number_misscheduled.into())),
        ("desiredNumberScheduled", Some(new.desired_number_scheduled.into())),
        ("numberReady", Some(new.number_ready.into())),
        ("observedGeneration", new.observed_generation),
        ("updatedNumberScheduled", new.updated_number_scheduled.map(i64::from)),
        ("numberAvailable", new.number_available.map(i64::from)),
        ("numberUnavailable", new.number_unavailable.map(i64::from)),
        ("collisionCount", new.collision_count.map(i64::from)),
    ];
    workload::check_counts(&counts, &path, errors);
    workload::check_collisions(new.collision_count, old.collision_count, &path, errors);
}

/// Checks the selector. Unlike for other workloads, the error of mismatching labels is the first.
fn check_selector(spec: &DaemonSetSpec, path: &FieldPath, errors: &mut FieldErrors) {
    selector::check(&spec.selector, &path.child("selector"), errors);
    let none = workload::no_selector(&spec.selector);
    let ready = if none { Some(Selector::nothing()) } else { selector::ready(&spec.selector) };
    if let Some(ready) = ready {
        workload::check_match(&ready, &spec.template, &path.child("template"), errors);
    }
    if !none && selector::is_empty(&spec.selector) {
        errors.invalid(&path.child("selector"), json!({}), "empty selector is invalid for daemonset");
    }
}

fn check_strategy(strategy: &DaemonSetUpdateStrategy, path: &FieldPath, errors: &mut FieldErrors) {
    match (strategy.type_.as_deref().unwrap_or_default(), &strategy.rolling_update) {
        ("OnDelete", _) => {}
        ("RollingUpdate", Some(rolling)) => check_rolling(rolling, &path.child("rollingUpdate"), errors),
        ("RollingUpdate", None) => errors.required(&path.child("rollingUpdate"), ""),
        (other, _) => {
            let text = format!("{{\"Type\":{},\"RollingUpdate\":null}}", json!(other));
            errors.unsupported_text(path, &text, &["RollingUpdate", "OnDelete"]);
        }
    }
}

fn check_rolling(rolling: &RollingUpdateDaemonSet, path: &FieldPath, errors: &mut FieldErrors) {
    let (Some(unavailable), Some(surge)) = (&rolling.max_unavailable, &rolling.max_surge) else { return };
    let (at, at_surge) = (path.child("maxUnavailable"), path.child("maxSurge"));
    amount::check_count_or_percent(unavailable, &at, errors);
    amount::check_count_or_percent(surge, &at_surge, errors);
    amount::check_at_most_all(unavailable, &at, errors);
    amount::check_at_most_all(surge, &at_surge, errors);
    match (workload::is_nothing(unavailable), workload::is_nothing(surge)) {
        (false, false) => errors.invalid(&at_surge, json!(surge), "may not be set when maxUnavailable is non-zero"),
        (true, true) => errors.required(&at, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}
