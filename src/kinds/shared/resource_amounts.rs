//! Amounts of resources in a pod's JSON, as exact quantities by name.
//!
//! Knows: how resource lists are read, and how those of containers are summed up for their pod (KEP-753 and KEP-2837).
//! Start reading at [`sum_resources`].

use crate::object::{Object, Quantity};
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by the names of their resources.
pub type ResourceAmounts = BTreeMap<String, Quantity>;

/// Reads a resource list: names and quantities; skips malformed ones.
pub fn read_amounts(list: &Value) -> ResourceAmounts {
    let read = |amount: &Value| match amount {
        Value::String(text) => Quantity::parse(text).ok(),
        other => other.as_i64().map(Quantity::from_int),
    };
    list.as_object().into_iter().flatten().filter_map(|(name, amount)| Some((name.clone(), read(amount)?))).collect()
}

/// Adds other amounts.
pub fn add_amounts(sum: &mut ResourceAmounts, more: ResourceAmounts) {
    join(sum, more, |sum, more| sum + more);
}

fn join(sum: &mut ResourceAmounts, more: ResourceAmounts, combine: fn(Quantity, Quantity) -> Quantity) {
    for (name, amount) in more {
        sum.entry(name).and_modify(|known| *known = combine(*known, amount)).or_insert(amount);
    }
}

/// Returns the sums of a pod's `requests` or `limits`: of its containers and sidecars, or of an init container and the sidecars before it
/// where that is more. Resources of the whole pod take precedence. The overhead is not in them.
pub fn sum_resources(pod: &Object, list: &str) -> ResourceAmounts {
    let (mut total, mut sidecars) = (ResourceAmounts::new(), ResourceAmounts::new());
    let mut peak = ResourceAmounts::new();
    for container in pod.items(&["spec", "containers"]) {
        add_amounts(&mut total, read_amounts(&container["resources"][list]));
    }
    for container in pod.items(&["spec", "initContainers"]) {
        // The peak covers the sidecars already: only resources of this container can raise it.
        let own = read_amounts(&container["resources"][list]);
        let above = |name: &String| sidecars.get(name).copied().unwrap_or_default();
        let together = own.iter().map(|(name, amount)| (name.clone(), above(name) + *amount)).collect();
        join(&mut peak, together, Quantity::max);
        if container["restartPolicy"] == "Always" {
            add_amounts(&mut total, own.clone());
            add_amounts(&mut sidecars, own);
        }
    }
    join(&mut total, peak, Quantity::max);
    let whole = pod.value_at(&["spec", "resources", list]).map(read_amounts).unwrap_or_default();
    let is_supported = |name: &String| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-");
    total.extend(whole.into_iter().filter(|(name, _)| is_supported(name)));
    total
}

/// Returns the sums of a pod's `requests` or `limits` with its overhead, which adds to limits only where there is one.
pub fn sum_with_overhead(pod: &Object, list: &str) -> ResourceAmounts {
    let mut total = sum_resources(pod, list);
    let mut overhead = pod.value_at(&["spec", "overhead"]).map(read_amounts).unwrap_or_default();
    if list == "limits" {
        overhead.retain(|name, _| total.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    add_amounts(&mut total, overhead);
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pod_resources_are_summed() {
        let asks = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}});
        let mut sidecar = asks("1");
        sidecar["restartPolicy"] = "Always".into();
        let pod = |inits: Value, containers: Value| json!({"spec": {"initContainers": inits, "containers": containers, "overhead": {"cpu": "10m", "memory": 1}}});
        let mut whole = pod(json!([]), json!([asks("1")]));
        whole["spec"]["resources"] = json!({"requests": {"cpu": "2", "example.com/gpu": "1"}, "limits": {"cpu": "2"}});
        let cases = [
            (pod(json!([]), json!([asks("1"), asks("500m")])), "1510m"),
            (pod(json!([asks("3")]), json!([asks("1"), asks("1")])), "3010m"),
            (pod(json!([sidecar, asks("3")]), json!([asks("1")])), "4010m"),
            (pod(json!([sidecar]), json!([asks("1")])), "2010m"),
            (whole, "2010m"),
        ];
        for (pod, expected) in cases {
            let pod = Object(pod);
            let (requests, limits) = (sum_with_overhead(&pod, "requests"), sum_with_overhead(&pod, "limits"));
            assert_eq!(requests["cpu"].to_string(), expected, "{pod:?}");
            assert_eq!(limits["cpu"], requests["cpu"], "{pod:?}");
            assert_eq!(requests["memory"].to_string(), "1");
            assert_eq!(limits.get("memory"), None, "overhead makes no limit");
            assert_eq!(requests.get("example.com/gpu"), None, "a pod as a whole has no extended resources");
        }
    }
}
