//! HorizontalPodAutoscalers: whether they can scale, and have.

use super::relations::target;
use super::remedy::in_namespace;
use super::{CauseLink, ControlPlaneState, ConvergenceState, name};
use crate::object::{Object, Selector, Time, format_count, time};
use crate::world::{Row, World};
use jiff::SignedDuration;
use serde_json::Value;

/// The resource.
pub const ROOT: &str = "horizontalpodautoscalers.autoscaling";

/// Time for which metrics may be missing: Kubernetes' horizontal-pod-autoscaler-sync-period of 15 s, and time for the answers.
const METRICS_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);

/// The link of an autoscaler, computed from its status: only the running control plane knows the usage of pods.
pub fn link(world: &World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let object = row.object();
    let count = |field: &str| object.int(&["status", field]).unwrap_or(0);
    let (current, desired) = (count("currentReplicas"), count("desiredReplicas"));
    let link = CauseLink {
        wanted: "as many pods as its metrics ask for".into(),
        seen: format!("{}, wants {desired}", format_count(current, "pod")),
        ..CauseLink::from_row(row)
    };
    if object.items(&["status", "conditions"]).is_empty() {
        return CauseLink { seen: "not looked at yet".into(), state: ConvergenceState::Converging, ..link };
    }
    match find_blocking_condition(&object) {
        Some(unable) if unable["reason"] == "ScalingDisabled" => CauseLink { seen: text(unable, "message"), ..link },
        Some(unable) if plane.is_preview && is_unmeasured(unable) => {
            if let Some((resource, container, pod)) = find_missing_request(world, row, &object) {
                let error = format!(
                    "FailedGetResourceMetric: missing request for {resource} in container {container} of Pod {pod}"
                );
                let next =
                    format!("set resources.requests.{resource} of container {container}: usage is measured against it");
                return CauseLink { error: Some(error), ..link }.stuck(next);
            }
            CauseLink {
                seen: format!("{}; the usage of simulated pods is not known", format_count(current, "pod")),
                ..link
            }
        }
        Some(unable) => {
            let error = format!("{}: {}", text(unable, "reason"), text(unable, "message"));
            let link = CauseLink { error: Some(error), state: ConvergenceState::Converging, ..link };
            let (me, namespace_flag) = (name(&row.key), in_namespace(&row.key));
            let next = match unable["reason"].as_str() {
                Some("AmbiguousSelector") => format!("delete all of them but one: kloop delete {me}{namespace_flag}"),
                Some("FailedGetScale") if target(world, row).is_none() => {
                    let named = |field: &str| object.text(&["spec", "scaleTargetRef", field]).unwrap_or_default();
                    let (kind, target) = (named("kind"), named("name"));
                    format!(
                        "apply the {kind} {target:?}, or correct spec.scaleTargetRef: {}",
                        plane.correct(world, row)
                    )
                }
                _ => request_remedy(world, row, &object)
                    .unwrap_or_else(|| format!("check its metrics: kloop describe {me}{namespace_flag}")),
            };
            link.stuck_if(!is_new(unable, world.now), || next)
        }
        None if current != desired => CauseLink { state: ConvergenceState::Converging, ..link },
        None => link,
    }
}

/// The command that sets a missing request, against which an autoscaler measures usage.
fn request_remedy(world: &World, row: &Row, scaler: &Object) -> Option<String> {
    let (resource, container, _) = find_missing_request(world, row, scaler)?;
    let (target, namespace_flag) = (name(&target(world, row)?.key), in_namespace(&row.key));
    Some(format!(
        "set the request that usage is measured against: kloop set resources {target}{namespace_flag} -c {container} \
         --requests={resource}=AMOUNT"
    ))
}

/// A container without a request for the measured resource: the resource, the container, its pod.
fn find_missing_request(world: &World, row: &Row, scaler: &Object) -> Option<(String, String, String)> {
    let target = target(world, row)?.object();
    let selector = Selector::from_label_selector(target.value_at(&["spec", "selector"])?).ok()?;
    let pods = world.pods_matching(&row.key.namespace, &selector);
    let metrics = scaler.items(&["spec", "metrics"]).iter().filter_map(|metric| {
        let (metric, only) = match metric["type"].as_str()? {
            "Resource" => (&metric["resource"], None),
            "ContainerResource" => (&metric["containerResource"], metric["containerResource"]["container"].as_str()),
            _ => return None,
        };
        (metric["target"]["type"] == "Utilization").then_some((metric["name"].as_str()?, only))
    });
    metrics.into_iter().find_map(|(resource, only)| {
        pods.iter().filter(|pod| pod.is_active_pod()).find_map(|pod| {
            let body = pod.body();
            let lacks = |one: &&Value| {
                one["resources"]["requests"].get(resource).is_none() && only.is_none_or(|only| one["name"] == only)
            };
            let name = body.items(&["spec", "containers"]).iter().find(lacks)?["name"].as_str()?.to_owned();
            Some((resource.to_owned(), name, pod.key.name.to_string()))
        })
    })
}

fn text(condition: &Value, field: &str) -> String {
    condition[field].as_str().unwrap_or_default().to_owned()
}

/// The condition with the reason why the autoscaler cannot scale. ScalingLimited is not a fault: it means that a bound was reached.
fn find_blocking_condition(object: &Object) -> Option<&Value> {
    let conditions = object.items(&["status", "conditions"]);
    let is_it = |one: &&Value| one["type"] == "AbleToScale" || one["type"] == "ScalingActive";
    conditions.iter().filter(is_it).find(|one| one["status"] == "False")
}

/// Whether the only problem is that no pod has been measured yet; the metric itself is supported.
fn is_unmeasured(condition: &Value) -> bool {
    let message = condition["message"].as_str().unwrap_or_default();
    ["no metrics returned", "no pods returned", "did not receive metrics"].iter().any(|one| message.contains(one))
}

/// Whether the condition is so new that the next check may change it.
fn is_new(condition: &Value, now: Time) -> bool {
    let since = time::from_json(&condition["lastTransitionTime"]);
    let is_metric = condition["type"] == "ScalingActive" && is_unmeasured(condition);
    is_metric && since.is_some_and(|since| now.duration_since(since) < METRICS_TIMEOUT)
}
