//! Ranks pods for eviction: those above their requests first, then by lower priority, then by usage above the requests
//! (kubelet: rankMemoryPressure).

use crate::kinds::catalogue::typed;
use crate::kinds::pod::facts::{PodRequests, requests};
use crate::world::pressure::{EvictionThreshold, PressureSignal, ResourceLevel};
use crate::world::{PodFacts, Row};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use std::cmp::Reverse;

/// A pod that may have to go.
pub struct EvictionCandidate<'a> {
    /// The pod.
    pub row: &'a Row,
    /// Its spec, with requests.
    spec: PodSpec,
    /// Its facts.
    facts: &'a PodFacts,
}

impl<'a> EvictionCandidate<'a> {
    /// Reads a pod; `None` when its body cannot be decoded.
    pub fn read(row: &'a Row, facts: &'a PodFacts) -> Option<EvictionCandidate<'a>> {
        let spec = typed::view::<Pod>(&row.body()).ok()?.spec?;
        Some(EvictionCandidate { row, spec, facts })
    }

    /// Sort key: the smallest is evicted first. Only memory is measured for each pod; for other resources the priority counts, then the
    /// newest.
    fn sort_key(&self, signal: PressureSignal) -> (Reverse<bool>, i64, Reverse<i64>) {
        let priority = self.row.pod().map_or(0, |pod| i64::from(pod.priority));
        let beyond = match signal {
            PressureSignal::Memory => self.memory() - requests(&self.spec).memory,
            _ => self.row.created.map_or(0, |created| created.as_second()),
        };
        (Reverse(signal == PressureSignal::Memory && beyond > 0), priority, Reverse(beyond))
    }

    fn memory(&self) -> i64 {
        self.facts.usage.values().map(|one| one.usage.memory).sum()
    }

    /// The kubelet's message about its eviction.
    pub fn message(&self, line: EvictionThreshold, level: ResourceLevel) -> String {
        let (signal, resource) = (line.signal, line.signal.resource());
        let (drawn, left) = (signal.amount(line.amount.resolve(level.capacity)), signal.amount(level.available));
        let mut message =
            format!("The node was low on resource: {resource}. Threshold quantity: {drawn}, available: {left}. ");
        let containers = self.spec.containers.iter().filter(|_| signal == PressureSignal::Memory);
        containers.for_each(|one| message.push_str(&self.larger(one).unwrap_or_default()));
        message
    }

    fn larger(&self, container: &Container) -> Option<String> {
        let used = self.facts.usage.get(container.name.as_str())?.usage.memory;
        let requested =
            PodRequests::from_list(container.resources.as_ref().and_then(|all| all.requests.as_ref())).memory;
        let (name, signal) = (&container.name, PressureSignal::Memory);
        // The kubelet prints the usage in Ki.
        let (used_text, asked_text) = (signal.amount(used / 1024 * 1024), signal.amount(requested));
        let message = format!(
            "Container {name} was using {used_text}, request is {asked_text}, has larger consumption of memory. "
        );
        (used > requested).then_some(message)
    }
}

/// Returns the pod to evict first.
pub fn first<'a>(candidates: Vec<EvictionCandidate<'a>>, signal: PressureSignal) -> Option<EvictionCandidate<'a>> {
    candidates.into_iter().min_by_key(|one| (one.sort_key(signal), one.row.key.clone()))
}
