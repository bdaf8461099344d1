//! Resources in the scheduler's units: requests of pods, allocatable resources of nodes.

use super::policy::Cidr;
use super::taint::Taint;
use crate::kinds::node::internal_addresses;
use crate::object::quantity::Quantity;
use crate::object::{Object, Str};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// CPU that a container without a request counts as when nodes are scored (Kubernetes: DefaultMilliCPURequest).
const SCORED_CPU_MILLI: i64 = 100;

/// Memory that a container without a request counts as when nodes are scored (Kubernetes: DefaultMemoryRequest, 200 MiB).
const SCORED_MEMORY: i64 = 200 * 1024 * 1024;

/// Resources asked for, as Kubernetes counts them (init containers, sidecars and overhead included).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceRequests {
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral: i64,
    /// Extended resources by name.
    pub others: BTreeMap<Str, i64>,
    /// CPU as the scheduler scores it.
    pub scored_cpu_milli: i64,
    /// Memory as the scheduler scores it.
    pub scored_memory: i64,
}

impl ResourceRequests {
    /// Maximum of each amount, of nodes too: 2^50 bytes are a pebibyte. Larger ones count as this much, so that the sum of a node's pods
    /// cannot overflow.
    pub const MAX_AMOUNT: i64 = 1 << 50;

    /// Returns the effective requests of a pod: the larger of the sum of its containers and the peak of its init
    /// containers, plus overhead; pod-level requests take precedence where they are set.
    pub fn for_pod(pod: &Object) -> ResourceRequests {
        let mut total = ResourceRequests::default();
        for container in pod.items(&["spec", "containers"]) {
            total.add(&ResourceRequests::for_container(container));
        }
        let mut sidecars = ResourceRequests::default();
        let mut peak = ResourceRequests::default();
        for container in pod.items(&["spec", "initContainers"]) {
            let own = ResourceRequests::for_container(container);
            peak.raise_to_sum(&sidecars, &own);
            if container["restartPolicy"] == "Always" {
                sidecars.add(&own);
            }
        }
        total.add(&sidecars);
        total.raise(&peak);
        if let Some(whole) = pod.value_at(&["spec", "resources", "requests"]) {
            total.replace(whole);
        }
        if let Some(overhead) = pod.value_at(&["spec", "overhead"]) {
            total.add(&ResourceRequests::from_list(overhead));
        }
        total.each(|amount| *amount = (*amount).min(ResourceRequests::MAX_AMOUNT));
        total
    }

    /// Returns the amount of one resource; that of CPU is in thousandths of a core.
    pub fn amount(&self, resource: &str) -> i64 {
        match resource {
            "cpu" => self.cpu_milli,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral,
            other => self.others.get(other).copied().unwrap_or(0),
        }
    }

    /// Changes each amount.
    fn each(&mut self, change: impl Fn(&mut i64)) {
        let own = [
            &mut self.cpu_milli,
            &mut self.memory,
            &mut self.ephemeral,
            &mut self.scored_cpu_milli,
            &mut self.scored_memory,
        ];
        own.into_iter().chain(self.others.values_mut()).for_each(change);
    }

    /// Changes each amount by another's of the same resource.
    fn combine(&mut self, other: &ResourceRequests, combine: impl Fn(i64, i64) -> i64) {
        self.cpu_milli = combine(self.cpu_milli, other.cpu_milli);
        self.memory = combine(self.memory, other.memory);
        self.ephemeral = combine(self.ephemeral, other.ephemeral);
        self.scored_cpu_milli = combine(self.scored_cpu_milli, other.scored_cpu_milli);
        self.scored_memory = combine(self.scored_memory, other.scored_memory);
        for (name, amount) in &other.others {
            match self.others.get_mut(name) {
                Some(own) => *own = combine(*own, *amount),
                None => _ = self.others.insert(name.clone(), combine(0, *amount)),
            }
        }
    }

    fn for_container(container: &Value) -> ResourceRequests {
        let mut own = ResourceRequests::from_list(&container["resources"]["requests"]);
        let asks = |name: &str| !container["resources"]["requests"][name].is_null();
        own.scored_cpu_milli = if asks("cpu") { own.cpu_milli } else { SCORED_CPU_MILLI };
        own.scored_memory = if asks("memory") { own.memory } else { SCORED_MEMORY };
        own
    }

    /// A resource list: names and quantities.
    pub fn from_list(list: &Value) -> ResourceRequests {
        let mut own = ResourceRequests::default();
        for (name, quantity) in list.as_object().into_iter().flatten() {
            let quantity =
                quantity.as_str().and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::from_int(0));
            match name.as_str() {
                "cpu" => own.cpu_milli = quantity.milli(),
                "memory" => own.memory = quantity.value(),
                "ephemeral-storage" => own.ephemeral = quantity.value(),
                "pods" => {}
                other => {
                    own.others.insert(other.into(), quantity.value());
                }
            }
        }
        (own.scored_cpu_milli, own.scored_memory) = (own.cpu_milli, own.memory);
        own.each(|amount| *amount = (*amount).min(ResourceRequests::MAX_AMOUNT));
        own
    }

    /// Adds another's.
    pub fn add(&mut self, other: &ResourceRequests) {
        self.combine(other, i64::saturating_add);
    }

    /// Whether `offered` covers these requests in addition to `used`.
    pub fn fit_beside(&self, used: &ResourceRequests, offered: &ResourceRequests) -> bool {
        let enough = |wanted: i64, used: i64, offered: i64| wanted <= 0 || wanted <= offered.saturating_sub(used);
        let of = |list: &ResourceRequests, name: &Str| list.others.get(name).copied().unwrap_or(0);
        enough(self.cpu_milli, used.cpu_milli, offered.cpu_milli)
            && enough(self.memory, used.memory, offered.memory)
            && enough(self.ephemeral, used.ephemeral, offered.ephemeral)
            && self.others.iter().all(|(name, wanted)| enough(*wanted, of(used, name), of(offered, name)))
    }

    /// Takes another's away, which was added before.
    pub fn subtract(&mut self, other: &ResourceRequests) {
        self.combine(other, i64::saturating_sub);
        self.others.retain(|_, amount| *amount != 0);
    }

    /// Raises each to at least another's.
    fn raise(&mut self, other: &ResourceRequests) {
        self.combine(other, i64::max);
    }

    /// Raises each to at least the sum of two others, of which the first has been covered before: only resources of the second can change.
    fn raise_to_sum(&mut self, base: &ResourceRequests, more: &ResourceRequests) {
        let mut sum = more.clone();
        for (name, amount) in &mut sum.others {
            *amount = amount.saturating_add(base.others.get(name).copied().unwrap_or(0));
        }
        let plain = ResourceRequests { others: BTreeMap::new(), ..*base };
        sum.add(&plain);
        self.raise(&sum);
    }

    fn replace(&mut self, list: &Value) {
        let whole = ResourceRequests::from_list(list);
        if !list["cpu"].is_null() {
            (self.cpu_milli, self.scored_cpu_milli) = (whole.cpu_milli, whole.cpu_milli);
        }
        if !list["memory"].is_null() {
            (self.memory, self.scored_memory) = (whole.memory, whole.memory);
        }
    }
}

/// Sum of the requests of a node's pods that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    /// Their requests.
    pub requests: ResourceRequests,
    /// Their number.
    pub pods: i64,
}

impl NodeLoad {
    /// Counts a pod with these requests.
    pub fn add(&mut self, requests: &ResourceRequests) {
        self.requests.add(requests);
        self.pods += 1;
    }

    /// Counts a pod with these requests no more.
    pub fn subtract(&mut self, requests: &ResourceRequests) {
        self.requests.subtract(requests);
        self.pods -= 1;
    }
}

/// Index fields of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFields {
    /// `status.allocatable`.
    pub allocatable: ResourceRequests,
    /// `status.allocatable.pods`.
    pub pods: i64,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Condition Ready: True, False, or unknown to the node controller.
    pub ready: Option<bool>,
    /// The address of type InternalIP in `status.addresses`.
    pub address: Option<Str>,
    /// Annotation [`RUNTIME`].
    pub runtime: Option<Str>,
    /// Annotation [`STOPPED`].
    pub stopped: Option<Str>,
    /// Whether a machine has joined as this node: annotation [`MACHINE`].
    pub is_joined: bool,
    /// `spec.podCIDR`: the block of its pods' addresses.
    pub pod_cidr: Option<Cidr>,
    /// Annotation [`LINK`]: where its machine accepts links to the pods of other machines.
    pub link: Option<SocketAddr>,
    /// `status.images`: the size of each, by each of its names.
    pub images: BTreeMap<Str, i64>,
}

/// Annotation that selects how a node runs its pods.
pub const RUNTIME: &str = "kloop.dev/runtime";

/// Value of [`RUNTIME`] for a simulated node, whose pods run no processes.
pub const SIMULATED: &str = "simulated";

/// Annotation with the time at which a user has stopped a node, which ends its heartbeats.
pub const STOPPED: &str = "kloop.dev/stopped";

/// Annotation with the identity of the machine that has joined as a node.
pub const MACHINE: &str = "kloop.dev/machine";

/// Annotation with the address and port at which the machine of a node accepts links of other machines.
pub const LINK: &str = "kloop.dev/node-link";

impl NodeFields {
    /// Reads them from a node.
    pub fn from_node(node: &Object) -> NodeFields {
        let allocatable = node.value_at(&["status", "allocatable"]).unwrap_or(&Value::Null);
        let pods = allocatable["pods"].as_str().and_then(|text| Quantity::parse(text).ok()).map_or(0, Quantity::value);
        let ready = node.condition("Ready");
        NodeFields {
            allocatable: ResourceRequests::from_list(allocatable),
            pods,
            taints: node.items(&["spec", "taints"]).iter().map(Taint::read).collect(),
            unschedulable: node.value_at(&["spec", "unschedulable"]).is_some_and(|value| value == true),
            address: internal_addresses(node).next().map(Str::from),
            runtime: node.annotation(RUNTIME).map(Str::from),
            stopped: node.annotation(STOPPED).map(Str::from),
            is_joined: node.annotation(MACHINE).is_some(),
            pod_cidr: node.text(&["spec", "podCIDR"]).and_then(|block| block.parse().ok()),
            link: node.annotation(LINK).and_then(|address| address.parse().ok()),
            images: images(node),
            ready: ready.and_then(|one| match one["status"].as_str() {
                Some("True") => Some(true),
                Some("False") => Some(false),
                _ => None,
            }),
        }
    }
}

fn images(node: &Object) -> BTreeMap<Str, i64> {
    let named = |image: &Value| {
        let size = image["sizeBytes"].as_i64().unwrap_or(0);
        let names = image["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| (Str::from(name), size)).collect::<Vec<_>>()
    };
    node.items(&["status", "images"]).iter().flat_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pod_requests_the_larger_of_its_phases() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}});
        let pod = |init: Value| {
            Object(json!({"spec": {
                "containers": [container("100m"), container("200m")], "initContainers": init, "overhead": {"cpu": "10m"},
            }}))
        };
        assert_eq!(ResourceRequests::for_pod(&pod(json!([]))).cpu_milli, 310);
        assert_eq!(ResourceRequests::for_pod(&pod(json!([container("1")]))).cpu_milli, 1010);
        assert_eq!(ResourceRequests::for_pod(&pod(json!([sidecar]))).cpu_milli, 360);
        let early_sidecar = json!([sidecar, container("1")]);
        assert_eq!(ResourceRequests::for_pod(&pod(early_sidecar)).cpu_milli, 1060);
    }

    #[test]
    fn sums_of_huge_requests_do_not_overflow() {
        let huge = json!({"resources": {"requests": {"cpu": "9000000000000000", "memory": "7E", "a.b/c": "7E"}}});
        let pod = Object(json!({"spec": {"containers": vec![huge.clone(); 100], "initContainers": vec![huge; 100]}}));
        let requests = ResourceRequests::for_pod(&pod);
        let amounts = ["cpu", "memory", "a.b/c"].map(|name| requests.amount(name));
        assert_eq!(amounts, [ResourceRequests::MAX_AMOUNT; 3]);
        let mut load = NodeLoad::default();
        (0..1000).for_each(|_| load.add(&requests));
        assert!(
            !ResourceRequests::for_container(&json!({"resources": {"requests": {"memory": "1"}}}))
                .fit_beside(&load.requests, &ResourceRequests { memory: 1 << 40, ..ResourceRequests::default() })
        );
        (0..1000).for_each(|_| load.subtract(&requests));
        assert_eq!(load, NodeLoad::default());
    }

    #[test]
    fn containers_without_requests_are_scored_as_if_they_had_some() {
        let pod = Object(json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}));
        let requests = ResourceRequests::for_pod(&pod);
        assert_eq!((requests.cpu_milli, requests.scored_cpu_milli), (0, 200));
        assert_eq!(requests.scored_memory, 400 * 1024 * 1024);
    }
}
