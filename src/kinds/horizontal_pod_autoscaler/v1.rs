//! Conversion of HorizontalPodAutoscalers between autoscaling/v2, which is stored, and v1, which has the CPU's utilization only.
//!
//! Knows: annotations of v1 hold the other parts of v2, in v1's own field names, so that nothing is lost on the way back
//! (`pkg/apis/autoscaling/v1/conversion.go`). Never: stores these annotations. Start reading at [`to_v1`].

use crate::object::Object;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerCondition, MetricSpec, MetricStatus,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The older version.
pub const V1: &str = "autoscaling/v1";

/// Annotations of v1, and the fields of v2 that they hold.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// A part of a metric in v2 (`target` or `current`), whose name also begins v1's names of its values.
#[derive(Clone, Copy)]
struct Part(&'static str);

const TARGET: Part = Part("target");
const CURRENT: Part = Part("current");

/// A field of a metric's source in both versions: the path in v2, and the name in v1.
type Renamed = (&'static [&'static str], &'static str);

/// The sources of metrics, and their fields that do not depend on the part.
const SOURCES: [(&str, &[Renamed]); 5] = [
    ("resource", &[(&["name"], "name")]),
    ("containerResource", &[(&["name"], "name"), (&["container"], "container")]),
    ("pods", &[(&["metric", "name"], "metricName"), (&["metric", "selector"], "selector")]),
    (
        "object",
        &[(&["describedObject"], "target"), (&["metric", "name"], "metricName"), (&["metric", "selector"], "selector")],
    ),
    ("external", &[(&["metric", "name"], "metricName"), (&["metric", "selector"], "metricSelector")]),
];

/// The values of a part, and v1's names of them behind the part's.
const VALUES: [(&str, &str); 3] =
    [("averageUtilization", "AverageUtilization"), ("averageValue", "AverageValue"), ("value", "Value")];

impl Part {
    /// The name in v1 of a value of this part of a source.
    fn name_in_v1(self, source: &str, value: &str, suffix: &str) -> String {
        // The average of an object's metric has the same name in targets and statuses.
        if source == "object" && value == "averageValue" { value.to_owned() } else { format!("{}{suffix}", self.0) }
    }

    fn metric_to_v1(self, metric: &Value) -> Value {
        let mut converted = Map::new();
        converted.insert("type".to_owned(), metric["type"].clone());
        for (source, fields) in SOURCES.iter().filter(|(source, _)| metric[*source].is_object()) {
            let from = Object(metric[*source].clone());
            let mut to = Map::new();
            for (path, name) in *fields {
                to.extend(from.value_at(path).map(|value| ((*name).to_owned(), value.clone())));
            }
            for (value, suffix) in VALUES {
                let found = from.value_at(&[self.0, value]);
                to.extend(found.map(|found| (self.name_in_v1(source, value, suffix), found.clone())));
            }
            converted.insert((*source).to_owned(), to.into());
        }
        converted.into()
    }

    fn metric_from_v1(self, metric: &Value) -> Value {
        let mut converted = Object(json!({"type": metric["type"]}));
        for (source, fields) in SOURCES.iter().filter(|(source, _)| metric[*source].is_object()) {
            let from = &metric[*source];
            for (path, name) in fields.iter().filter(|(_, name)| from.get(name).is_some()) {
                converted.set(&[&[*source], *path].concat(), from[*name].clone());
            }
            for (value, suffix) in VALUES {
                if let Some(found) = from.get(self.name_in_v1(source, value, suffix)) {
                    converted.set(&[source, self.0, value], found.clone());
                }
            }
            if self.0 == TARGET.0 {
                converted.set(&[source, self.0, "type"], type_of_target(&converted.0[*source][self.0]));
            }
        }
        converted.0
    }
}

/// The `type` of a target of v2, which follows from the values that it has.
fn type_of_target(target: &Value) -> &'static str {
    match target {
        target if target.get("averageUtilization").is_some() => "Utilization",
        target if target.get("averageValue").is_some() => "AverageValue",
        _ => "Value",
    }
}

/// The utilization of the CPU in a metric.
fn cpu_utilization(metric: &Value, part: Part) -> Option<&Value> {
    let resource = Some(&metric["resource"]).filter(|resource| resource["name"] == "cpu")?;
    resource[part.0].get("averageUtilization").filter(|percent| !percent.is_null())
}

/// Converts an object of v2.
pub fn to_v1(mut object: Object) -> Object {
    let metrics = take_items(&mut object, &["spec", "metrics"]);
    let first_cpu = metrics.iter().find(|metric| metric["resource"]["name"] == "cpu");
    if let Some(percent) = first_cpu.and_then(|metric| cpu_utilization(metric, TARGET)) {
        object.set(&["spec", "targetCPUUtilizationPercentage"], percent.clone());
    }
    let others = metrics.iter().filter(|metric| cpu_utilization(metric, TARGET).is_none());
    annotate(&mut object, METRICS, others.map(|metric| TARGET.metric_to_v1(metric)).collect());
    let current = take_items(&mut object, &["status", "currentMetrics"]);
    if let Some(percent) = current.iter().filter_map(|metric| cpu_utilization(metric, CURRENT)).next_back() {
        object.set(&["status", "currentCPUUtilizationPercentage"], percent.clone());
    }
    annotate(&mut object, CURRENT_METRICS, current.iter().map(|metric| CURRENT.metric_to_v1(metric)).collect());
    let conditions = take_items(&mut object, &["status", "conditions"]);
    annotate(&mut object, CONDITIONS, conditions.into());
    if let Some(behavior) = object.value_at(&["spec", "behavior"]).cloned() {
        object.unset(&["spec", "behavior"]);
        annotate(&mut object, BEHAVIOR, behavior);
    }
    object.set(&["apiVersion"], V1);
    if object.value_at(&["status"]).is_none() {
        object.set(&["status"], json!({}));
    }
    object
}

fn take_items(object: &mut Object, path: &[&str]) -> Vec<Value> {
    let items = object.items(path).to_vec();
    object.unset(path);
    items
}

/// Records a part of v2, unless it is empty.
fn annotate(object: &mut Object, annotation: &str, part: Value) {
    let is_empty = part.is_null() || part.as_array().is_some_and(Vec::is_empty);
    if !is_empty {
        object.set(&["metadata", "annotations", annotation], part.to_string());
    }
}

/// Converts an object of v1.
pub fn from_v1(body: &Value) -> Value {
    let mut object = Object(body.clone());
    object.set(&["apiVersion"], "autoscaling/v2");
    let mut metrics = take_metrics::<MetricSpec>(&mut object, METRICS, TARGET).unwrap_or_default();
    if let Some(percent) = object.value_at(&["spec", "targetCPUUtilizationPercentage"]).cloned() {
        object.unset(&["spec", "targetCPUUtilizationPercentage"]);
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        metrics.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    if !metrics.is_empty() {
        object.set(&["spec", "metrics"], metrics);
    }
    if let Some(behavior) = take_part::<HorizontalPodAutoscalerBehavior>(&mut object, BEHAVIOR) {
        object.set(&["spec", "behavior"], behavior);
    }
    let percent = object.value_at(&["status", "currentCPUUtilizationPercentage"]).cloned();
    object.unset(&["status", "currentCPUUtilizationPercentage"]);
    let cpu = |percent| {
        let current = json!({"averageUtilization": percent});
        vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": current}})]
    };
    let known = take_metrics::<MetricStatus>(&mut object, CURRENT_METRICS, CURRENT);
    if let Some(current) = known.or_else(|| percent.map(cpu)) {
        object.set(&["status", "currentMetrics"], current);
    }
    if let Some(conditions) = take_part::<Vec<HorizontalPodAutoscalerCondition>>(&mut object, CONDITIONS) {
        object.set(&["status", "conditions"], conditions);
    }
    object.0
}

/// Takes metrics out of an annotation. Like Kubernetes, ignores an annotation that cannot be read.
fn take_metrics<T: DeserializeOwned>(object: &mut Object, annotation: &str, part: Part) -> Option<Vec<Value>> {
    let Value::Array(metrics) = take_annotation(object, annotation)? else { return None };
    if !metrics.iter().all(Value::is_object) {
        return None;
    }
    let converted: Value = metrics.iter().map(|metric| part.metric_from_v1(metric)).collect();
    Vec::<T>::deserialize(&converted).ok()?;
    let Value::Array(metrics) = converted else { return None };
    Some(metrics)
}

/// Takes a part that has the same fields in both versions out of an annotation, if it can be read.
fn take_part<T: DeserializeOwned>(object: &mut Object, annotation: &str) -> Option<Value> {
    take_annotation(object, annotation).filter(|part| T::deserialize(part).is_ok())
}

fn take_annotation(object: &mut Object, annotation: &str) -> Option<Value> {
    let path = ["metadata", "annotations", annotation];
    let part = serde_json::from_str(object.text(&path)?).ok();
    object.unset(&path);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaler() -> Object {
        Object(json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {
                "maxReplicas": 3,
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": "1k"}}},
                    {"type": "Object", "object": {
                        "describedObject": {"kind": "Ingress", "name": "main"}, "metric": {"name": "hits"},
                        "target": {"type": "Value", "value": "10k"},
                    }},
                    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
            "status": {
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 50, "averageValue": "5m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True"}],
            },
        }))
    }

    #[test]
    fn conversion_to_v1_and_back_keeps_every_part() {
        let older = to_v1(scaler());
        assert_eq!(older.0["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}));
        assert_eq!(older.0["status"], json!({"currentCPUUtilizationPercentage": 50}));
        let metrics: Value = serde_json::from_str(older.annotation(METRICS).unwrap()).unwrap();
        assert_eq!(metrics[0]["pods"], json!({"metricName": "requests", "targetAverageValue": "1k"}));
        let target = json!({"kind": "Ingress", "name": "main"});
        assert_eq!(metrics[1]["object"], json!({"target": target, "metricName": "hits", "targetValue": "10k"}));
        let mut back = from_v1(&older.0);
        assert_eq!(back["metadata"]["annotations"], json!({}));
        back["metadata"] = scaler().0["metadata"].clone();
        assert_eq!(back, scaler().0);
    }

    #[test]
    fn annotations_that_cannot_be_read_are_ignored() {
        for text in ["[", "{}", "[[]]", r#"[{"type": 1}]"#] {
            let mut older = to_v1(scaler());
            older.set(&["metadata", "annotations", METRICS], text);
            let metrics = from_v1(&older.0)["spec"]["metrics"].clone();
            assert_eq!(metrics.as_array().map(Vec::len), Some(1), "{text}");
        }
    }
}
