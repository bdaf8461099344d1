//! PodDisruptionBudget (policy/v1).

use super::catalogue::{merge_rules, shapes, typed};
use super::shared::go::{self, GoField, GoShape};
use super::shared::{amount, conditions, omit, selector, workload};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["pdb"],
    unconditional_update: false,
    merge_rules: &MERGE_RULES,
    shape: &SHAPE,
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<PodDisruptionBudget>(
        "poddisruptionbudgets.policy",
        "v1",
        "PodDisruptionBudget",
        &view::disruption_budget::VIEW,
    )
};

static MERGE_RULES: MergeSchema =
    MergeSchema::new(&[merge_rules::META, ("spec", merge_rules::map(&SPEC_MERGE_RULES)), merge_rules::STATUS]);
static SPEC_MERGE_RULES: MergeSchema = MergeSchema::new(&[("selector", merge_rules::REPLACE)]);
static SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))), shapes::STATUS]);
static SPEC_SHAPE: StructShape = StructShape::new(&[shapes::SELECTOR]);

const SPEC: &[GoField] = &[
    ("MinAvailable", "minAvailable", GoShape::Pointer),
    ("Selector", "selector", GoShape::Pointer),
    ("MaxUnavailable", "maxUnavailable", GoShape::Pointer),
    ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy", GoShape::Pointer),
];

impl Typed for PodDisruptionBudget {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        self.spec.get_or_insert_default();
        let status = self.status.get_or_insert_default();
        for count in [
            &mut status.current_healthy,
            &mut status.desired_healthy,
            &mut status.disruptions_allowed,
            &mut status.expected_pods,
        ] {
            count.get_or_insert(0);
        }
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            let nothing = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
            new.set(&["status"], nothing);
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let Some(spec) = &self.spec else { return };
        let path = FieldPath::root("spec");
        if spec.min_available.is_some() && spec.max_unavailable.is_some() {
            let detail = "minAvailable and maxUnavailable cannot be both set";
            errors.invalid_text(&path, &go::lay_out(&json!(spec), SPEC).compact(), detail);
        }
        for (field, value) in [("minAvailable", &spec.min_available), ("maxUnavailable", &spec.max_unavailable)] {
            if let Some(value) = value {
                amount::check_count_or_percent(value, &path.child(field), errors);
                amount::check_at_most_all(value, &path.child(field), errors);
            }
        }
        if let Some(selector) = &spec.selector {
            selector::check(selector, &path.child("selector"), errors);
        }
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        if let Some(other) = spec.unhealthy_pod_eviction_policy.as_deref().filter(|text| !policies.contains(text)) {
            errors.unsupported(&path.child("unhealthyPodEvictionPolicy"), other, &policies);
        }
    }
}

fn check_status(new: &PodDisruptionBudget, _old: &PodDisruptionBudget, errors: &mut FieldErrors) {
    let (Some(status), path) = (&new.status, FieldPath::root("status")) else { return };
    conditions::check_conditions(status.conditions.as_deref().unwrap_or_default(), &path.child("conditions"), errors);
    let counts = [
        ("disruptionsAllowed", status.disruptions_allowed),
        ("currentHealthy", status.current_healthy),
        ("desiredHealthy", status.desired_healthy),
        ("expectedPods", status.expected_pods),
    ];
    workload::check_counts(&counts.map(|(field, count)| (field, count.map(i64::from))), &path, errors);
}
