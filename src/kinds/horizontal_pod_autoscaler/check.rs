//! Validation of autoscalers (`ValidateHorizontalPodAutoscaler`), in Kubernetes' order.

use crate::kinds::shared::amount::quantity;
use crate::kinds::shared::{names, resource_names, workload};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec,
    MetricIdentifier, MetricSpec, MetricTarget,
};
use serde_json::json;

const MAX_PERIOD_SECONDS: i32 = 1800;
const MAX_WINDOW_SECONDS: i32 = 3600;

/// Checks a spec.
pub fn check_spec(
    spec: &HorizontalPodAutoscalerSpec,
    old: Option<&HorizontalPodAutoscalerSpec>,
    errors: &mut FieldErrors,
) {
    let path = FieldPath::root("spec");
    let min = spec.min_replicas;
    if let Some(min) = min.filter(|min| *min < 1) {
        errors.invalid(&path.child("minReplicas"), min, "must be greater than or equal to 1");
    }
    let max = path.child("maxReplicas");
    if spec.max_replicas < 1 {
        errors.required(&max, "must be set and greater than 0");
    }
    if min.is_some_and(|min| spec.max_replicas < min) {
        errors.invalid(&max, spec.max_replicas, "must be greater than or equal to `minReplicas`");
    }
    let target = |spec: &HorizontalPodAutoscalerSpec| {
        (spec.scale_target_ref.api_version.clone(), spec.scale_target_ref.kind.clone())
    };
    let same = old.is_some_and(|old| target(old) == target(spec));
    let at = path.child("scaleTargetRef");
    check_reference(&spec.scale_target_ref, &at, errors);
    if !same {
        let in_core = spec.scale_target_ref.kind == "ReplicationController";
        check_version(&spec.scale_target_ref, in_core, &at, errors);
    }
    let metrics = spec.metrics.as_deref().unwrap_or_default();
    for (index, metric) in metrics.iter().enumerate() {
        check_metric(metric, &path.child("metrics").index(index), errors);
    }
    let from_outside = |metric: &MetricSpec| matches!(metric.type_.as_str(), "Object" | "External");
    if min == Some(0) && !metrics.iter().any(from_outside) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&path.child("metrics"), detail);
    }
    if let Some(behavior) = &spec.behavior {
        let path = path.child("behavior");
        for (field, rules) in [("scaleUp", &behavior.scale_up), ("scaleDown", &behavior.scale_down)] {
            if let Some(rules) = rules {
                check_rules(rules, &path.child(field), errors);
            }
        }
    }
}

/// Checks a status.
pub fn check_status(new: &HorizontalPodAutoscaler, _old: &HorizontalPodAutoscaler, errors: &mut FieldErrors) {
    let Some(status) = &new.status else { return };
    let counts = [
        ("currentReplicas", status.current_replicas.map(i64::from)),
        ("desiredReplicas", Some(status.desired_replicas.into())),
    ];
    workload::check_counts(&counts, &FieldPath::root("status"), errors);
}

fn check_reference(target: &CrossVersionObjectReference, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, value) in [("kind", &target.kind), ("name", &target.name)] {
        match value.as_str() {
            "" => errors.required(&path.child(field), ""),
            text => errors.each_invalid(&path.child(field), text, names::path_segment(text)),
        }
    }
}

/// Checks the version of a reference; only some may be to kinds of the core group.
fn check_version(target: &CrossVersionObjectReference, in_core: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let version = target.api_version.as_deref().unwrap_or_default();
    let problem = match version.split('/').count() {
        1 if !in_core => "apiVersion must specify API group".to_owned(),
        1 | 2 => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.invalid(&path.child("apiVersion"), version, &problem);
}

fn check_metric(metric: &MetricSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let sources = [
        ("ContainerResource", "containerResource", metric.container_resource.as_ref().map(|source| &source.target)),
        ("External", "external", metric.external.as_ref().map(|source| &source.target)),
        ("Object", "object", metric.object.as_ref().map(|source| &source.target)),
        ("Pods", "pods", metric.pods.as_ref().map(|source| &source.target)),
        ("Resource", "resource", metric.resource.as_ref().map(|source| &source.target)),
    ];
    if metric.type_.is_empty() {
        errors.required(&path.child("type"), "must specify a metric source type");
    }
    let Some((_, own, target)) = sources.iter().find(|(kind, ..)| *kind == metric.type_) else {
        errors.unsupported(&path.child("type"), metric.type_.as_str(), &sources.map(|(kind, ..)| kind));
        return;
    };
    match target {
        None => errors.required(&path.child(own), "must populate information for the given metric source"),
        Some(target) => {
            check_names(metric, &path.child(own), errors);
            check_target_value(target, &metric.type_, &path.child(own).child("target"), errors);
        }
    }
    for (_, field, _) in sources.iter().filter(|(_, field, target)| field != own && target.is_some()) {
        errors.forbidden(&path.child(field), "must populate the given metric source only");
    }
}

/// Checks the names in a metric's source.
fn check_names(metric: &MetricSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let resource = |name: &str, errors: &mut FieldErrors| {
        if name.is_empty() {
            errors.required(&path.child("name"), "must specify a resource name");
        }
    };
    let identifier = |metric: &MetricIdentifier, errors: &mut FieldErrors| {
        let path = path.child("metric").child("name");
        match metric.name.as_str() {
            "" => errors.required(&path, "must specify a metric name"),
            name => errors.each_invalid(&path, name, names::path_segment(name)),
        }
    };
    match metric.type_.as_str() {
        "Resource" => {
            let source = metric.resource.as_ref();
            source.into_iter().for_each(|source| resource(&source.name, errors));
        }
        "ContainerResource" => {
            let Some(source) = &metric.container_resource else { return };
            resource(&source.name, errors);
            if !source.name.is_empty() {
                resource_names::check_container(&source.name, &path.child("name"), errors);
            }
            match source.container.as_str() {
                "" => errors.required(&path.child("container"), "must specify a container"),
                name => errors.each_invalid(&path.child("container"), name, names::label(name)),
            }
        }
        "Object" => {
            let Some(source) = &metric.object else { return };
            let at = path.child("describedObject");
            check_reference(&source.described_object, &at, errors);
            check_version(&source.described_object, true, &at, errors);
            identifier(&source.metric, errors);
        }
        "Pods" => metric.pods.iter().for_each(|source| identifier(&source.metric, errors)),
        "External" => metric.external.iter().for_each(|source| identifier(&source.metric, errors)),
        _ => {}
    }
}

/// Checks the target value of a metric of this type.
fn check_target_value(target: &MetricTarget, metric: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if target.type_.is_empty() {
        errors.required(&path.child("type"), "must specify a metric target type");
    }
    if !matches!(target.type_.as_str(), "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.invalid(&path.child("type"), target.type_.as_str(), detail);
    }
    for (field, value) in [("value", &target.value), ("averageValue", &target.average_value)] {
        if let Some(text) = value.as_ref().filter(|text| quantity(text).is_negative() || quantity(text).is_zero()) {
            errors.invalid(&path.child(field), text.0.as_str(), "must be positive");
        }
    }
    if let Some(percent) = target.average_utilization.filter(|percent| *percent < 1) {
        errors.invalid(&path.child("averageUtilization"), percent, "must be greater than 0");
    }
    let (utilization, average, total) =
        (target.average_utilization.is_some(), target.average_value.is_some(), target.value.is_some());
    match metric {
        "Resource" | "ContainerResource" if !utilization && !average => {
            let detail = "must set either a target raw value or a target utilization";
            errors.required(&path.child("averageUtilization"), detail);
        }
        "Resource" | "ContainerResource" if utilization && average => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.forbidden(&path.child("averageValue"), detail);
        }
        "Object" if !total && !average => {
            errors.required(&path.child("averageValue"), "must set either a target value or averageValue");
        }
        "External" if !total && !average => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(&path.child("averageValue"), detail);
        }
        "External" if total && average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&path.child("value"), detail);
        }
        "Pods" if !average => {
            errors.required(&path.child("averageValue"), "must specify a positive target averageValue");
        }
        _ => {}
    }
}

fn check_rules(rules: &HPAScalingRules, path: &FieldPath, errors: &mut FieldErrors) {
    let window = path.child("stabilizationWindowSeconds");
    match rules.stabilization_window_seconds {
        Some(seconds) if seconds < 0 => {
            errors.invalid(&window, seconds, "must be greater than or equal to zero");
        }
        Some(seconds) if seconds > MAX_WINDOW_SECONDS => {
            errors.invalid(&window, seconds, &format!("must be less than or equal to {MAX_WINDOW_SECONDS}"));
        }
        _ => {}
    }
    let choices = ["Disabled", "Max", "Min"];
    if let Some(other) = rules.select_policy.as_deref().filter(|text| !choices.contains(text)) {
        errors.unsupported(&path.child("selectPolicy"), other, &choices);
    }
    let policies = rules.policies.as_deref().unwrap_or_default();
    if policies.is_empty() {
        errors.required(&path.child("policies"), "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = path.child("policies").index(index);
        if !matches!(policy.type_.as_str(), "Pods" | "Percent") {
            errors.unsupported(&path.child("type"), json!(policy.type_), &["Percent", "Pods"]);
        }
        if policy.value <= 0 {
            errors.invalid(&path.child("value"), policy.value, "must be greater than zero");
        }
        if policy.period_seconds <= 0 {
            errors.invalid(&path.child("periodSeconds"), policy.period_seconds, "must be greater than zero");
        }
        if policy.period_seconds > MAX_PERIOD_SECONDS {
            let detail = format!("must be less than or equal to {MAX_PERIOD_SECONDS}");
            errors.invalid(&path.child("periodSeconds"), policy.period_seconds, &detail);
        }
    }
    let tolerance = rules.tolerance.as_ref().map(quantity);
    if let Some(tolerance) = tolerance.filter(|tolerance| tolerance.is_negative()) {
        errors.invalid(&path.child("tolerance"), tolerance.to_string(), "must be greater than or equal to 0");
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::json;

    #[test]
    fn metrics_may_be_of_objects_of_the_core_group() {
        let found = |target: &str, object: &str| {
            let metric = json!({"type": "Object", "object": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"},
                "describedObject": {"apiVersion": object, "kind": "Service", "name": "n"}}});
            let reference = json!({"apiVersion": target, "kind": "Deployment", "name": "d"});
            let spec = json!({"scaleTargetRef": reference, "maxReplicas": 2, "metrics": [metric]});
            crate::kinds::testing::refusals(
                json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec}),
            )
            .join("; ")
        };
        assert_eq!(found("apps/v1", "v1"), "");
        assert_eq!(found("apps/v1", ""), "");
        let problem = "Invalid value: \"v1\": apiVersion must specify API group";
        assert_eq!(found("v1", "v1"), format!("spec.scaleTargetRef.apiVersion: {problem}"));
    }

    #[test]
    fn negative_tolerance_is_refused() {
        for (tolerance, problem) in [
            ("100m", None),
            ("-1", Some("spec.behavior.scaleUp.tolerance: Invalid value: \"-1\": must be greater than or equal to 0")),
        ] {
            let spec = json!({"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "behavior": {"scaleUp": {"tolerance": tolerance}}});
            let found =
                refusals(json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec}));
            assert_eq!(found, Vec::from_iter(problem));
        }
    }
}
