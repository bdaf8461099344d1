//! ResourceQuotas: counts the usage of a namespace. The API server enforces quotas with the same function, [`used`].

mod scopes;

use self::scopes::QuotaScopes;
use super::status;
use crate::kinds::persistent_volume_claim::CLASS_ANNOTATION;
use crate::kinds::shared::resource_amounts::sum_with_overhead;
use crate::object::quantity::Quantity;
use crate::object::{Key, Object};
use crate::world::{Loop, Plan, ResourceRequests, Row, World};
use serde_json::{Map, Value, json};
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
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
    let counts = |pod: &&Arc<Row>| pod.pod().is_some_and(|pod| !pod.phase.is_terminal()) && !is_overdue(world, pod);
    let all: Vec<&Arc<Row>> = world.list_in("pods", namespace).filter(|pod| scopes.match_pod(pod)).collect();
    let pods: Vec<&Arc<Row>> = all.iter().copied().filter(counts).collect();
    let pods = PodUsage { all: &all, counted: &pods, limits: OnceCell::new() };
    let usage = NamespaceUsage { world, namespace, scopes: &scopes, pods, counts: OnceCell::new() };
    let names =
        quota.value_at(&["spec", "hard"]).and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
    names.map(|name| (name.clone(), usage.measure(name).to_string().into())).collect()
}

/// Whether a pod still exists although the time in which it was to end is over.
fn is_overdue(world: &World, pod: &Row) -> bool {
    let object = pod.is_deleting().then(|| pod.body());
    let object = object.filter(|object| object.int(&["metadata", "deletionGracePeriodSeconds"]).is_some());
    object.and_then(|object| object.time(&["metadata", "deletionTimestamp"])).is_some_and(|end| world.now > end)
}

/// The pods that a quota covers.
struct PodUsage<'a> {
    /// All of them.
    all: &'a [&'a Arc<Row>],
    /// Those whose resources count.
    counted: &'a [&'a Arc<Row>],
    /// The sums of all limits, once one is needed: for them each pod is decoded.
    limits: OnceCell<BTreeMap<String, Quantity>>,
}

impl PodUsage<'_> {
    fn limit(&self, resource: &str) -> Quantity {
        let limits = self.limits.get_or_init(|| {
            let mut sums: BTreeMap<String, Quantity> = BTreeMap::new();
            for (name, amount) in self.counted.iter().flat_map(|pod| sum_with_overhead(&pod.body(), "limits")) {
                *sums.entry(name).or_default() += amount;
            }
            sums
        });
        limits.get(resource).copied().unwrap_or_default()
    }
}

/// The objects of a namespace that a quota covers.
struct NamespaceUsage<'a> {
    world: &'a World,
    namespace: &'a str,
    scopes: &'a QuotaScopes,
    pods: PodUsage<'a>,
    /// The number of objects of each resource, once one is needed: a quota can name thousands of resources.
    counts: OnceCell<HashMap<&'a str, i64>>,
}

impl NamespaceUsage<'_> {
    /// Returns the usage of a resource.
    fn measure(&self, name: &str) -> Quantity {
        let (world, namespace) = (self.world, self.namespace);
        let PodUsage { all, counted: pods, .. } = &self.pods;
        let requests = |name: &str, unit: fn(i64) -> Quantity| pods.iter().map(|pod| requested(pod, name, unit)).sum();
        match name {
            "pods" => Quantity::from_int(pods.len() as i64),
            // Pods that have ended count as objects.
            "count/pods" => Quantity::from_int(all.len() as i64),
            "cpu" | "requests.cpu" => requests("cpu", Quantity::from_milli),
            "memory" | "requests.memory" => requests("memory", Quantity::from_bytes),
            "ephemeral-storage" | "requests.ephemeral-storage" => requests("ephemeral-storage", Quantity::from_bytes),
            "requests.storage" => self.claimed(None),
            "persistentvolumeclaims" | "count/persistentvolumeclaims" if !self.scopes.is_empty() => {
                Quantity::from_int(self.claims(None).count() as i64)
            }
            "services.loadbalancers" => sum_services(world, namespace, |service| i64::from(is_load_balancer(service))),
            "services.nodeports" => sum_services(world, namespace, count_node_ports),
            _ => {
                if let Some(class) = name.strip_suffix(".storageclass.storage.k8s.io/requests.storage") {
                    return self.claimed(Some(class));
                }
                if let Some(class) = name.strip_suffix(".storageclass.storage.k8s.io/persistentvolumeclaims") {
                    return Quantity::from_int(self.claims(Some(class)).count() as i64);
                }
                if let Some(class) = name.strip_suffix(".deviceclass.resource.k8s.io/devices") {
                    let claims = world.list_in("resourceclaims.resource.k8s.io", namespace);
                    return Quantity::from_int(claims.map(|claim| count_devices(&claim.body(), class)).sum());
                }
                if name.starts_with("hugepages-") {
                    return requests(name, Quantity::from_bytes);
                }
                if let Some(resource) = name.strip_prefix("limits.") {
                    return self.pods.limit(resource);
                }
                if let Some(resource) = name.strip_prefix("requests.") {
                    return requests(resource, Quantity::from_int);
                }
                let resource = name.strip_prefix("count/").unwrap_or(name);
                Quantity::from_int(self.counts().get(resource).copied().unwrap_or(0))
            }
        }
    }

    /// Returns the number of objects of each resource.
    fn counts(&self) -> &HashMap<&'_ str, i64> {
        self.counts.get_or_init(|| {
            let mut counts = HashMap::new();
            for row in self.world.content_of(self.namespace).iter() {
                *counts.entry(row.key.resource.0).or_default() += 1;
            }
            counts
        })
    }

    /// The claims of a storage class, or all.
    fn claims<'b>(&'b self, class: Option<&'b str>) -> impl Iterator<Item = Object> + 'b {
        let class_of = |claim: &Object| {
            let annotated = claim.annotation(CLASS_ANNOTATION);
            annotated.or_else(|| claim.text(&["spec", "storageClassName"])).map(str::to_owned)
        };
        let objects = self.world.list_in("persistentvolumeclaims", self.namespace).map(|row| row.object());
        let covered = objects.filter(|claim| self.scopes.match_claim(claim));
        covered.filter(move |claim| class.is_none() || class_of(claim).as_deref() == class)
    }

    /// The storage that these claims ask for.
    fn claimed(&self, class: Option<&str>) -> Quantity {
        let request = |claim: Object| {
            let text = claim.text(&["spec", "resources", "requests", "storage"])?;
            Quantity::parse(text).ok()
        };
        self.claims(class).filter_map(request).sum()
    }
}

/// The request of a pod as the quota counts it. The pod's fields are exact below their maximum.
fn requested(row: &Row, resource: &str, unit: fn(i64) -> Quantity) -> Quantity {
    match row.pod().map_or(0, |pod| pod.requests.amount(resource)) {
        amount if amount < ResourceRequests::MAX_AMOUNT => unit(amount),
        _ => amount_of(&row.body(), "requests", resource),
    }
}

/// A limit or request of a pod as the quota counts it.
fn amount_of(pod: &Object, list: &str, resource: &str) -> Quantity {
    sum_with_overhead(pod, list).get(resource).copied().unwrap_or_default()
}

fn sum_services(world: &World, namespace: &str, count: fn(&Object) -> i64) -> Quantity {
    Quantity::from_int(world.list_in("services", namespace).map(|row| count(&row.body())).sum())
}

fn is_load_balancer(service: &Object) -> bool {
    service.text(&["spec", "type"]) == Some("LoadBalancer")
}

/// The ports of nodes that a Service takes, or will take: each of its ports, unless it is a load balancer that does without.
fn count_node_ports(service: &Object) -> i64 {
    let ports = service.items(&["spec", "ports"]);
    let is_chosen = |port: &&Value| port["nodePort"].as_i64().is_some_and(|number| number != 0);
    let count = match service.text(&["spec", "type"]) {
        Some("NodePort") => ports.len(),
        Some("LoadBalancer") => match service.value_at(&["spec", "allocateLoadBalancerNodePorts"]) {
            Some(Value::Bool(false)) => ports.iter().filter(is_chosen).count(),
            _ => ports.len(),
        },
        _ => 0,
    };
    count as i64
}

/// The devices of a class that a ResourceClaim may get: of alternatives the most, and of a request for all devices the most that a claim
/// can get.
fn count_devices(claim: &Object, class: &str) -> i64 {
    const MAX_RESULTS: i64 = 32;
    let count = |request: &Value| match request["deviceClassName"] == class {
        false => 0,
        true if request["allocationMode"] == "All" => MAX_RESULTS,
        true => request["count"].as_i64().unwrap_or(1),
    };
    let of_request = |request: &Value| {
        let alternatives = request["firstAvailable"].as_array().into_iter().flatten().map(count).max();
        count(&request["exactly"]).max(alternatives.unwrap_or(0))
    };
    claim.items(&["spec", "devices", "requests"]).iter().map(of_request).fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;
    use serde_json::json;

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

    #[test]
    fn claims_are_counted_by_the_classes_of_their_volume_attributes() {
        let claim = |name: &str, wanted: &str, status: &str| {
            format!(
                "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{{wanted}resources: {{requests: {{storage: 1Gi}}}}}}, status: {{{status}}}}}\n---\n"
            )
        };
        let quota = |name: &str, operator: &str, values: &str| {
            format!(
                "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: {name}}}, spec: {{hard: {{persistentvolumeclaims: '9', requests.storage: 9Gi}}, scopeSelector: {{matchExpressions: [{{scopeName: VolumeAttributesClass, operator: {operator}, values: [{values}]}}]}}}}}}\n---\n"
            )
        };
        let mut cluster = cluster(
            &[
                claim("plain", "", ""),
                claim("gold", "volumeAttributesClassName: gold, ", ""),
                claim("changing", "volumeAttributesClassName: gold, ", "currentVolumeAttributesClassName: silver"),
                quota("gold", "In", "gold"),
                quota("silver", "In", "silver"),
                quota("other", "NotIn", "gold"),
                quota("any", "Exists", ""),
                quota("none", "DoesNotExist", ""),
            ]
            .concat(),
        );
        cluster.settle();
        for (quota, count) in [("gold", 2), ("silver", 1), ("other", 2), ("any", 2), ("none", 1)] {
            let used = cluster.value("resourcequotas", quota, "/status/used");
            assert_eq!(
                used,
                json!({"persistentvolumeclaims": count.to_string(), "requests.storage": format!("{count}Gi")}),
                "{quota}"
            );
        }
    }
}
