//! Mirrors Endpoints that users write into EndpointSlices, which route traffic: one slice for each subset and address
//! family.
//!
//! Only for Services without a selector; [`super::endpointslice`] handles the others.

use super::backends::{self, TRIGGER};
use super::controller_ref::Owner;
use crate::kinds::endpoint_slice::MANAGED_BY;
use crate::object::LAST_APPLIED;
use crate::object::{Key, Object, Resource};
use crate::world::{Loop, Plan, Row, SERVICE_NAME, SLICES, World, WriteVerb, free_name};
use serde_json::{Map, Value, json};
use std::sync::Arc;

const ROOT: &str = "endpoints";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Annotation of Endpoints that are only the lock of a leader election.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Label of Endpoints that must not be mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Annotations of Endpoints that their slices do not have.
const NOT_MIRRORED: [&str; 2] = [TRIGGER, LAST_APPLIED];
/// Maximum number of addresses of a subset (Kubernetes: `--mirroring-max-endpoints-per-subset`).
const MAX_ADDRESSES: usize = 1000;

/// The loop of Endpoints that users write.
pub const LOOP: Loop = Loop { name: "endpointslicemirroring-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(_world: &World, row: &Row) -> Vec<Key> {
    let name = match row.key.resource.0 {
        ROOT | backends::SERVICES => Some(&*row.key.name),
        SLICES if row.label(MANAGED_BY) == Some(MANAGER) => row.label(SERVICE_NAME),
        _ => None,
    };
    name.map(|name| Key::new(Resource(ROOT), &row.key.namespace, name)).into_iter().collect()
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let mut slices = mirrors(world, key);
    if let Some(row) = world.get(key).filter(|row| is_mirrored(world, row)) {
        for wanted in desired_slices(row) {
            let family =
                |slice: &Arc<Row>| slice.body().value_at(&["addressType"]) == wanted.value_at(&["addressType"]);
            match slices.iter().position(|slice| family(slice)) {
                Some(place) => update(slices.remove(place), wanted, &mut plan),
                None => create(world, row, wanted, &mut plan),
            }
        }
    }
    for unused in slices {
        plan.delete(unused, "the Endpoints that it mirrors are gone");
    }
    plan
}

fn is_mirrored(world: &World, row: &Row) -> bool {
    let service = world.find(backends::SERVICES, &row.key.namespace, &row.key.name);
    let is_bare = service.is_some_and(|service| {
        !service.is_deleting() && service.workload().is_none_or(|fields| fields.selector.is_nothing())
    });
    is_bare && !row.is_deleting() && row.label(SKIP) != Some("true") && row.body().annotation(LEADER).is_none()
}

/// The slices that mirror these Endpoints, ordered by name.
fn mirrors<'w>(world: &'w World, key: &'w Key) -> Vec<&'w Arc<Row>> {
    let ours = |slice: &&Arc<Row>| slice.label(MANAGED_BY) == Some(MANAGER) && !slice.is_deleting();
    world.slices_of(&key.namespace, &key.name).filter(ours).collect()
}

/// The desired slices, without names.
fn desired_slices(row: &Row) -> Vec<Object> {
    let body = row.body();
    let families = [("IPv4", false), ("IPv6", true)];
    let of_subset = |subset: &Value| {
        let endpoints = endpoints(subset);
        let slice = |(family, is_v6): (&str, bool)| {
            let fits =
                |endpoint: &&Value| endpoint["addresses"][0].as_str().is_some_and(|ip| ip.contains(':') == is_v6);
            let endpoints: Vec<Value> = endpoints.iter().filter(fits).cloned().collect();
            (!endpoints.is_empty()).then(|| slice(row, &body, subset, family, endpoints))
        };
        families.into_iter().filter_map(slice).collect::<Vec<_>>()
    };
    body.items(&["subsets"]).iter().flat_map(of_subset).collect()
}

fn endpoints(subset: &Value) -> Vec<Value> {
    let list = |field: &str| subset[field].as_array().cloned().unwrap_or_default();
    let endpoint = |address: Value, ready: bool| {
        let mut endpoint = json!({"addresses": [address["ip"]], "conditions": {"ready": ready}});
        for field in ["hostname", "nodeName", "targetRef"] {
            if !address[field].is_null() {
                endpoint[field] = address[field].clone();
            }
        }
        endpoint
    };
    let ready = list("addresses").into_iter().map(|address| endpoint(address, true));
    ready
        .chain(list("notReadyAddresses").into_iter().map(|address| endpoint(address, false)))
        .take(MAX_ADDRESSES)
        .collect()
}

fn slice(row: &Row, body: &Object, subset: &Value, family: &str, endpoints: Vec<Value>) -> Object {
    let mut labels: Map<String, Value> = body.labels().map(|(key, value)| (key.to_owned(), value.into())).collect();
    labels.insert(SERVICE_NAME.into(), (*row.key.name).into());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    let mut metadata = json!({"namespace": *row.key.namespace, "labels": labels});
    let annotations = body.pairs(&["metadata", "annotations"]).filter(|(key, _)| !NOT_MIRRORED.contains(key));
    let annotations: Map<String, Value> = annotations.map(|(key, value)| (key.to_owned(), value.into())).collect();
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    let port = |port: &Value| {
        let mut mirrored = port.clone();
        mirrored["name"] = port["name"].as_str().unwrap_or_default().into();
        mirrored
    };
    let ports: Vec<Value> = subset["ports"].as_array().into_iter().flatten().map(port).collect();
    // Kubernetes stores null instead of an empty list.
    let ports = if ports.is_empty() { Value::Null } else { ports.into() };
    Object(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": family, "endpoints": endpoints, "ports": ports,
    }))
}

fn update(row: &Row, wanted: Object, plan: &mut Plan) {
    let mut object = row.object();
    let fields: [&[&str]; 4] = [&["endpoints"], &["ports"], &["metadata", "labels"], &["metadata", "annotations"]];
    if fields.iter().all(|field| object.value_at(field) == wanted.value_at(field)) {
        return;
    }
    for field in fields {
        match wanted.value_at(field) {
            Some(value) => object.set(field, value.clone()),
            None => _ = object.unset(field),
        }
    }
    plan.write(WriteVerb::Update(object), "the Endpoints that it mirrors changed");
}

fn create(world: &World, row: &Arc<Row>, mut wanted: Object, plan: &mut Plan) {
    let base = format!("{}-", row.key.name);
    let name = free_name(world, SLICES, row, &base, plan.writes.len());
    let owner = Owner { row, api_version: "v1", kind: "Endpoints" };
    wanted.set(&["metadata", "name"], name);
    wanted.set(&["metadata", "generateName"], base);
    wanted.set(&["metadata", "ownerReferences"], vec![owner.reference().to_value()]);
    plan.write(WriteVerb::Create(wanted), "the Service has no selector, and its Endpoints list addresses");
}

#[cfg(test)]
mod tests {
    use super::SLICES;
    use crate::controllers::testing::cluster;
    use serde_json::{Value, json};

    const BY_HAND: &str = "
{apiVersion: v1, kind: Service, metadata: {name: db}, spec: {clusterIP: 127.77.128.5, ports: [{port: 5432, protocol: TCP}]}}
---
{apiVersion: v1, kind: Endpoints, metadata: {name: db, labels: {team: a}, annotations: {note: b, kubectl.kubernetes.io/last-applied-configuration: x}}, subsets: [{addresses: [{ip: 192.0.2.1}, {ip: '2001:db8::1'}], notReadyAddresses: [{ip: 192.0.2.2}], ports: [{port: 5432, protocol: TCP}]}]}
";

    #[test]
    fn endpoints_written_by_hand_have_slices_until_they_go() {
        for seed in 0..4 {
            let mut cluster = cluster(BY_HAND).seeded(seed);
            cluster.settle();
            let mut slices: Vec<Value> = cluster.world.list(SLICES).map(|row| row.object().0).collect();
            slices.sort_by_key(|slice| slice["addressType"].to_string());
            let mirrored: Vec<Value> = slices
                .iter()
                .map(|slice| json!([slice["addressType"], slice["endpoints"], slice["ports"][0]["port"]]))
                .collect();
            let at = |ip: &str, ready: bool| json!({"addresses": [ip], "conditions": {"ready": ready}});
            assert_eq!(mirrored[0], json!(["IPv4", [at("192.0.2.1", true), at("192.0.2.2", false)], 5432]));
            assert_eq!(mirrored[1], json!(["IPv6", [at("2001:db8::1", true)], 5432]));
            assert_eq!(slices[0]["metadata"]["labels"]["team"], "a");
            assert_eq!(slices[0]["metadata"]["annotations"], json!({"note": "b"}));
            cluster.patch("endpoints", "db", json!({"metadata": {"annotations": {"note": "c"}}}));
            cluster.settle();
            let notes = cluster.world.list(SLICES).map(|row| row.object().annotation("note").map(str::to_owned));
            assert_eq!(notes.collect::<Vec<_>>(), [Some("c".to_owned()), Some("c".to_owned())]);
            cluster.patch("endpoints", "db", json!({"subsets": [{"addresses": [{"ip": "192.0.2.9"}]}]}));
            cluster.settle();
            let left: Vec<Value> = cluster.world.list(SLICES).map(|row| row.object().0["endpoints"].clone()).collect();
            assert_eq!(left, [json!([at("192.0.2.9", true)])]);
            cluster.patch(
                "endpoints",
                "db",
                json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}),
            );
            cluster.settle();
            assert_eq!(cluster.count(SLICES), 0);
        }
    }
}
