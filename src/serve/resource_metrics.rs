//! Measurements of pods and nodes, for `kloop top` and `metrics.k8s.io`: two samples a moment apart make a rate.
//!
//! Never: keeps a sample. A caller waits for [`WINDOW`].

use super::remote_stats::{NodeSample, RemoteKubelets};
use crate::object::{Object, Time};
use crate::reconcile::node::{LOCAL, RUNTIME};
use crate::runtime::usage;
use crate::world::usage::{Usage, UsageSample};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

/// Time between the two samples of a rate.
pub const WINDOW: Duration = Duration::from_millis(500);

/// Usage of the containers of a pod, by name.
pub type MeasuredContainers = Vec<(String, Usage)>;

/// Measures, waits a moment, and measures again; each with its time.
fn sample_twice<T>(sample: impl Fn() -> T) -> [(Time, T); 2] {
    let first = (Time::now(), sample());
    std::thread::sleep(WINDOW);
    [first, (Time::now(), sample())]
}

/// Measures pods; those that do not run have no containers.
pub fn measure_pods(state: &Path, kubelets: &RemoteKubelets, pods: &[Object]) -> Vec<MeasuredContainers> {
    let pods: Vec<&Object> = pods.iter().collect();
    let [(_, first), (_, second)] = sample_twice(|| sample_pods(state, &kubelets.sample(), &pods));
    rate_pods(first, second)
}

/// Samples of the containers of pods, each with its time.
type PodSamples = Vec<(Time, BTreeMap<String, UsageSample>)>;

fn sample_pods(state: &Path, remote: &HashMap<String, NodeSample>, pods: &[&Object]) -> PodSamples {
    let sample = |pod: &&Object| match remote.get(node_of(pod)) {
        Some(node) => (node.at, node.pods.get(pod.uid()).cloned().unwrap_or_default()),
        None => (Time::now(), usage::sample_pod(state, pod.local_uid())),
    };
    pods.iter().map(sample).collect()
}

fn node_of(pod: &Object) -> &str {
    pod.text(&["spec", "nodeName"]).unwrap_or_default()
}

fn rate_pods(first: PodSamples, second: PodSamples) -> Vec<MeasuredContainers> {
    let rates = first.iter().zip(second).map(|((before, first), (after, second))| {
        let rate = |(name, later): (String, UsageSample)| {
            // A container that started after the first sample began with zero usage.
            let earlier = first.get(&name).copied().unwrap_or_default();
            let usage = Usage::from_samples((*before, earlier), (after, later.not_before(earlier)))?;
            Some((name, usage))
        };
        second.into_iter().filter_map(rate).collect()
    });
    rates.collect()
}

/// Measures nodes, by name: this machine, nodes that share it by their pods, and nodes on other machines. Nothing is known of simulated
/// ones.
pub fn measure_nodes(
    state: Option<&Path>,
    kubelets: &RemoteKubelets,
    nodes: &[Object],
    pods: &[Object],
) -> BTreeMap<String, Usage> {
    let is_added = |name: &str| nodes.iter().any(|node| node.name() == name && node.annotation(RUNTIME) == Some(LOCAL));
    let own: Vec<&Object> = pods.iter().filter(|pod| is_added(node_of(pod))).collect();
    let local = HashMap::new();
    let sample = || {
        let pods = state.map_or_else(Vec::new, |state| sample_pods(state, &local, &own));
        (usage::sample_machine(), pods, kubelets.sample())
    };
    let [(before, (machine, first, remote)), (after, (later, second, later_remote))] = sample_twice(sample);
    let mut found = BTreeMap::new();
    let machine = machine.zip(later).and_then(|(first, later)| Usage::from_samples((before, first), (after, later)));
    for node in nodes {
        let usage = match node.annotation(RUNTIME) {
            None if kubelets.is_remote(node.name()) => {
                let samples = remote.get(node.name()).zip(later_remote.get(node.name()));
                samples.and_then(|(first, later)| Usage::from_samples((first.at, first.node), (later.at, later.node)))
            }
            None => machine,
            Some(LOCAL) => Some(Usage::default()),
            Some(_) => None,
        };
        found.extend(usage.map(|usage| (node.name().to_owned(), usage)));
    }
    for (pod, containers) in own.iter().zip(rate_pods(first, second)) {
        let sum = found.get_mut(node_of(pod));
        sum.into_iter().for_each(|sum| containers.iter().for_each(|(_, usage)| sum.add(*usage)));
    }
    found
}
