//! ReplicaSet (apps/v1).

use super::catalogue::{merge_rules, shapes, typed};
use super::pod::defaults;
use super::shared::omit;
use super::shared::workload::{self, Workload};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["rs"],
    categories: &["all"],
    scale: true,
    selectable: &["status.replicas"],
    merge_rules: &merge_rules::WORKLOAD,
    shape: &shapes::WORKLOAD,
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<ReplicaSet>("replicasets.apps", "v1", "ReplicaSet", &view::replica_set::VIEW)
};

impl Typed for ReplicaSet {
    fn read(&mut self, body: &Value) {
        workload::read_selector(&mut self.spec.get_or_insert_default().selector, body);
    }

    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.min_ready_seconds);
        spec.replicas.get_or_insert(1);
        defaults::set_template_defaults(spec.template.get_or_insert_default());
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({"replicas": 0}));
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (Some(spec), path) = (&self.spec, FieldPath::root("spec")) else { return };
        let counts =
            [("replicas", spec.replicas.map(i64::from)), ("minReadySeconds", spec.min_ready_seconds.map(i64::from))];
        workload::check_counts(&counts, &path, errors);
        let none = PodTemplateSpec::default();
        let template = spec.template.as_ref().unwrap_or(&none);
        let parts = Workload { selects_for: "deployment", runs_as: "ReplicaSet", selector: &spec.selector, template };
        parts.check(&path, errors);
        if let Some(old) = old.and_then(|old| old.spec.as_ref()) {
            workload::check_same_selector(&spec.selector, &old.selector, &path, errors);
        }
    }
}

fn check_status(new: &ReplicaSet, _old: &ReplicaSet, errors: &mut FieldErrors) {
    let Some(status) = &new.status else { return };
    let counts = [status.fully_labeled_replicas, status.ready_replicas, status.available_replicas];
    workload::check_replica_status(status.replicas, counts, status.observed_generation, errors);
}
