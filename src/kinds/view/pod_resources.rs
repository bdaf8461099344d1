//! Sum of a pod's requests and limits over all its containers.

use super::body::BodyRead;
use crate::object::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by resource name.
#[derive(Clone, Default)]
pub struct ResourceAmounts(pub BTreeMap<String, Quantity>);

impl ResourceAmounts {
    /// Reads a map of quantities; skips malformed ones.
    pub fn from_value(map: &Value) -> ResourceAmounts {
        let entries = map.as_object().into_iter().flatten();
        let read = |value: &Value| match value {
            Value::String(text) => Quantity::parse(text).ok(),
            other => other.as_i64().map(Quantity::from_int),
        };
        ResourceAmounts(entries.filter_map(|(name, value)| Some((name.clone(), read(value)?))).collect())
    }

    /// One amount; zero when absent.
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Adds other amounts.
    pub fn add(&mut self, other: &ResourceAmounts) {
        for (name, amount) in &other.0 {
            match self.0.get_mut(name) {
                Some(sum) => *sum += *amount,
                None => {
                    self.0.insert(name.clone(), *amount);
                }
            }
        }
    }

    /// Raises each amount to the other one if that is larger.
    fn raise(&mut self, other: &ResourceAmounts) {
        for (name, amount) in &other.0 {
            if self.0.get(name).is_none_or(|mine| mine < amount) {
                self.0.insert(name.clone(), *amount);
            }
        }
    }
}

/// A pod's `requests` or `limits`: the sum of containers and sidecars, or the largest sum of an init container and the
/// sidecars before it. Pod-level resources override; overhead is added (KEP-753 and KEP-2837).
pub fn total_for_pod(pod: &Value, kind: &str) -> ResourceAmounts {
    let of = |holder: &Value| ResourceAmounts::from_value(holder.value_at("resources").value_at(kind));
    let mut total = ResourceAmounts::default();
    pod.list("spec.containers").iter().for_each(|container| total.add(&of(container)));
    let (mut sidecars, mut most) = (ResourceAmounts::default(), ResourceAmounts::default());
    for container in pod.list("spec.initContainers") {
        let mut needed = sidecars.clone();
        needed.add(&of(container));
        if container.text("restartPolicy") == "Always" {
            total.add(&of(container));
            sidecars = needed.clone();
        }
        most.raise(&needed);
    }
    total.raise(&most);
    total.0.extend(of(pod.value_at("spec")).0);
    let mut overhead = ResourceAmounts::from_value(pod.value_at("spec.overhead"));
    if kind == "limits" {
        // Overhead is added only to existing limits.
        overhead.0.retain(|name, _| total.0.contains_key(name));
    }
    total.add(&overhead);
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pod_resources_are_summed() {
        let asks = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = asks("1");
        sidecar["restartPolicy"] = "Always".into();
        let pod =
            |inits: Value, containers: Value| json!({"spec": {"initContainers": inits, "containers": containers}});
        let cases = [
            (pod(json!([]), json!([asks("1"), asks("500m")])), "1500m"),
            (pod(json!([asks("3")]), json!([asks("1"), asks("1")])), "3"),
            (pod(json!([sidecar, asks("3")]), json!([asks("1")])), "4"),
            (pod(json!([sidecar]), json!([asks("1")])), "2"),
        ];
        for (pod, expected) in cases {
            assert_eq!(total_for_pod(&pod, "requests").get("cpu").to_string(), expected, "{pod}");
        }
    }
}
