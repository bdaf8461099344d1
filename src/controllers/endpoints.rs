//! Endpoints, the older list of the pods behind a Service, for clients that still read it.

use super::backends::{self, ServiceBackend};
use crate::kinds::endpoints::{CONTROLLER, MANAGED_BY};
use crate::object::{Key, Object, Time};
use crate::world::{Loop, Plan, Row, World, WriteVerb};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const ROOT: &str = "endpoints";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Maximum number of addresses in total.
const MAX_ADDRESSES: usize = 1000;

/// The loop of Endpoints.
pub const LOOP: Loop = Loop { name: "endpoint-controller", root: backends::SERVICES, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        backends::SERVICES | "pods" | ROOT => backends::concerned(world, row),
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let known = world.find(ROOT, &key.namespace, &key.name).filter(|known| !known.is_deleting());
    let Some(row) = world.get(key) else {
        if let Some(left) = known.filter(|known| known.label(MANAGED_BY) == Some(CONTROLLER)) {
            plan.delete(left, "its Service is gone");
        }
        return plan;
    };
    let service = row.object();
    if row.is_deleting() || !backends::is_managed(row, &service) {
        return plan;
    }
    let (subsets, truncated) = subsets(world, row, &service);
    let labels = backends::endpoint_labels(&service, &[(MANAGED_BY, CONTROLLER)]);
    match known {
        None => {
            let mut object = Object(json!({
                "apiVersion": "v1",
                "kind": "Endpoints",
                "metadata": { "name": *key.name, "namespace": *key.namespace, "labels": labels },
            }));
            put(&mut object, subsets, truncated, row.created);
            plan.write(WriteVerb::Create(object), "the Service has no Endpoints");
        }
        Some(known) => {
            let mut object = known.object();
            let same =
                object.items(&["subsets"]) == subsets && object.value_at(&["metadata", "labels"]) == Some(&labels);
            if !same || object.annotation(OVER_CAPACITY).is_some() != truncated {
                object.set(&["metadata", "labels"], labels);
                let trigger = trigger(world, &key.namespace, object.items(&["subsets"]), &subsets);
                put(&mut object, subsets, truncated, trigger);
                plan.write(WriteVerb::Update(object), "the pods behind the Service changed");
            }
        }
    }
    plan
}

/// The time of the change from `old` to `new` subsets.
fn trigger(world: &World, namespace: &str, old: &[Value], new: &[Value]) -> Option<Time> {
    let states = |subsets: &[Value]| -> BTreeSet<(bool, String, String)> {
        let list = |subset: &Value, name: &str| subset[name].as_array().cloned().unwrap_or_default();
        let states = subsets.iter().flat_map(|subset| {
            let ready = list(subset, "addresses").into_iter().map(|address| (true, address));
            ready.chain(list(subset, "notReadyAddresses").into_iter().map(|address| (false, address)))
        });
        let text = |target: &Value, field: &str| target[field].as_str().unwrap_or_default().to_owned();
        states
            .map(|(ready, address)| (ready, text(&address["targetRef"], "uid"), text(&address["targetRef"], "name")))
            .collect()
    };
    let known = states(old);
    let states = states(new);
    backends::trigger_time(world, namespace, states.difference(&known).map(|(_, _, name)| name.as_str()))
}

fn put(object: &mut Object, subsets: Vec<Value>, truncated: bool, trigger: Option<Time>) {
    if subsets.is_empty() {
        object.unset(&["subsets"]);
    } else {
        object.set(&["subsets"], subsets);
    }
    backends::set_trigger(object, trigger);
    if truncated {
        object.set(&["metadata", "annotations", OVER_CAPACITY], "truncated");
    } else {
        object.unset(&["metadata", "annotations", OVER_CAPACITY]);
    }
}

/// Groups addresses by the ports that they serve, and returns whether there were too many.
fn subsets(world: &World, row: &Row, service: &Object) -> (Vec<Value>, bool) {
    let tolerant = backends::tolerates_unready(service);
    let all = backends::backends(world, row, service);
    let counts = |backend: &ServiceBackend| {
        let served = !backend.ports.list.is_empty() || service.items(&["spec", "ports"]).is_empty();
        served && (tolerant || !backend.terminating)
    };
    let (mut ready, unready): (Vec<ServiceBackend>, Vec<ServiceBackend>) =
        all.into_iter().filter(counts).partition(|backend| tolerant || backend.ready);
    let truncated = ready.len() + unready.len() > MAX_ADDRESSES;
    let split = ready.len().min(MAX_ADDRESSES);
    ready.extend(unready);
    let listed = ready.into_iter().take(MAX_ADDRESSES).enumerate();
    let groups = backends::group_by_ports(listed.map(|(at, backend)| {
        let address = address(&backend);
        (backend.ports, (at < split, address))
    }));
    (groups.into_iter().map(|(ports, addresses)| subset(&ports.list, addresses)).collect(), truncated)
}

/// Returns a subset of these ports, with addresses that are ready or not.
fn subset(ports: &[Value], addresses: Vec<(bool, Value)>) -> Value {
    let mut subset = Map::new();
    let (ready, unready): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|(is_ready, _)| *is_ready);
    for (name, list) in [("addresses", ready), ("notReadyAddresses", unready)] {
        let mut list: Vec<Value> = list.into_iter().map(|(_, address)| address).collect();
        list.sort_by(|a, b| a["ip"].as_str().cmp(&b["ip"].as_str()));
        if !list.is_empty() {
            subset.insert(name.into(), list.into());
        }
    }
    if !ports.is_empty() {
        subset.insert("ports".into(), ports.iter().cloned().map(without_empty_name).collect());
    }
    subset.into()
}

fn address(backend: &ServiceBackend) -> Value {
    let mut address = json!({ "ip": *backend.ip, "targetRef": backend.target() });
    if let Some(node) = backend.node() {
        address["nodeName"] = node.into();
    }
    if let Some(hostname) = &backend.hostname {
        address["hostname"] = hostname.as_str().into();
    }
    address
}

fn without_empty_name(mut port: Value) -> Value {
    if port["name"] == ""
        && let Some(map) = port.as_object_mut()
    {
        map.remove("name");
    }
    port
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;
    use serde_json::json;

    #[test]
    fn ready_and_unready_addresses() {
        let mut cluster = cluster(
            "
apiVersion: v1
kind: Service
metadata: {name: plain}
spec: {clusterIP: 127.77.128.5, selector: {app: x}, ports: [{port: 80, targetPort: 8080, protocol: TCP}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: r1, labels: {app: x}}, spec: {containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: u1, labels: {app: x}, annotations: {fake/ready: 'false'}}, spec: {containers: [{name: c}]}}
",
        );
        cluster.settle();
        let subsets = cluster.value("endpoints", "plain", "/subsets");
        assert_eq!(subsets[0]["addresses"][0]["targetRef"]["name"], "r1");
        assert_eq!(subsets[0]["notReadyAddresses"][0]["targetRef"]["name"], "u1");
        assert_eq!(subsets[0]["ports"], json!([{"port": 8080, "protocol": "TCP"}]));
        cluster.delete("pods", "r1", Default::default());
        cluster.delete("pods", "u1", Default::default());
        cluster.settle();
        assert!(cluster.value("endpoints", "plain", "/subsets").is_null());
    }
}
