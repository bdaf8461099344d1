//! Services, Ingresses and claims: whether a Service has ready endpoints, and whether the objects that they refer to exist. An object that
//! is only delayed counts as missing, too.

use crate::network::ingress::faults::faults;
use crate::object::Object;
use crate::world::{Row, World, storage};
use std::sync::Arc;

/// Why a Service has no ready endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEndpoints {
    /// No pod has the labels of the selector, and no existing workload would create one.
    NoPods,
    /// The pods have no port of the name that the Service uses.
    UnnamedPort(String),
    /// None of its pods is ready.
    NoneReady,
}

/// The pods of a Service.
pub fn pods<'w>(world: &'w World, service: &'w Row) -> Vec<&'w Arc<Row>> {
    let namespace = world.list_in("pods", &service.key.namespace);
    namespace.filter(|pod| pod.is_active_pod() && service.selects(pod)).collect()
}

/// Whether a Service selects pods. The others are of the type ExternalName, or have manually written endpoints.
pub fn selects_pods(service: &Object) -> bool {
    service.text(&["spec", "type"]) != Some("ExternalName") && service.pairs(&["spec", "selector"]).next().is_some()
}

/// Why a Service has no ready endpoints; `None` when it has some, or needs none.
pub fn missing_endpoints(world: &World, row: &Row) -> Option<NoEndpoints> {
    let service = row.object();
    if !selects_pods(&service) {
        return None;
    }
    let pods = pods(world, row);
    if pods.is_empty() {
        return find_idle_workload(world, row, &service).is_none().then_some(NoEndpoints::NoPods);
    }
    let unnamed = unnamed_port(&service, &pods).map(NoEndpoints::UnnamedPort);
    let is_ready = |pod: &&Arc<Row>| pod.pod().is_some_and(|pod| pod.ready);
    unnamed.or_else(|| (!pods.iter().any(is_ready)).then_some(NoEndpoints::NoneReady))
}

/// The workload with zero replicas whose pods a Service without pods would select. `None` if another matching workload has replicas.
pub fn find_idle_workload<'w>(world: &'w World, row: &'w Row, service: &Object) -> Option<&'w Arc<Row>> {
    if !pods(world, row).is_empty() {
        return None;
    }
    let workloads = ["deployments.apps", "statefulsets.apps", "replicasets.apps", "replicationcontrollers"];
    let rows = workloads.into_iter().flat_map(|resource| world.list_in(resource, &row.key.namespace));
    let is_meant = |workload: &&Arc<Row>| {
        let workload = workload.body();
        let label = |key: &str| workload.text(&["spec", "template", "metadata", "labels", key]);
        workload.controller().is_none()
            && service.pairs(&["spec", "selector"]).all(|(key, value)| label(key) == Some(value))
    };
    let meant: Vec<&Arc<Row>> = rows.filter(is_meant).collect();
    let is_idle = |workload: &&Arc<Row>| workload.body().int(&["spec", "replicas"]) == Some(0);
    meant.iter().all(is_idle).then(|| meant.first().copied()).flatten()
}

/// A port that is named by the Service and by no container of its pods.
fn unnamed_port(service: &Object, pods: &[&Arc<Row>]) -> Option<String> {
    let pod = pods.first()?.body();
    let named = |name: &str| {
        let mut ports = pod.containers().flat_map(|one| one["ports"].as_array().into_iter().flatten());
        ports.any(|port| port["name"] == name)
    };
    let targets = service.items(&["spec", "ports"]).iter().filter_map(|port| port["targetPort"].as_str());
    targets.into_iter().find(|name| !named(name)).map(str::to_owned)
}

/// Returns the missing state of a Service, an Ingress or a claim.
pub fn missing(world: &World, row: &Row) -> Option<String> {
    match row.key.resource.0 {
        "services" => missing_endpoints(world, row).map(|missing| match missing {
            NoEndpoints::NoPods => "no pod has the labels that it selects".to_owned(),
            NoEndpoints::UnnamedPort(port) => format!("no container of its pods names a port {port:?}"),
            NoEndpoints::NoneReady => "none of its pods is ready".to_owned(),
        }),
        "ingresses.networking.k8s.io" => faults(world, row).into_iter().next().map(|fault| fault.what),
        storage::CLAIMS => {
            let claim = row.body();
            let phase = claim.text(&["status", "phase"]).unwrap_or("Pending");
            if storage::is_too_small(&claim) {
                return Some("has less storage than it requests".to_owned());
            }
            let waits = phase == "Pending" && storage::is_awaiting_consumer(world, row, &claim);
            (phase != "Bound" && !waits).then(|| format!("is {phase}"))
        }
        _ => None,
    }
}
