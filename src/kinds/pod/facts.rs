//! Derived properties of a pod: its requests, QoS class and conditions.

use crate::object::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// Effective requests of a pod, by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// Thousandths of a CPU.
    pub cpu_milli: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of ephemeral storage.
    pub ephemeral: i64,
    /// Whole units of every other resource.
    pub others: BTreeMap<String, i64>,
}

impl PodRequests {
    /// Reads the amounts of a resource list.
    pub fn from_list(list: Option<&BTreeMap<String, Text>>) -> PodRequests {
        let mut requests = PodRequests::default();
        for (name, text) in list.into_iter().flatten() {
            requests.put(name, Quantity::parse(&text.0).unwrap_or_default());
        }
        requests
    }

    fn put(&mut self, name: &str, amount: Quantity) {
        match name {
            "cpu" => self.cpu_milli = amount.milli(),
            "memory" => self.memory = amount.value(),
            "ephemeral-storage" => self.ephemeral = amount.value(),
            other => drop(self.others.insert(other.to_owned(), amount.value())),
        }
    }

    /// Adds other amounts.
    pub fn add(&mut self, other: &PodRequests) {
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory = self.memory.saturating_add(other.memory);
        self.ephemeral = self.ephemeral.saturating_add(other.ephemeral);
        for (name, amount) in &other.others {
            let sum = self.others.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Raises each amount to the other one if that is larger.
    pub fn raise(&mut self, other: &PodRequests) {
        self.cpu_milli = self.cpu_milli.max(other.cpu_milli);
        self.memory = self.memory.max(other.memory);
        self.ephemeral = self.ephemeral.max(other.ephemeral);
        for (name, amount) in &other.others {
            let most = self.others.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }

    /// One amount as a quantity; `None` when it is zero.
    pub fn quantity(&self, name: &str) -> Option<Text> {
        let amount = match name {
            "cpu" => Quantity::from_milli(self.cpu_milli),
            "memory" => Quantity::from_bytes(self.memory),
            "ephemeral-storage" => Quantity::from_bytes(self.ephemeral),
            other => Quantity::from_int(self.others.get(other).copied().unwrap_or(0)),
        };
        (!amount.is_zero()).then(|| Text(amount.to_string()))
    }
}

/// Whether an init container is a sidecar, which keeps running while the containers run.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Computes a pod's effective requests: those of its containers, or pod-level requests, which take precedence. Adds the
/// overhead.
pub fn requests(spec: &PodSpec) -> PodRequests {
    let mut total = container_requests(spec);
    for (name, text) in spec.resources.iter().filter_map(|all| all.requests.as_ref()).flatten() {
        total.put(name, Quantity::parse(&text.0).unwrap_or_default());
    }
    total.add(&PodRequests::from_list(spec.overhead.as_ref()));
    total
}

/// Computes the sum of the requests of a pod's containers and sidecars, or the largest sum of an init container and the
/// sidecars before it, if larger.
pub fn container_requests(spec: &PodSpec) -> PodRequests {
    let of = |container: &Container| {
        PodRequests::from_list(container.resources.as_ref().and_then(|all| all.requests.as_ref()))
    };
    let mut sidecars = PodRequests::default();
    let mut initially = PodRequests::default();
    for container in spec.init_containers.iter().flatten() {
        let mut own = of(container);
        if is_sidecar(container) {
            sidecars.add(&own);
            initially.raise(&sidecars);
        } else {
            own.add(&sidecars);
            initially.raise(&own);
        }
    }
    let mut total = sidecars;
    spec.containers.iter().for_each(|container| total.add(&of(container)));
    total.raise(&initially);
    total
}

/// The QoS class `Guaranteed`, `Burstable` or `BestEffort`, which determines the order of eviction.
pub fn qos_class(spec: &PodSpec) -> &'static str {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let of_containers: Vec<&ResourceRequirements> = containers.filter_map(|one| one.resources.as_ref()).collect();
    let count = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
    let of_pod = spec.resources.as_ref().filter(|all| all.limits.is_some() || all.requests.is_some());
    let (parts, count) = of_pod.map_or((of_containers, count), |all| (vec![all], 1));
    let amount = |list: &Option<BTreeMap<String, Text>>, name: &str| {
        let text = list.as_ref()?.get(name)?;
        Quantity::parse(&text.0).ok().filter(|amount| !amount.is_zero())
    };
    let any = |part: &&ResourceRequirements| {
        ["cpu", "memory"].iter().any(|name| amount(&part.limits, name).or(amount(&part.requests, name)).is_some())
    };
    // An absent request equals the limit; an explicit zero does not.
    let has =
        |list: &Option<BTreeMap<String, Text>>, name: &str| list.as_ref().is_some_and(|all| all.contains_key(name));
    let sure = |part: &&ResourceRequirements| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = amount(&part.limits, name);
            limit.is_some() && (!has(&part.requests, name) || amount(&part.requests, name) == limit)
        })
    };
    if !parts.iter().any(any) {
        "BestEffort"
    } else if parts.len() == count && parts.iter().all(sure) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// A condition of a pod by its type.
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(body: Value) -> PodSpec {
        let pod: Pod = crate::kinds::catalogue::typed::decode(&json!({"spec": body}), &mut |_| {}).unwrap();
        pod.spec.unwrap()
    }

    fn container(requests: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests}})
    }

    fn sidecar(requests: Value) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": requests}})
    }

    #[test]
    fn requests_of_a_pod_are_summed() {
        let table = [
            (
                "containers add up",
                json!({"containers": [container(json!({"cpu": "100m"})), container(json!({"cpu": 1}))]}),
                1100,
            ),
            (
                "an init container runs alone",
                json!({"containers": [container(json!({"cpu": 1}))], "initContainers": [container(json!({"cpu": 3}))]}),
                3000,
            ),
            (
                "a sidecar runs beside later init containers",
                json!({
                    "containers": [container(json!({"cpu": 1}))],
                    "initContainers": [sidecar(json!({"cpu": 1})), container(json!({"cpu": 2}))],
                }),
                3000,
            ),
            (
                "pod-level requests take precedence, the overhead is added",
                json!({
                    "containers": [container(json!({"cpu": 1}))],
                    "resources": {"requests": {"cpu": 2}}, "overhead": {"cpu": "250m"},
                }),
                2250,
            ),
        ];
        for (what, body, milli) in table {
            assert_eq!(requests(&spec(body)).cpu_milli, milli, "{what}");
        }
    }

    #[test]
    fn qos_class_follows_requests_and_limits() {
        let both = json!({"cpu": 1, "memory": "1Gi"});
        let table = [
            (json!([{"name": "c"}]), "BestEffort"),
            (json!([{"name": "c", "resources": {"requests": {"cpu": 1}}}]), "Burstable"),
            (json!([{"name": "c", "resources": {"limits": both, "requests": both}}]), "Guaranteed"),
            (json!([{"name": "c", "resources": {"limits": both, "requests": both}}, {"name": "d"}]), "Burstable"),
            (
                json!([{"name": "c", "resources": {"limits": both, "requests": {"cpu": "500m", "memory": "1Gi"}}}]),
                "Burstable",
            ),
            (json!([{"name": "c", "resources": {"requests": {"example.com/gpu": 1}}}]), "BestEffort"),
            (json!([{"name": "c", "resources": {"limits": both, "requests": {"cpu": 0, "memory": 0}}}]), "Burstable"),
            (json!([{"name": "c", "resources": {"limits": {"cpu": 0}, "requests": {"cpu": 0}}}]), "BestEffort"),
        ];
        for (containers, class) in table {
            assert_eq!(qos_class(&spec(json!({"containers": containers}))), class, "{containers}");
        }
    }
}
