//! ReplicationController (core/v1).

use super::catalogue::{merge_rules, shapes, typed};
use super::pod::defaults;
use super::pod::spec::check_template;
use super::shared::{omit, workload};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::struct_shape::StructShape;
use crate::object::{Object, Selector};
use k8s_openapi::api::core::v1::ReplicationController;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["rc"],
    categories: &["all"],
    scale: true,
    selectable: &["status.replicas"],
    orphans_dependents: true,
    merge_rules: &merge_rules::WORKLOAD,
    shape: &SHAPE,
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<ReplicationController>(
        "replicationcontrollers",
        "v1",
        "ReplicationController",
        &view::replica_set::CONTROLLER,
    )
};

static SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))), shapes::STATUS]);
static SPEC_SHAPE: StructShape =
    StructShape::new(&[shapes::SELECTOR, ("template", shapes::map(&shapes::POD_TEMPLATE))]);

impl Typed for ReplicationController {
    /// Sets absent selector and labels to the template's labels.
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.min_ready_seconds);
        omit::empty(&mut spec.selector);
        spec.replicas.get_or_insert(1);
        let Some(template) = &mut spec.template else { return };
        defaults::set_template_defaults(template);
        let labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone());
        spec.selector = spec.selector.take().or_else(|| labels.clone());
        self.metadata.labels = self.metadata.labels.take().or(labels);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({"replicas": 0}));
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let (Some(spec), path) = (&self.spec, FieldPath::root("spec")) else { return };
        workload::check_counts(&[("minReadySeconds", spec.min_ready_seconds.map(i64::from))], &path, errors);
        let pairs = spec.selector.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
        let selector = Selector::from_map(pairs);
        if selector.is_everything() {
            errors.required(&path.child("selector"), "");
        }
        workload::check_counts(&[("replicas", spec.replicas.map(i64::from))], &path, errors);
        let path = path.child("template");
        let Some(template) = &spec.template else { return errors.required(&path, "") };
        workload::check_match(&selector, template, &path, errors);
        check_template(template, &path, errors);
        workload::check_replaced(template, "ReplicationController", &path, errors);
    }
}

fn check_status(new: &ReplicationController, _old: &ReplicationController, errors: &mut FieldErrors) {
    let Some(status) = &new.status else { return };
    let counts = [status.fully_labeled_replicas, status.ready_replicas, status.available_replicas];
    workload::check_replica_status(status.replicas, counts, status.observed_generation, errors);
}
