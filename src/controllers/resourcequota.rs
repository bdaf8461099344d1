//! ResourceQuotas: counts the usage of a namespace. The API server enforces quotas with the same function, [`used`].

use super::status;
use crate::object::quantity::Quantity;
use crate::object::{Key, Object};
use crate::world::{Loop, Plan, Row, World};
use serde_json::{Map, Value, json};
use std::sync::Arc;

const ROOT: &str = "resourcequotas";

/// The loop of ResourceQuotas.
pub const LOOP: Loop = Loop { name: "resourcequota-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT => vec![row.key.clone()],
        _ => world.list_in(ROOT, &row.key.namespace).map(|quota| quota.key.clone()).collect(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let object = row.object();
    let hard = object.value_at(&["spec", "hard"]).cloned().unwrap_or(json!({}));
    let mut new = status::status_map(&object);
    new.insert("used".into(), used(world, &key.namespace, &object).into());
    new.insert("hard".into(), hard);
    status::write(&mut plan, object, new.into(), "the usage of the namespace changed");
    plan
}

/// Returns a namespace's usage of each resource that a quota limits.
pub fn used(world: &World, namespace: &str, quota: &Object) -> Map<String, Value> {
    let scopes = QuotaScopes::from_quota(quota);
    let counts = |pod: &&Arc<Row>| pod.pod().is_some_and(|pod| !pod.phase.is_terminal());
    let pods: Vec<&Arc<Row>> =
        world.list_in("pods", namespace).filter(counts).filter(|pod| scopes.match_pod(pod)).collect();
    let names =
        quota.value_at(&["spec", "hard"]).and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
    names.map(|name| (name.clone(), measure(world, namespace, name, &pods).to_string().into())).collect()
}

fn measure(world: &World, namespace: &str, name: &str, pods: &[&Arc<Row>]) -> Quantity {
    let requests = |get: fn(&crate::world::ResourceRequests) -> i64| -> i64 {
        pods.iter().filter_map(|pod| pod.pod()).map(|pod| get(&pod.requests)).sum()
    };
    match name {
        "pods" | "count/pods" => Quantity::from_int(pods.len() as i64),
        "cpu" | "requests.cpu" => Quantity::from_milli(requests(|one| one.cpu_milli)),
        "memory" | "requests.memory" => Quantity::from_bytes(requests(|one| one.memory)),
        "ephemeral-storage" | "requests.ephemeral-storage" => Quantity::from_bytes(requests(|one| one.ephemeral)),
        "requests.storage" => claimed(world, namespace, None),
        "services.loadbalancers" => services(world, namespace, |kind| kind == "LoadBalancer"),
        "services.nodeports" => services(world, namespace, |kind| matches!(kind, "NodePort" | "LoadBalancer")),
        _ => {
            if let Some(class) = name.strip_suffix(".storageclass.storage.k8s.io/requests.storage") {
                return claimed(world, namespace, Some(class));
            }
            if let Some(resource) = name.strip_prefix("limits.") {
                return pods.iter().map(|pod| limits(&pod.object(), resource)).sum();
            }
            if let Some(resource) = name.strip_prefix("requests.") {
                let amount = |pod: &&Arc<Row>| Some(*pod.pod()?.requests.others.get(resource)?);
                return Quantity::from_int(pods.iter().filter_map(amount).sum());
            }
            let resource = name.strip_prefix("count/").unwrap_or(name);
            let is_counted = |row: &&&Arc<Row>| row.key.resource.0 == resource;
            Quantity::from_int(world.content_of(namespace).iter().filter(is_counted).count() as i64)
        }
    }
}

/// The sum of the limits of a pod's containers, or the limit of its largest init container.
fn limits(pod: &Object, resource: &str) -> Quantity {
    let of = |container: &Value| {
        let text = container["resources"]["limits"][resource].as_str();
        text.and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::from_int(0))
    };
    let together: Quantity = pod.items(&["spec", "containers"]).iter().map(of).sum();
    pod.items(&["spec", "initContainers"]).iter().map(of).fold(together, Quantity::max)
}

fn claimed(world: &World, namespace: &str, class: Option<&str>) -> Quantity {
    let objects = world.list_in("persistentvolumeclaims", namespace).map(|row| row.object());
    let of_class = objects.filter(|claim| class.is_none() || claim.text(&["spec", "storageClassName"]) == class);
    let request = |claim: Object| {
        let text = claim.text(&["spec", "resources", "requests", "storage"])?;
        Quantity::parse(text).ok()
    };
    of_class.filter_map(request).sum()
}

fn services(world: &World, namespace: &str, counts: fn(&str) -> bool) -> Quantity {
    let objects = world.list_in("services", namespace).map(|row| row.object());
    let counted = objects.filter(|service| service.text(&["spec", "type"]).is_some_and(counts));
    Quantity::from_int(counted.count() as i64)
}

/// Scopes of a quota: the pods that it covers.
struct QuotaScopes(Vec<Value>);

impl QuotaScopes {
    fn from_quota(quota: &Object) -> QuotaScopes {
        let plain =
            quota.items(&["spec", "scopes"]).iter().map(|scope| json!({ "scopeName": scope, "operator": "Exists" }));
        QuotaScopes(plain.chain(quota.items(&["spec", "scopeSelector", "matchExpressions"]).iter().cloned()).collect())
    }

    fn match_pod(&self, pod: &Row) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let object = pod.object();
        let timed = object.int(&["spec", "activeDeadlineSeconds"]).is_some();
        let best_effort = object.text(&["status", "qosClass"]) == Some("BestEffort");
        let class = object.text(&["spec", "priorityClassName"]).unwrap_or_default();
        self.0.iter().all(|scope| match scope["scopeName"].as_str() {
            Some("Terminating") => timed,
            Some("NotTerminating") => !timed,
            Some("BestEffort") => best_effort,
            Some("NotBestEffort") => !best_effort,
            Some("PriorityClass") => {
                let named = scope["values"].as_array().is_some_and(|values| values.iter().any(|value| value == class));
                match scope["operator"].as_str() {
                    Some("In") => named,
                    Some("NotIn") => !named,
                    Some("DoesNotExist") => class.is_empty(),
                    _ => !class.is_empty(),
                }
            }
            Some("CrossNamespacePodAffinity") => looks_at_other_namespaces(&object),
            _ => false,
        })
    }
}

/// Whether a term of a pod's affinity names namespaces or selects them.
fn looks_at_other_namespaces(pod: &Object) -> bool {
    const TERMS: [&str; 2] =
        ["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"];
    let crosses = |term: &Value| {
        // A preferred term has a weight around it.
        let term = term.get("podAffinityTerm").unwrap_or(term);
        term["namespaces"].as_array().is_some_and(|list| !list.is_empty()) || term["namespaceSelector"].is_object()
    };
    let kinds = ["podAffinity", "podAntiAffinity"].into_iter();
    let mut terms = kinds.flat_map(|kind| TERMS.map(|list| pod.items(&["spec", "affinity", kind, list])));
    terms.any(|list| list.iter().any(crosses))
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;
    use serde_json::json;

    #[test]
    fn affinity_to_pods_of_other_namespaces_is_a_scope() {
        let pod = |term: serde_json::Value| {
            let preferred = json!([{"weight": 1, "podAffinityTerm": term}]);
            let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
            super::looks_at_other_namespaces(&crate::object::Object(json!({"spec": {"affinity": affinity}})))
        };
        assert!(pod(json!({"namespaces": ["a"]})) && pod(json!({"namespaceSelector": {}})));
        assert!(!pod(json!({"namespaces": [], "topologyKey": "x"})) && !pod(json!({})));
    }

    #[test]
    fn quota_counts_limited_resources() {
        let pod = |name: &str, cpu: &str, phase: &str| {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{nodeName: a, containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}, limits: {{memory: 100Mi}}}}}}]}}, status: {{phase: {phase}}}}}\n---\n"
            )
        };
        let quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: '5', requests.cpu: '1', limits.memory: 1Gi, services: '1', count/deployments.apps: '1'}}}";
        let mut cluster = cluster(&format!(
            "{}{}{}{quota}",
            pod("a", "200m", "Running"),
            pod("b", "250m", "Running"),
            pod("c", "1", "Failed")
        ));
        cluster.settle();
        let wanted = json!({"pods": "2", "requests.cpu": "450m", "limits.memory": "200Mi", "services": "1", "count/deployments.apps": "0"});
        assert_eq!(cluster.value("resourcequotas", "q", "/status/used"), wanted);
        assert_eq!(cluster.value("resourcequotas", "q", "/status/hard/services"), "1");
        cluster.delete("pods", "a", Default::default());
        cluster.settle();
        assert_eq!(cluster.value("resourcequotas", "q", "/status/used/requests.cpu"), "250m");
    }
}
