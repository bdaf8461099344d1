//! Metrics of an autoscaler: the replicas that each one proposes, and the combined result.

use super::replicas::{MeasuredResource, ReplicaProposal, ResourceTarget, propose};
use crate::object::{Object, Quantity};
use crate::world::{Row, World};
use serde_json::{Value, json};
use std::sync::Arc;

/// A metric that is not available.
#[derive(Debug)]
pub struct MissingMetric {
    /// Reason of the condition and the event.
    pub reason: &'static str,
    /// Message of the condition and the event.
    pub message: String,
    /// Name of the value in the event about the whole evaluation, such as `cpu resource metric value`.
    pub value: String,
}

/// A failed evaluation: no size follows from the metrics.
pub struct FailedEvaluation {
    /// The first unavailable metric.
    pub first: MissingMetric,
    /// Number of unavailable metrics.
    pub count: usize,
    /// `status.currentMetrics`.
    pub current: Vec<Value>,
}

/// Combined result of all metrics.
pub struct MetricsResult {
    /// The proposed size.
    pub replicas: i64,
    /// The metric that proposed it, as Kubernetes describes it.
    pub by: String,
    /// `status.currentMetrics`.
    pub current: Vec<Value>,
    /// The first unavailable metric, and the number of unavailable ones.
    pub silent: Option<(MissingMetric, usize)>,
}

/// Evaluates every metric and takes the largest size. While a metric is unavailable, the workload is not scaled down;
/// when all are, it is not scaled at all.
pub fn evaluate_metrics(
    world: &World,
    hpa: &Object,
    pods: &[Arc<Row>],
    current: i64,
) -> Result<MetricsResult, FailedEvaluation> {
    let metrics = hpa.items(&["spec", "metrics"]);
    let mut verdict = MetricsResult { replicas: 0, by: String::new(), current: Vec::new(), silent: None };
    let mut silent = 0;
    for metric in metrics {
        match evaluate_metric(world, hpa, pods, metric, current) {
            Ok((proposal, name)) => {
                verdict.current.push(status(metric, &proposal));
                if verdict.by.is_empty() || proposal.replicas > verdict.replicas {
                    (verdict.replicas, verdict.by) = (proposal.replicas, name);
                }
            }
            Err(why) => {
                silent += 1;
                verdict.current.push(json!({"type": ""}));
                let first = verdict.silent.take().map_or(why, |(first, _)| first);
                verdict.silent = Some((first, silent));
            }
        }
    }
    match verdict.silent.take() {
        Some((first, count)) if silent >= metrics.len() || verdict.replicas < current => {
            Err(FailedEvaluation { first, count, current: verdict.current })
        }
        first => Ok(MetricsResult { silent: first, ..verdict }),
    }
}

fn evaluate_metric(
    world: &World,
    hpa: &Object,
    pods: &[Arc<Row>],
    metric: &Value,
    current: i64,
) -> Result<(ReplicaProposal, String), MissingMetric> {
    let (part, reason, word) = match metric["type"].as_str().unwrap_or_default() {
        "Resource" => ("resource", "FailedGetResourceMetric", "resource"),
        "ContainerResource" => ("containerResource", "FailedGetContainerResourceMetric", "container resource"),
        other => return Err(not_served(metric, other)),
    };
    let source = &metric[part];
    let resource = source["name"].as_str().unwrap_or_default();
    let value = match source["container"].as_str() {
        Some(container) => format!("{container} container metric value"),
        None => format!("{resource} resource metric value"),
    };
    let measured = MeasuredResource { resource, container: source["container"].as_str() };
    let target = &source["target"];
    let (target, name, what) = match target["averageUtilization"].as_i64() {
        Some(percent) => (
            ResourceTarget::Utilization(percent),
            format!("{resource} {word} utilization (percentage of request)"),
            "utilization",
        ),
        None => {
            let amount =
                target["averageValue"].as_str().and_then(|text| Quantity::parse(text).ok()).unwrap_or_default();
            let value = if resource == "cpu" { amount.milli() } else { amount.value() };
            (ResourceTarget::AverageValue(value), format!("{resource} {word}"), "usage")
        }
    };
    if !matches!(resource, "cpu" | "memory") {
        let message = format!(
            "failed to get {resource} {what}: unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
        );
        return Err(MissingMetric { reason, message, value });
    }
    let failed = |why| MissingMetric { reason, message: format!("failed to get {resource} {what}: {why}"), value };
    Ok((propose(world, hpa, pods, measured, target, current).map_err(failed)?, name))
}

/// Reports a metric from an adapter (custom or external metrics), which kloop does not have.
fn not_served(metric: &Value, kind: &str) -> MissingMetric {
    let (part, reason, api) = match kind {
        "Pods" => ("pods", "FailedGetPodsMetric", "custom"),
        "Object" => ("object", "FailedGetObjectMetric", "custom"),
        "External" => ("external", "FailedGetExternalMetric", "external"),
        other => {
            return MissingMetric {
                reason: "InvalidMetricSourceType",
                message: format!("unknown metric source type {other:?}"),
                value: String::new(),
            };
        }
    };
    let name = metric[part]["metric"]["name"].as_str().unwrap_or_default();
    let value = match part {
        "external" => format!("{name} external metric value"),
        part => format!("{part} metric value"),
    };
    let message = format!(
        "unable to get metric {name}: unable to fetch metrics from {api} metrics API: no {api} metrics API registered"
    );
    MissingMetric { reason, message, value }
}

/// An entry of `status.currentMetrics`.
fn status(metric: &Value, proposal: &ReplicaProposal) -> Value {
    let kind = metric["type"].as_str().unwrap_or_default();
    let part = if kind == "Resource" { "resource" } else { "containerResource" };
    let name = &metric[part]["name"];
    let average =
        if name == "cpu" { Quantity::from_milli(proposal.average) } else { Quantity::from_int(proposal.average) };
    let mut current = json!({"averageValue": average.to_string()});
    if let Some(percent) = proposal.utilization {
        current["averageUtilization"] = percent.into();
    }
    let mut entry = json!({"name": name, "current": current});
    if part == "containerResource" {
        entry["container"] = metric[part]["container"].clone();
    }
    json!({"type": kind, part: entry})
}
