//! HorizontalPodAutoscalers keep a workload's `replicas` between their bounds.
//!
//! The usage of pods is not measured yet: metrics count as missing, as on a cluster without a metrics server, and only the
//! bounds act.

use super::status;
use crate::kinds;
use crate::object::{Key, Object, time};
use crate::world::{EventType, Loop, Plan, Row, Verb, World};
use std::sync::Arc;

const ROOT: &str = "horizontalpodautoscalers.autoscaling";

/// The loop of HorizontalPodAutoscalers.
pub const LOOP: Loop = Loop { name: "horizontal-pod-autoscaler", root: ROOT, concerns, plan };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == ROOT {
        return vec![row.key.clone()];
    }
    if row.workload().is_none() {
        return Vec::new();
    }
    let scales = |hpa: &&Arc<Row>| target(world, &hpa.key, &hpa.object()).is_ok_and(|target| target.key == row.key);
    world.list_in(ROOT, &row.key.namespace).filter(scales).map(|hpa| hpa.key.clone()).collect()
}

/// What an autoscaler scales, or Kubernetes' words for not finding it.
fn target<'w>(world: &'w World, hpa: &Key, object: &Object) -> Result<&'w Arc<Row>, String> {
    let text = |name: &str| object.text(&["spec", "scaleTargetRef", name]).unwrap_or_default();
    let Some(kind) = kinds::by_kind(text("apiVersion"), text("kind")).filter(|kind| kind.scale) else {
        return Err(format!("no matches for kind {:?} in group {:?}", text("kind"), text("apiVersion")));
    };
    let missing = || format!("{} {:?} not found", kind.resource, text("name"));
    world.find(kind.resource.0, &hpa.namespace, text("name")).ok_or_else(missing)
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::nothing();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let object = row.object();
    let mut new = status::of(&object);
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    let mut say = |kind: &str, value: &str, reason: &str, message: &str| {
        status::set(&mut conditions, status::condition(kind, value, reason, message, world.now));
    };
    match target(world, key, &object) {
        Err(why) => {
            let message = format!("the HPA controller was unable to get the target's current scale: {why}");
            plan.event(row, EventType::Warning, "FailedGetScale", why.as_str());
            say("AbleToScale", "False", "FailedGetScale", &message);
        }
        Ok(scaled) => {
            let current = scaled.workload().map_or(0, |fields| fields.replicas);
            say(
                "AbleToScale",
                "True",
                "SucceededGetScale",
                "the HPA controller was able to get the target's current scale",
            );
            let (wanted, why) = bounded(&object, current);
            if current == 0 {
                let message = "scaling is disabled since the replica count of the target is zero";
                say("ScalingActive", "False", "ScalingDisabled", message);
            } else if let Some(why) = why {
                rescale(row, scaled, wanted, why, &mut plan);
                say(
                    "AbleToScale",
                    "True",
                    "SucceededRescale",
                    &format!("the HPA controller was able to update the target scale to {wanted}"),
                );
                new.insert("lastScaleTime".into(), time::rfc3339(world.now).into());
            } else {
                let (reason, message) = missing_metric(&object);
                say("ScalingActive", "False", reason, &message);
                plan.wait(message);
            }
            let counted = scaled.workload().map_or(0, |fields| fields.counts.replicas);
            status::count(&mut new, "currentReplicas", counted);
            new.insert("desiredReplicas".into(), wanted.into());
        }
    }
    new.entry("desiredReplicas").or_insert(0.into());
    status::conditions(&mut new, conditions);
    status::write(&mut plan, object, new.into(), "what can be scaled changed");
    plan
}

/// The size that the bounds ask for, and why it is another one.
fn bounded(object: &Object, current: i64) -> (i64, Option<&'static str>) {
    let least = object.int(&["spec", "minReplicas"]).unwrap_or(1);
    let most = object.int(&["spec", "maxReplicas"]).unwrap_or(i64::MAX);
    if current == 0 {
        (0, None)
    } else if current > most {
        (most, Some("Current number of replicas above Spec.MaxReplicas"))
    } else if current < least {
        (least, Some("Current number of replicas below Spec.MinReplicas"))
    } else {
        (current, None)
    }
}

fn rescale(row: &Row, scaled: &Row, wanted: i64, why: &str, plan: &mut Plan) {
    let mut body = scaled.object();
    body.set(&["spec", "replicas"], wanted);
    plan.event(row, EventType::Normal, "SuccessfulRescale", format!("New size: {wanted}; reason: {why}"));
    plan.write(Verb::Update(body), why);
}

/// Why no metric says anything.
fn missing_metric(object: &Object) -> (&'static str, String) {
    let why = "unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";
    let metric = object.items(&["spec", "metrics"]).first();
    let name = metric.and_then(|metric| metric["resource"]["name"].as_str());
    match name {
        Some(name) => {
            let message =
                format!("the HPA was unable to compute the replica count: failed to get {name} utilization: {why}");
            ("FailedGetResourceMetric", message)
        }
        None => {
            let kind = metric.and_then(|metric| metric["type"].as_str()).unwrap_or("Resource");
            let message = format!("the HPA was unable to compute the replica count: no {kind} metrics are served");
            ("InvalidMetricSourceType", message)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;
    use serde_json::json;

    #[test]
    fn keeps_to_its_bounds() {
        let mut cluster = cluster(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 1, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {minReplicas: 2, maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, metrics: [{type: Resource, resource: {name: cpu}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: lost}
spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: nope}}
",
        );
        cluster.settle();
        assert_eq!(cluster.value("deployments.apps", "web", "/spec/replicas"), 2);
        cluster.patch("deployments.apps", "web", json!({"spec": {"replicas": 9}}));
        cluster.settle();
        assert_eq!(cluster.value("deployments.apps", "web", "/spec/replicas"), 4);
        assert!(
            cluster.logged(
                "event: SuccessfulRescale New size: 4; reason: Current number of replicas above Spec.MaxReplicas"
            )
        );
        assert_eq!(
            cluster.conditions("horizontalpodautoscalers.autoscaling", "lost"),
            "AbleToScale=False FailedGetScale"
        );
        let message = cluster.value("horizontalpodautoscalers.autoscaling", "lost", "/status/conditions/0/message");
        assert!(message.as_str().unwrap().ends_with("deployments.apps \"nope\" not found"));
    }
}
