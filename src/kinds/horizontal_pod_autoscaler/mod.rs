//! HorizontalPodAutoscaler (autoscaling/v2; v1 is converted to v2).

mod check;
mod v1;

use super::catalogue::{merge_rules, shapes, typed};
use super::shared::omit;
use super::{DecodeError, FieldErrors, Kind, Typed, UnknownField};
use crate::kinds::view;
use crate::object::Object;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler, MetricSpec, MetricTarget, ResourceMetricSource,
};
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["hpa"],
    categories: &["all"],
    generation: false,
    also: &[v1::V1],
    to_also: v1::to_v1,
    normalize,
    validate_status: |new, old| typed::validate_status(new, old, check::check_status),
    merge_rules: &merge_rules::WITH_CONDITIONS,
    shape: &SHAPE,
    ..Kind::new::<HorizontalPodAutoscaler>(
        "horizontalpodautoscalers.autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        &view::autoscaler::VIEW,
    )
};

static SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))), shapes::STATUS]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("scaleTargetRef", shapes::in_place(shapes::map(&shapes::ANY)))]);

const DEFAULT_CPU_PERCENT: i32 = 80;

fn normalize(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
    let mut autoscaler = match body["apiVersion"].as_str() {
        Some(v1::V1) => typed::normalize::<HorizontalPodAutoscaler>(&v1::from_v1(body), unknown)?,
        _ => typed::normalize::<HorizontalPodAutoscaler>(body, unknown)?,
    };
    omit::null_when_missing(&mut autoscaler["status"], &["currentMetrics"]);
    Ok(autoscaler)
}

impl Typed for HorizontalPodAutoscaler {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = &mut self.spec;
        omit::empty(&mut spec.scale_target_ref.api_version);
        spec.min_replicas.get_or_insert(1);
        omit::empty(&mut spec.metrics);
        spec.metrics.get_or_insert_with(|| vec![default_metric()]);
        if let Some(behavior) = &mut spec.behavior {
            let up = behavior.scale_up.get_or_insert_default();
            up.stabilization_window_seconds.get_or_insert(0);
            default_rules(up, &[("Pods", 4), ("Percent", 100)]);
            default_rules(behavior.scale_down.get_or_insert_default(), &[("Percent", 100)]);
        }
        omit::empty(&mut self.status.get_or_insert_default().current_replicas);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({"currentMetrics": null, "desiredReplicas": 0}));
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        check::check_spec(&self.spec, old.map(|old| &old.spec), errors);
    }
}

fn default_metric() -> MetricSpec {
    let target = MetricTarget {
        type_: "Utilization".to_owned(),
        average_utilization: Some(DEFAULT_CPU_PERCENT),
        ..MetricTarget::default()
    };
    let resource = Some(ResourceMetricSource { name: "cpu".to_owned(), target });
    MetricSpec { type_: "Resource".to_owned(), resource, ..MetricSpec::default() }
}

fn default_rules(rules: &mut HPAScalingRules, policies: &[(&str, i32)]) {
    rules.select_policy.get_or_insert_with(|| "Max".to_owned());
    rules.policies.get_or_insert_with(|| {
        let policy = |(kind, value): &(&str, i32)| HPAScalingPolicy {
            type_: (*kind).to_owned(),
            value: *value,
            period_seconds: 15,
        };
        policies.iter().map(policy).collect()
    });
}
