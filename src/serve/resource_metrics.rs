//! Measurements of pods and nodes, for `kloop top` and `metrics.k8s.io`: two samples a moment apart make a rate.
//!
//! Never: keeps a sample. A caller waits for [`WINDOW`].

use crate::object::{Object, Time};
use crate::reconcile::node::{LOCAL, RUNTIME};
use crate::runtime::usage;
use crate::world::usage::{Usage, UsageSample};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Between the two samples.
pub const WINDOW: Duration = Duration::from_millis(500);

/// Usage of the containers of a pod, by name.
pub type MeasuredContainers = Vec<(String, Usage)>;

/// Measures, waits a moment, and measures again; each with its time.
fn sample_twice<T>(sample: impl Fn() -> T) -> [(Time, T); 2] {
    let first = (Time::now(), sample());
    std::thread::sleep(WINDOW);
    [first, (Time::now(), sample())]
}

/// Measures pods; those that do not run on this machine have no containers.
pub fn measure_pods(state: &Path, pods: &[Object]) -> Vec<MeasuredContainers> {
    let pods: Vec<&Object> = pods.iter().collect();
    rate_pods(sample_twice(|| sample_pods(state, &pods)))
}

type PodSamples = Vec<BTreeMap<String, UsageSample>>;

fn sample_pods(state: &Path, pods: &[&Object]) -> PodSamples {
    pods.iter().map(|pod| usage::sample_pod(state, pod.local_uid())).collect()
}

fn rate_pods([(before, first), (after, second)]: [(Time, PodSamples); 2]) -> Vec<MeasuredContainers> {
    let rows = first.iter().zip(second);
    let rates = rows.map(|(first, second)| {
        let rate = |(name, later): (String, UsageSample)| {
            // One that has begun meanwhile began with nothing.
            let earlier = first.get(&name).copied().unwrap_or_default();
            let usage = Usage::from_samples((before, earlier), (after, later.not_before(earlier)))?;
            Some((name, usage))
        };
        second.into_iter().filter_map(rate).collect()
    });
    rates.collect()
}

/// Measures nodes, by name: this machine, and nodes that share it by their pods. Nothing is known of simulated ones.
pub fn measure_nodes(state: Option<&Path>, nodes: &[Object], pods: &[Object]) -> BTreeMap<String, Usage> {
    let is_added = |name: &str| nodes.iter().any(|node| node.name() == name && node.annotation(RUNTIME) == Some(LOCAL));
    let node_of = |pod: &Object| pod.text(&["spec", "nodeName"]).unwrap_or_default().to_owned();
    let own: Vec<&Object> = pods.iter().filter(|pod| is_added(&node_of(pod))).collect();
    let sample = || (usage::sample_machine(), state.map_or_else(Vec::new, |state| sample_pods(state, &own)));
    let [(before, (machine, first)), (after, (later, second))] = sample_twice(sample);
    let mut found = BTreeMap::new();
    let machine = machine.zip(later).and_then(|(first, later)| Usage::from_samples((before, first), (after, later)));
    for node in nodes {
        let usage = match node.annotation(RUNTIME) {
            None => machine,
            Some(LOCAL) => Some(Usage::default()),
            Some(_) => None,
        };
        found.extend(usage.map(|usage| (node.name().to_owned(), usage)));
    }
    for (pod, containers) in own.iter().zip(rate_pods([(before, first), (after, second)])) {
        let sum = found.get_mut(&node_of(pod));
        sum.into_iter().for_each(|sum| containers.iter().for_each(|(_, usage)| sum.add(*usage)));
    }
    found
}
