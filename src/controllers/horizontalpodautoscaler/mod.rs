//! HorizontalPodAutoscalers adjust a workload's `replicas` to the usage of its pods.
//!
//! Every 15 seconds the pods are measured ([`Effect::Measure`]). When all measurements are in, [`metrics`] and
//! [`replicas`] compute the size, and `behavior` limits the rate. Recommendations and scaling events are kept in
//! memory, as in Kubernetes' controller, and are lost when the control plane restarts.

mod behavior;
mod metrics;
mod replicas;
mod target;

use super::status;
use crate::object::{Key, Object, condition, time};
use crate::world::autoscaler::{AUTOSCALERS as ROOT, ScaleTargetRef};
use crate::world::loop_memory::AutoscalerMemory;
use crate::world::{AppliedReport, Effect, EventType, Loop, Memory, Plan, PodFacts, Row, World, WriteVerb};
use jiff::SignedDuration;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use target::{ScaleTarget, find_target};

/// Maximum number of autoscalers that a message names.
const MAX_NAMED: usize = 10;

/// Evaluation period (Kubernetes' horizontal-pod-autoscaler-sync-period).
const PERIOD: SignedDuration = SignedDuration::from_secs(15);

/// Maximum time to wait for the pods' measurements.
const MEASURE_TIMEOUT: SignedDuration = SignedDuration::from_secs(2);

/// Recommendations and scaling events are dropped after this time, the longest window that a behavior may have.
const RETENTION: SignedDuration = SignedDuration::from_hours(1);

/// The loop of HorizontalPodAutoscalers.
pub const LOOP: Loop =
    Loop { name: "horizontal-pod-autoscaler", root: ROOT, concerns, plan, reports: Some(reports), ..Loop::BASE };

/// The autoscalers in the namespace of a pod whose usage was measured that wait for measurements.
fn reports(world: &World, report: &AppliedReport) -> Vec<Key> {
    let waits = |row: &&Arc<Row>| {
        world.loop_memory.autoscalers.get(&row.uid).is_some_and(|memory| memory.asked > memory.synced)
    };
    match report {
        AppliedReport::Usage(pod) => {
            world.list_in(ROOT, &pod.namespace).filter(waits).map(|row| row.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == ROOT {
        return vec![row.key.clone()];
    }
    if !target::can_scale(world, row) {
        return Vec::new();
    }
    let scales = |hpa: &&Arc<Row>| find_target(world, hpa).is_ok_and(|target| target.row.key == row.key);
    world.list_in(ROOT, &row.key.namespace).filter(scales).map(|hpa| hpa.key.clone()).collect()
}

/// Evaluation of one autoscaler in progress.
struct AutoscalerState<'w> {
    world: &'w World,
    row: &'w Row,
    object: Object,
    memory: AutoscalerMemory,
    status: Map<String, Value>,
    conditions: Vec<Value>,
    plan: Plan,
}

fn plan(world: &World, key: &Key) -> Plan {
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return Plan::default() };
    let object = row.object();
    let mut scaling = AutoscalerState {
        world,
        row,
        memory: world.loop_memory.autoscalers.get(&row.uid).cloned().unwrap_or_default(),
        status: status::status_map(&object),
        conditions: object.items(&["status", "conditions"]).to_vec(),
        plan: Plan::default(),
        object,
    };
    match find_target(world, row) {
        Err(why) => scaling.has_no_target(&why),
        Ok(scaled) => scaling.scale(&scaled),
    }
    scaling.finish()
}

impl AutoscalerState<'_> {
    fn set_condition(&mut self, kind: &str, value: &str, reason: &str, message: &str) {
        condition::set(&mut self.conditions, condition::new(kind, value, reason, message, self.world.now));
    }

    fn event(&mut self, kind: EventType, reason: &'static str, message: impl Into<String>) {
        self.plan.event(self.row, kind, reason, message);
    }

    fn has_no_target(&mut self, why: &str) {
        self.event(EventType::Warning, "FailedGetScale", why);
        let message = format!("the HPA controller was unable to get the target's current scale: {why}");
        self.set_condition("AbleToScale", "False", "FailedGetScale", &message);
    }

    fn scale(&mut self, scaled: &ScaleTarget<'_>) {
        let current = scaled.replicas;
        status::set_count(&mut self.status, "currentReplicas", current);
        if condition::find(&self.conditions, "AbleToScale").is_none_or(|known| known["status"] != "True") {
            let message = "the HPA controller was able to get the target's current scale";
            self.set_condition("AbleToScale", "True", "SucceededGetScale", message);
        }
        let (bound, why) = bounded(&self.object, current);
        if current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.set_condition("ScalingActive", "False", "ScalingDisabled", message);
        } else if let Some(why) = why {
            self.rescale(scaled, bound, why);
        } else if scaled.selector.is_none() {
            self.event(EventType::Warning, "SelectorRequired", "selector is required");
            let message = "the HPA target's scale is missing a selector";
            self.set_condition("ScalingActive", "False", "InvalidSelector", message);
        } else {
            let is_computed = self.measured(scaled).is_some_and(|pods| self.scale_by_metrics(scaled, current, &pods));
            if !is_computed {
                return;
            }
        }
        let wanted = self.plan.writes.iter().any(|write| matches!(write.verb, WriteVerb::Scale(_)));
        if !wanted {
            self.status.insert("desiredReplicas".into(), current.into());
        }
    }

    /// The measured pods; `None` before the next evaluation is due, or while measurements are pending.
    fn measured(&mut self, scaled: &ScaleTarget<'_>) -> Option<Vec<Arc<Row>>> {
        let now = self.world.now;
        if let Some(synced) = self.memory.synced.filter(|synced| *synced + PERIOD > now) {
            self.plan.wake_at(synced + PERIOD);
            return None;
        }
        let selector = scaled.selector.as_ref()?;
        let pods: Vec<Arc<Row>> =
            self.world.pods_matching(&scaled.row.key.namespace, selector).into_iter().cloned().collect();
        let facts = &self.world.facts.pods;
        let runs = |pod: &&Arc<Row>| facts.get(&pod.uid).is_some_and(PodFacts::runs);
        let running = || pods.iter().filter(runs);
        let Some(asked) = self.memory.asked.filter(|asked| *asked + PERIOD > now) else {
            let uids: Vec<_> = running().map(|pod| pod.uid.clone()).collect();
            if uids.is_empty() {
                return Some(pods);
            }
            self.memory.asked = Some(now);
            self.plan.effects.push(Effect::Measure { pods: uids });
            self.remember();
            self.plan.wake_at(now + MEASURE_TIMEOUT);
            return None;
        };
        let answered = |pod: &Arc<Row>| facts.get(&pod.uid).is_some_and(|facts| facts.measured >= Some(asked));
        if asked + MEASURE_TIMEOUT > now && !running().all(answered) {
            self.plan.wait("the usage of its pods is being measured");
            self.plan.wake_at(asked + MEASURE_TIMEOUT);
            return None;
        }
        Some(pods)
    }

    /// Scales to the size that the metrics propose. False when they propose none: then `desiredReplicas` stays.
    fn scale_by_metrics(&mut self, scaled: &ScaleTarget<'_>, current: i64, pods: &[Arc<Row>]) -> bool {
        let now = self.world.now;
        self.memory.synced = Some(now);
        self.plan.wake_at(now + PERIOD);
        if let Some(message) = self.ambiguous(scaled, pods) {
            self.event(EventType::Warning, "AmbiguousSelector", message.clone());
            self.event(EventType::Warning, "FailedComputeMetricsReplicas", message.clone());
            self.set_condition("ScalingActive", "False", "AmbiguousSelector", &message);
            self.plan.wait(message);
            self.remember();
            return false;
        }
        let evaluation = metrics::evaluate_metrics(self.world, &self.object, pods, current);
        let is_computed = evaluation.is_ok();
        match evaluation {
            Err(failed) => self.fail(failed),
            Ok(verdict) => {
                let message = format!("the HPA was able to successfully calculate a replica count from {}", verdict.by);
                self.set_condition("ScalingActive", "True", "ValidMetricFound", &message);
                self.status.insert("currentMetrics".into(), verdict.current.into());
                let next = behavior::normalize(&self.object, &self.memory, current, verdict.replicas, now);
                self.memory.recommendations.push((now, verdict.replicas));
                self.set_condition("AbleToScale", "True", next.able.0, next.able.1);
                self.set_condition("ScalingLimited", next.limited.0, next.limited.1, next.limited.2);
                if next.replicas != current {
                    let why = match next.replicas > current {
                        true => format!("{} above target", verdict.by),
                        false => "All metrics below target".into(),
                    };
                    self.rescale(scaled, next.replicas, &why);
                }
            }
        }
        self.remember();
        is_computed
    }

    /// Reports other autoscalers that select the same pods: then none of them scales (`validateAndParseSelector`).
    fn ambiguous(&self, scaled: &ScaleTarget<'_>, pods: &[Arc<Row>]) -> Option<String> {
        let selector = scaled.selector.as_ref()?;
        let mut known: HashMap<&ScaleTargetRef, bool> = HashMap::new();
        let selects = |hpa: &Row| {
            let selector = find_target(self.world, hpa).ok().and_then(|target| target.selector);
            selector.is_some_and(|selector| pods.iter().any(|pod| selector.matches(|key| pod.label(key))))
        };
        let mut all = Vec::new();
        for hpa in self.world.list_in(ROOT, &scaled.row.key.namespace).filter(|hpa| !hpa.is_deleting()) {
            let Some(target) = hpa.scale_target() else { continue };
            if *known.entry(target).or_insert_with(|| selects(hpa)) {
                all.push(&hpa.key);
            }
        }
        if all.len() < 2 {
            return None;
        }
        let named = all.iter().take(MAX_NAMED).map(|key| format!("{}/{}", key.namespace, key.name));
        let named = named.collect::<Vec<_>>().join(" ");
        let more = all.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("pods by selector {selector} are controlled by multiple HPAs: [{named}{more}]"))
    }

    /// Reports a failure at every evaluation, as Kubernetes does; the event recorder aggregates repetitions.
    fn fail(&mut self, failed: metrics::FailedEvaluation) {
        let metrics::MissingMetric { reason, message: first, value } = failed.first;
        let message = format!("the HPA was unable to compute the replica count: {first}");
        let all = self.object.items(&["spec", "metrics"]).len();
        let of_value = if value.is_empty() { String::new() } else { format!("failed to get {value}: ") };
        let event_message =
            format!("invalid metrics ({} invalid out of {all}), first error is: {of_value}{first}", failed.count);
        self.event(EventType::Warning, reason, first);
        self.event(EventType::Warning, "FailedComputeMetricsReplicas", event_message);
        self.set_condition("ScalingActive", "False", reason, &message);
        self.status.insert("currentMetrics".into(), failed.current.into());
        self.plan.wait(message);
    }

    fn rescale(&mut self, scaled: &ScaleTarget<'_>, wanted: i64, why: &str) {
        let now = self.world.now;
        self.event(EventType::Normal, "SuccessfulRescale", format!("New size: {wanted}; reason: {why}"));
        self.plan.write(WriteVerb::Scale(scaled.resized(wanted)), why);
        let message = format!("the HPA controller was able to update the target scale to {wanted}");
        self.set_condition("AbleToScale", "True", "SucceededRescale", &message);
        self.status.insert("lastScaleTime".into(), time::rfc3339(now).into());
        self.status.insert("desiredReplicas".into(), wanted.into());
        self.memory.scalings.push((now, wanted - scaled.replicas));
    }

    /// Stores recommendations and scaling events for the next evaluation.
    fn remember(&mut self) {
        let since = self.world.now - RETENTION;
        self.memory.recommendations.retain(|(at, _)| *at > since);
        self.memory.scalings.retain(|(at, _)| *at > since);
        let (uid, state) = (self.row.uid.clone(), Box::new(self.memory.clone()));
        self.plan.memory = vec![Memory::Autoscaler { uid, state }];
    }

    fn finish(mut self) -> Plan {
        if let Some(seen) = Some(self.row.generation).filter(|generation| *generation > 0) {
            self.status.insert("observedGeneration".into(), seen.into());
        }
        self.status.entry("desiredReplicas").or_insert(0.into());
        status::set_conditions(&mut self.status, self.conditions);
        status::write(&mut self.plan, self.object, self.status.into(), "its metrics or conditions changed");
        self.plan
    }
}

/// The current size limited to the bounds, and the reason when it differs.
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

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;
    use crate::world::facts::ContainerUsage;
    use crate::world::usage::Usage;
    use crate::world::{ContainerFacts, ContainerState};
    use serde_json::json;

    #[test]
    fn autoscaler_stays_within_its_bounds() {
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

    /// Makes each pod run and use this much CPU from now on, in thousandths of a core.
    fn use_cpu(cluster: &mut super::super::testing::Cluster, milli: i64) {
        let (now, start) = (cluster.world.now, cluster.world.now - jiff::SignedDuration::from_secs(60));
        for row in cluster.world.list("pods").cloned().collect::<Vec<_>>() {
            let mut facts = cluster.world.facts.pods.get(&row.uid).cloned().unwrap_or_default();
            (facts.namespace, facts.name) = (row.key.namespace.clone(), row.key.name.clone());
            let state = ContainerState::Running { pid: 1, since: start };
            facts.containers.insert("c".into(), ContainerFacts::new(0, state));
            let usage = Usage { cpu_milli: milli, memory: 1 << 20, swap: 0 };
            let sample = Default::default();
            facts.usage.insert(
                "c".into(),
                ContainerUsage { since: now, at: now, sample, usage, throttling: sample.throttling },
            );
            let mut pod = row.object();
            pod.set(&["status", "startTime"], "2025-12-31T00:00:00Z");
            cluster.write_status(pod);
            cluster.world.facts.pods.insert(row.uid.clone(), facts);
        }
    }

    #[test]
    fn autoscaler_follows_the_usage_of_the_pods() {
        let mut cluster = cluster(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {minReplicas: 1, maxReplicas: 10, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}
",
        );
        let hpa = "horizontalpodautoscalers.autoscaling";
        cluster.settle();
        assert!(cluster.conditions(hpa, "web").contains("ScalingActive=False FailedGetResourceMetric"));
        assert_eq!(cluster.value("deployments.apps", "web", "/spec/replicas"), 2, "no pod was measured");
        let failures = |cluster: &super::super::testing::Cluster| {
            cluster.log.iter().filter(|line| line.contains("event: FailedGetResourceMetric")).count()
        };
        let before = failures(&cluster);
        cluster.pass(46);
        assert_eq!(failures(&cluster), before + 3, "each evaluation reports it");
        use_cpu(&mut cluster, 100);
        cluster.pass(20);
        let conditions = cluster.conditions(hpa, "web");
        assert!(conditions.contains("ScalingActive=True ValidMetricFound"), "{conditions}");
        assert_eq!(cluster.value("deployments.apps", "web", "/spec/replicas"), 4);
        let event = "event: SuccessfulRescale New size: 4; reason: cpu resource utilization (percentage of request) above target";
        assert!(cluster.logged(event));
        let current = cluster.value(hpa, "web", "/status/currentMetrics/0/resource/current");
        assert_eq!(current, json!({"averageUtilization": 100, "averageValue": "100m"}));
        use_cpu(&mut cluster, 10);
        cluster.pass(60);
        assert_eq!(cluster.value("deployments.apps", "web", "/spec/replicas"), 4, "scale-down is delayed");
        assert!(cluster.conditions(hpa, "web").contains("AbleToScale=True ScaleDownStabilized"));
        cluster.pass(400);
        assert_eq!(cluster.value("deployments.apps", "web", "/spec/replicas"), 1);
    }

    /// Makes a Deployment of two pods, and autoscalers of it.
    fn cluster_with_autoscalers(names: &[String]) -> super::super::testing::Cluster {
        let scaler = |name: &String| {
            format!(
                "
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}}}
spec: {{minReplicas: 1, maxReplicas: 10, scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}, metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 50}}}}}}]}}
"
            )
        };
        cluster(&format!(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec: {{replicas: 2, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 100m}}}}}}]}}}}}}
{}",
            names.iter().map(scaler).collect::<String>()
        ))
    }

    #[test]
    fn message_about_many_autoscalers_of_one_target_names_ten() {
        let names: Vec<String> = (10..22).map(|number| format!("a{number}")).collect();
        let mut cluster = cluster_with_autoscalers(&names);
        cluster.settle();
        use_cpu(&mut cluster, 100);
        cluster.pass(40);
        let named: Vec<String> = names[..10].iter().map(|name| format!("default/{name}")).collect();
        let message =
            format!("pods by selector app=web are controlled by multiple HPAs: [{} and 2 more]", named.join(" "));
        assert!(cluster.logged(&format!("event: AmbiguousSelector {message}")), "{message}");
    }

    #[test]
    fn measured_pod_wakes_the_autoscalers_that_wait_for_it() {
        let mut cluster = cluster_with_autoscalers(&["a".into(), "b".into()]);
        cluster.settle();
        use_cpu(&mut cluster, 100);
        let pod = cluster.world.list("pods").next().unwrap().key.clone();
        let woken = |cluster: &super::super::testing::Cluster| {
            let keys = super::reports(&cluster.world, &crate::world::AppliedReport::Usage(pod.clone()));
            keys.iter().map(|key| key.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        cluster.pass(40);
        assert_eq!(woken(&cluster), "", "all have drawn their conclusions");
        let uid = cluster.world.list(super::ROOT).next().unwrap().uid.clone();
        cluster.world.loop_memory.autoscalers.get_mut(&uid).unwrap().asked = Some(cluster.world.now);
        assert_eq!(woken(&cluster), "a");
    }

    #[test]
    fn two_autoscalers_of_one_target_scale_nothing() {
        let mut cluster = cluster_with_autoscalers(&["a".into(), "b".into()]);
        let hpa = "horizontalpodautoscalers.autoscaling";
        cluster.settle();
        use_cpu(&mut cluster, 100);
        cluster.pass(40);
        let message = "pods by selector app=web are controlled by multiple HPAs: [default/a default/b]";
        for name in ["a", "b"] {
            let conditions = cluster.conditions(hpa, name);
            assert!(conditions.contains("ScalingActive=False AmbiguousSelector"), "{conditions}");
        }
        for reason in ["AmbiguousSelector", "FailedComputeMetricsReplicas"] {
            assert!(cluster.logged(&format!("event: {reason} {message}")), "{reason}");
        }
        assert_eq!(cluster.value("deployments.apps", "web", "/spec/replicas"), 2);
        cluster.delete(hpa, "b", crate::world::Propagation::Background);
        cluster.pass(40);
        assert_eq!(cluster.value("deployments.apps", "web", "/spec/replicas"), 4);
    }
}
