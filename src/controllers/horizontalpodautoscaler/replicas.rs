//! Computes the replicas that a metric proposes (Kubernetes: replica_calculator.go).

use super::behavior::tolerance;
use crate::object::time::Shift;
use crate::object::{Object, Time, time};
use crate::world::facts::PodFacts;
use crate::world::{Phase, Row, World};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time after its start in which a pod that is not ready is ignored (Kubernetes' cpu-initialization-period).
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);
/// Time after its start in which a pod counts as never ready (initial-readiness-delay).
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// The measured resource, of one container or of all.
#[derive(Clone, Copy)]
pub struct MeasuredResource<'a> {
    /// `cpu` or `memory`.
    pub resource: &'a str,
    /// `containerResource.container`.
    pub container: Option<&'a str>,
}

/// The target of a metric.
#[derive(Clone, Copy, Debug)]
pub enum ResourceTarget {
    /// Percent of the pods' requests.
    Utilization(i64),
    /// Thousandths of a core, or bytes, for each pod.
    AverageValue(i64),
}

/// Result of one metric.
#[derive(Debug, PartialEq, Eq)]
pub struct ReplicaProposal {
    /// Proposed size.
    pub replicas: i64,
    /// Average utilization in percent of the requests.
    pub utilization: Option<i64>,
    /// Average usage in thousandths of a core, or bytes.
    pub average: i64,
}

/// The pods of a workload, grouped by readiness and metrics.
#[derive(Default)]
struct PodGroups {
    /// Usage of each pod that counts.
    metrics: BTreeMap<String, i64>,
    ready: i64,
    /// Pods that are not ready yet, whose usage is ignored.
    unready: Vec<String>,
    /// Pods without metrics.
    missing: Vec<String>,
}

/// Returns the size that a metric proposes, or Kubernetes' message when the metric is not available.
pub fn propose(
    world: &World,
    hpa: &Object,
    pods: &[Arc<Row>],
    measured: MeasuredResource,
    target: ResourceTarget,
    current: i64,
) -> Result<ReplicaProposal, String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".into());
    }
    let bodies: Vec<(Arc<Row>, Object)> = pods.iter().map(|row| (row.clone(), row.object())).collect();
    if !bodies.iter().any(|(row, _)| usage(world.facts.pods.get(&row.uid), measured).is_some()) {
        let resource = measured.resource;
        return Err(format!(
            "unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
        ));
    }
    let mut groups = group(world, &bodies, measured);
    let requests = match target {
        ResourceTarget::Utilization(_) => requests(&bodies, measured)?,
        ResourceTarget::AverageValue(_) => BTreeMap::new(),
    };
    if groups.metrics.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".into());
    }
    let known = groups.metrics.clone();
    let ratio = |metrics: &BTreeMap<String, i64>| ratio(metrics, &requests, target);
    let first = ratio(&known)?;
    let (average, utilization) = averages(&known, &requests, target);
    let proposal = |replicas| ReplicaProposal { replicas, utilization, average };
    let settled = |ratio: f64| (ratio - 1.0).abs() <= tolerance(hpa, ratio > 1.0);
    let counts_unready = !groups.unready.is_empty() && first > 1.0;
    if !counts_unready && groups.missing.is_empty() {
        let replicas = if settled(first) { current } else { (first * groups.ready as f64).ceil() as i64 };
        return Ok(proposal(replicas));
    }
    let request = |pod: &String| requests.get(pod).copied().unwrap_or(0);
    // Pods without metrics get the value that counteracts scaling.
    for pod in std::mem::take(&mut groups.missing) {
        let assumed = match target {
            _ if first >= 1.0 => 0,
            ResourceTarget::Utilization(percent) => percent_of(request(&pod), percent.max(100)),
            ResourceTarget::AverageValue(value) => value,
        };
        groups.metrics.insert(pod, assumed);
    }
    if counts_unready {
        groups.metrics.extend(groups.unready.iter().map(|pod| (pod.clone(), 0)));
    }
    let second = ratio(&groups.metrics)?;
    let replicas = (second * groups.metrics.len() as f64).ceil() as i64;
    let turns = (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0);
    let contradicts = (second < 1.0 && replicas > current) || (second > 1.0 && replicas < current);
    Ok(proposal(if settled(second) || turns || contradicts { current } else { replicas }))
}

fn ratio(
    metrics: &BTreeMap<String, i64>,
    requests: &BTreeMap<String, i64>,
    target: ResourceTarget,
) -> Result<f64, String> {
    let used = total(metrics.values());
    let (all, target) = match target {
        ResourceTarget::Utilization(percent) => {
            (total(metrics.keys().filter_map(|pod| requests.get(pod))), percent as f64 / 100.0)
        }
        ResourceTarget::AverageValue(value) => (metrics.len() as i64, value as f64),
    };
    if all == 0 || target <= 0.0 {
        return Err("no metrics returned matched known pods".into());
    }
    // Kubernetes truncates utilization to a whole percentage.
    let usage = used as f64 / all as f64;
    Ok(usage / target)
}

fn averages(
    metrics: &BTreeMap<String, i64>,
    requests: &BTreeMap<String, i64>,
    target: ResourceTarget,
) -> (i64, Option<i64>) {
    let used = total(metrics.values());
    let average = used / (metrics.len() as i64).max(1);
    let requested = total(metrics.keys().filter_map(|pod| requests.get(pod)));
    let is_utilization = matches!(target, ResourceTarget::Utilization(_));
    (average, is_utilization.then(|| used.saturating_mul(100) / requested.max(1)))
}

/// The sum of amounts, which users choose: the largest number instead of an overflow.
fn total<'a>(amounts: impl Iterator<Item = &'a i64>) -> i64 {
    amounts.fold(0, |sum, amount| sum.saturating_add(*amount))
}

fn percent_of(amount: i64, percent: i64) -> i64 {
    let product = i128::from(amount) * i128::from(percent) / 100;
    i64::try_from(product).unwrap_or(i64::MAX)
}

fn group(world: &World, pods: &[(Arc<Row>, Object)], measured: MeasuredResource) -> PodGroups {
    let mut groups = PodGroups::default();
    for (row, body) in pods {
        let name = row.key.name.to_string();
        let phase = row.pod().map(|fields| fields.phase);
        if row.is_deleting() || phase == Some(Phase::Failed) {
            continue;
        }
        let facts = world.facts.pods.get(&row.uid);
        match usage(facts, measured) {
            _ if phase == Some(Phase::Pending) => groups.unready.push(name),
            None => groups.missing.push(name),
            Some(_) if measured.resource == "cpu" && is_unready(world.now, body, facts) => groups.unready.push(name),
            Some(used) => {
                groups.ready += 1;
                groups.metrics.insert(name, used);
            }
        }
    }
    groups
}

/// Whether a pod's CPU usage is still affected by its start.
fn is_unready(now: Time, pod: &Object, facts: Option<&PodFacts>) -> bool {
    let moment = |text: Option<&str>| text.and_then(|text| time::parse_rfc3339(text).ok());
    let Some(ready) = pod.condition("Ready") else { return true };
    let Some(start) = moment(pod.text(&["status", "startTime"])) else { return true };
    let is_ready = ready["status"] == "True";
    let turned = moment(ready["lastTransitionTime"].as_str()).unwrap_or(start);
    if start.later(CPU_INITIALIZATION) > now {
        let began = facts.and_then(|facts| facts.usage.values().map(|usage| usage.since).max());
        return !is_ready || began.is_some_and(|began| began < turned);
    }
    !is_ready && start.later(INITIAL_READINESS) > turned
}

/// Returns the usage of a pod or one of its containers; `None` when any value is missing.
fn usage(facts: Option<&PodFacts>, measured: MeasuredResource) -> Option<i64> {
    let all = facts?.usage.iter().filter(|(name, _)| measured.container.is_none_or(|wanted| &***name == wanted));
    let amount = |usage: &crate::world::facts::ContainerUsage| match measured.resource {
        "cpu" => usage.usage.cpu_milli,
        _ => usage.usage.memory,
    };
    all.map(|(_, usage)| amount(usage)).reduce(i64::saturating_add)
}

/// Returns the requests of each pod; every container must have one.
fn requests(pods: &[(Arc<Row>, Object)], measured: MeasuredResource) -> Result<BTreeMap<String, i64>, String> {
    let mut requests = BTreeMap::new();
    for (row, body) in pods {
        let sidecars = body.items(&["spec", "initContainers"]).iter().filter(|one| one["restartPolicy"] == "Always");
        let mut sum = 0i64;
        for container in body.items(&["spec", "containers"]).iter().chain(sidecars) {
            let name = container["name"].as_str().unwrap_or_default();
            if measured.container.is_some_and(|wanted| wanted != name) {
                continue;
            }
            let text = container["resources"]["requests"][measured.resource].as_str();
            let Some(amount) = text.and_then(|text| crate::object::Quantity::parse(text).ok()) else {
                return Err(format!(
                    "missing request for {} in container {name} of Pod {}",
                    measured.resource, row.key.name
                ));
            };
            sum = sum.saturating_add(if measured.resource == "cpu" { amount.milli() } else { amount.value() });
        }
        requests.insert(row.key.name.to_string(), sum);
    }
    Ok(requests)
}
