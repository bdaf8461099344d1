//! kube-proxy: selects the endpoints of each Service: the ready ones, or else terminating ones that still serve.

use super::node_links::find_link;
use crate::object::{Key, Object, Str};
use crate::world::plan::{HeadlessEndpoint, Route, RoutePort};
use crate::world::resources::SIMULATED;
use crate::world::{AppliedReport, Effect, EventType, Loop, Memory, Plan, Row, SERVICE_NAME, SLICES, World};
use serde_json::Value;
use std::collections::HashMap;

/// The loop, named after Kubernetes' component.
pub const LOOP: Loop =
    Loop { name: "kube-proxy", root: SERVICES, concerns, plan, reports: Some(reports), ..Loop::BASE };

fn reports(_world: &World, report: &AppliedReport) -> Vec<Key> {
    match report {
        AppliedReport::Blocked(key) if key.resource == SERVICES => vec![key.clone()],
        _ => Vec::new(),
    }
}

const SERVICES: &str = "services";

/// Values of `appProtocol` for HTTP/2 without TLS: the standard one of Kubernetes, and those of Istio and others for
/// gRPC.
const H2: [&str; 3] = ["kubernetes.io/h2c", "grpc", "h2c"];

/// Label of the EndpointSlices of Services without an address, which kube-proxy ignores for Services with one, too.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// Labels of the Services that kube-proxy ignores.
const OTHER_PROXY_LABELS: [&str; 2] = ["service.kubernetes.io/service-proxy-name", HEADLESS];

/// Port at which the advice about a blocked port suggests to forward.
const LOCAL_PORT: u16 = 8080;

/// Default idle time after which session affinity ends, in seconds.
const AFFINITY_SECONDS: u32 = 10_800;

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        SERVICES => vec![row.key.clone()],
        SLICES => {
            let service = row.label(SERVICE_NAME);
            let key = |name| Key::new(crate::object::Resource(SERVICES), &row.key.namespace, name);
            service.map(key).into_iter().collect()
        }
        // Endpoints on a machine that is linked become reachable.
        "nodes" if row.node().is_some_and(|node| node.link.is_some()) => {
            world.list(SERVICES).map(|row| row.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// Orders the routes of a Service when they differ from the last order.
fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let wanted = world.get(key).and_then(|row| route(world, row));
    let ordered = world.orders.routes.get(key);
    let text = |at: &str, why: &str| blocked_port_text(&key.name, at, why);
    // The Service of the API is not reported: users did not create it, and programs of the machine use the server directly. An ordinary
    // user may not bind its port 443.
    if !is_api(key) {
        report_blocked(world, key, &mut plan, text);
    }
    if wanted.as_ref() == ordered {
        return plan;
    }
    let stays = |address: &&Str| wanted.as_ref().is_some_and(|wanted| wanted.addresses().any(|one| one == *address));
    let lost: Vec<Str> = ordered.into_iter().flat_map(Route::addresses).filter(|one| !stays(one)).cloned().collect();
    // A route without addresses has a name, which has to go with it.
    if !lost.is_empty() || wanted.is_none() {
        let route = Route { balancers: lost, ..Route::default() };
        plan.effects.push(Effect::Route { service: key.clone(), route });
    }
    if let Some(route) = wanted {
        plan.effects.push(Effect::Route { service: key.clone(), route });
    }
    plan
}

/// The message about a port of a Service at which this machine cannot listen.
fn blocked_port_text(service: &str, at: &str, why: &str) -> String {
    let port = at.rsplit(':').next().and_then(|end| end.split('/').next()).unwrap_or_default();
    format!(
        "cannot listen at {at} for programs outside of pods: {why}. Pods in the pod network still reach the Service. Programs outside reach it \
         by `kloop port-forward service/{service} {LOCAL_PORT}:{port}`, or choose another port, from 1024 up for an ordinary user."
    )
}

/// Plans an event for each blocked listener of a Service or pod, and one when all listeners are available again.
pub(super) fn report_blocked(world: &World, key: &Key, plan: &mut Plan, text: impl Fn(&str, &str) -> String) {
    let Some(listeners) = world.facts.blocked.get(key) else { return };
    // A gateway repeats its report to every new control plane.
    if world.loop_memory.reported_listeners.get(key) == Some(listeners) {
        return;
    }
    let row = world.get(key);
    if row.is_none() && !listeners.is_empty() {
        return;
    }
    plan.memory.push(Memory::ListenersReported { about: key.clone() });
    let Some(row) = row else { return };
    if listeners.is_empty() {
        plan.event(row, EventType::Normal, "PortAvailable", "all of its ports are available again".to_owned());
    }
    for listener in listeners {
        let at = format!("{}/{}", listener.at, if listener.is_udp { "UDP" } else { "TCP" });
        plan.event(row, EventType::Warning, "PortUnavailable", text(&at, &listener.why));
    }
}

/// The route of a Service; `None` for one without address, name or members.
pub(super) fn route(world: &World, row: &Row) -> Option<Route> {
    let service = row.body();
    let text = |field: &str| service.text(&["spec", field]).unwrap_or_default();
    let address = Some(text("clusterIP")).filter(|ip| *ip != "None").unwrap_or_default();
    let slices = world.slices_of(&row.key.namespace, &row.key.name);
    let mut slices: Vec<Object> = slices.map(|slice| slice.object()).collect();
    slices.retain(|slice| address.is_empty() || slice.label(HEADLESS).is_none());
    slices.iter_mut().for_each(|slice| drop_other_machines(world, slice));
    if text("internalTrafficPolicy") == "Local" {
        slices.iter_mut().for_each(|slice| keep_local(world, slice));
    }
    let slices: Vec<SliceIndex> = slices.iter().map(|slice| SliceIndex::new(world, slice)).collect();
    let seconds =
        service.value_at(&["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"]).and_then(Value::as_u64);
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(AFFINITY_SECONDS);
    let sticky = (text("sessionAffinity") == "ClientIP").then_some(seconds);
    let port = |port: &Value| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP").into();
        let name: Str = port["name"].as_str().unwrap_or_default().into();
        let number = |field: &str| u16::try_from(port[field].as_i64()?).ok();
        let node_port = number("nodePort").filter(|port| *port > 0);
        let mut endpoints = endpoints(&slices, &name);
        if endpoints.is_empty() && is_api(&row.key) {
            endpoints.extend(world.settings.pod_api.clone());
        }
        let is_h2 = H2.contains(&port["appProtocol"].as_str().unwrap_or_default());
        let port = number("port")?;
        let is_open = slices.iter().any(|slice| slice.is_open(&name, port));
        Some(RoutePort { name, protocol, port, node_port, is_open, sticky, is_h2, endpoints })
    };
    let ports = service.items(&["spec", "ports"]);
    let route = Route {
        address: address.into(),
        balancers: balancers(&service),
        alias: if text("type") == "ExternalName" { text("externalName").into() } else { "".into() },
        members: if address.is_empty() { members(&slices) } else { Vec::new() },
        ports: if is_left_to_others(row) { Vec::new() } else { ports.iter().filter_map(port).collect() },
    };
    (!route.is_empty()).then_some(route)
}

/// Whether labels of a Service say that kube-proxy leaves its address to another program.
fn is_left_to_others(service: &Row) -> bool {
    OTHER_PROXY_LABELS.iter().any(|label| service.label(label).is_some())
}

/// Whether a Service is that of the API.
fn is_api(service: &Key) -> bool {
    (&*service.namespace, &*service.name) == ("default", "kubernetes")
}

/// The ports and endpoints of an EndpointSlice, looked up for each port of a Service, which can have thousands.
struct SliceIndex<'s> {
    /// The number of each port, by name. The first one of a name counts.
    numbers: HashMap<&'s str, i64>,
    /// Whether one of its pods is on the network of a machine.
    has_host_pod: bool,
    endpoints: &'s [Value],
}

impl<'s> SliceIndex<'s> {
    fn new(world: &World, slice: &'s Object) -> SliceIndex<'s> {
        let own = format!("127.{}.", world.settings.network);
        let is_on_machine = |endpoint: &Value| {
            let is_pods = endpoint["targetRef"]["kind"] == "Pod";
            let address = endpoint["addresses"][0].as_str().unwrap_or_default();
            !world.settings.pod_network || (is_pods && !address.starts_with(&own))
        };
        let mut numbers = HashMap::new();
        for port in slice.items(&["ports"]) {
            numbers.entry(port["name"].as_str().unwrap_or_default()).or_insert_with(|| port["port"].as_i64());
        }
        let endpoints = slice.items(&["endpoints"]);
        SliceIndex {
            numbers: numbers.into_iter().filter_map(|(name, number)| Some((name, number?))).collect(),
            has_host_pod: endpoints.iter().any(is_on_machine),
            endpoints,
        }
    }

    /// Whether a hostNetwork pod, ready or not, is behind this port and listens on the same number. It usually listens on
    /// all addresses and so answers at the Service's address itself; a proxy could not listen there.
    fn is_open(&self, name: &str, port: u16) -> bool {
        self.has_host_pod && self.numbers.get(name) == Some(&port.into())
    }

    /// `address:port` of the endpoints that count.
    fn addresses(&self, port: &str, counts: fn(&Value) -> bool) -> impl Iterator<Item = Str> {
        self.numbers.get(port).into_iter().flat_map(move |number| {
            let endpoints = self.endpoints.iter().filter(move |endpoint| counts(&endpoint["conditions"]));
            let addresses = endpoints.filter_map(|endpoint| endpoint["addresses"][0].as_str());
            addresses.map(move |address| format!("{address}:{number}").into())
        })
    }
}

/// Removes pods on other machines without a link: their addresses are of loopback, which leads to this machine.
fn drop_other_machines(world: &World, slice: &mut Object) {
    if let Some(Value::Array(endpoints)) = slice.0.get_mut("endpoints") {
        endpoints.retain(|endpoint| {
            let is_loopback = endpoint["addresses"][0].as_str().is_some_and(|address| address.starts_with("127."));
            let node = endpoint["nodeName"].as_str().filter(|_| is_loopback);
            !node.is_some_and(|node| is_other_machine(world, node))
        });
    }
}

/// Whether a node is another machine to which no link exists: a joined node, a node with its own end of links, or, on a joined node itself,
/// every node that it does not know as linked.
fn is_other_machine(world: &World, node: &str) -> bool {
    let is_joined = |row: &Row| row.node().is_some_and(|node| node.is_joined);
    let has_end = |row: &Row| row.node().is_some_and(|node| node.link.is_some());
    let has_joined = || world.list("nodes").any(|row| is_joined(row) && world.facts.runs_node(&row.key.name));
    !world.facts.runs_node(node)
        && match world.find("nodes", "", node) {
            Some(row) => find_link(world, row).is_none() && (is_joined(row) || has_end(row) || has_joined()),
            None => world.list("nodes").any(|row| is_joined(row)),
        }
}

/// Removes endpoints on simulated nodes and on linked machines; all other nodes are this machine.
fn keep_local(world: &World, slice: &mut Object) {
    let is_elsewhere = |node: &str| {
        let Some(row) = world.find("nodes", "", node) else { return false };
        let is_simulated = row.node().is_some_and(|node| node.runtime.as_deref() == Some(SIMULATED));
        is_simulated || find_link(world, row).is_some()
    };
    if let Some(Value::Array(endpoints)) = slice.0.get_mut("endpoints") {
        endpoints.retain(|endpoint| !endpoint["nodeName"].as_str().is_some_and(is_elsewhere));
    }
}

fn balancers(service: &Object) -> Vec<Str> {
    let ingress = service.items(&["status", "loadBalancer", "ingress"]).iter();
    ingress.filter_map(|one| one["ip"].as_str().map(Str::from)).collect()
}

/// Returns the ready pods behind a headless Service, with their host names.
fn members(slices: &[SliceIndex]) -> Vec<HeadlessEndpoint> {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints);
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] != Value::Bool(false));
    let member = |endpoint: &Value| {
        let hostname = endpoint["hostname"].as_str().unwrap_or_default().into();
        Some(HeadlessEndpoint { address: endpoint["addresses"][0].as_str()?.into(), hostname })
    };
    let mut members: Vec<HeadlessEndpoint> = ready.filter_map(member).collect();
    members.sort();
    members.dedup();
    members
}

/// Endpoints of a named port: ready ones, or else terminating ones that still serve (KEP-1669).
fn endpoints(slices: &[SliceIndex], port: &str) -> Vec<Str> {
    let counted = |counts: fn(&Value) -> bool| -> Vec<Str> {
        let mut found: Vec<Str> = slices.iter().flat_map(|slice| slice.addresses(port, counts)).collect();
        found.sort();
        found.dedup();
        found
    };
    let ready = counted(|conditions| conditions["ready"] != Value::Bool(false));
    if !ready.is_empty() {
        return ready;
    }
    counted(|conditions| conditions["serving"] == Value::Bool(true) && conditions["terminating"] == Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Resource, Time};
    use crate::world::ingress_routes::BlockedListener;
    use serde_json::json;

    fn put(world: &mut World, resource: &'static str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        world.put(Key::new(Resource(resource), "default", &name), object.to_string().into());
    }

    fn world(endpoints: Value) -> World {
        let mut world = World::new(Time::UNIX_EPOCH);
        let meta =
            |name: &str| json!({"name": name, "namespace": "default", "uid": name, "labels": {SERVICE_NAME: "web"}});
        let ports =
            json!([{"name": "http", "port": 80, "targetPort": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        put(
            &mut world,
            SERVICES,
            json!({"metadata": meta("web"), "spec": {"clusterIP": "127.9.128.7", "ports": ports}}),
        );
        let ports = json!([{"name": "http", "port": 8080}]);
        put(&mut world, SLICES, json!({"metadata": meta("web-1"), "ports": ports, "endpoints": endpoints}));
        world
    }

    fn endpoint(ip: &str, ready: bool, serving: bool, terminating: bool) -> Value {
        json!({"addresses": [ip], "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
    }

    fn http(world: &mut World) -> Vec<String> {
        let key = Key::new(Resource(SERVICES), "default", "web");
        let plan = plan(world, &key);
        for effect in &plan.effects {
            world.note_order(effect);
        }
        assert!(super::plan(world, &key).effects.is_empty(), "ordered once");
        let [Effect::Route { route, .. }] = &plan.effects[..] else { panic!("{:?}", plan.effects) };
        assert_eq!((&*route.address, route.ports[1].port, route.ports[1].endpoints.len()), ("127.9.128.7", 53, 0));
        route.ports[0].endpoints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn blocked_listener_is_reported_unless_the_service_is_that_of_the_api() {
        let mut world = World::new(Time::UNIX_EPOCH);
        let listener = BlockedListener {
            at: "127.2.128.1:443".parse().unwrap(),
            is_udp: false,
            is_reserved: false,
            why: "permission denied".into(),
        };
        let mut reasons = |name: &str| -> Vec<String> {
            let port = json!({"name": "https", "port": 443});
            let metadata = json!({"name": name, "namespace": "default"});
            put(
                &mut world,
                SERVICES,
                json!({"metadata": metadata, "spec": {"clusterIP": "127.2.128.1", "ports": [port]}}),
            );
            let key = Key::new(Resource(SERVICES), "default", name);
            let report = crate::world::Report::Blocked { about: key.clone(), listeners: vec![listener.clone()] };
            world.facts.apply_report(report);
            plan(&world, &key).events.iter().map(|event| event.reason.to_string()).collect()
        };
        assert_eq!(reasons("web"), ["PortUnavailable"]);
        assert!(reasons("kubernetes").is_empty());
    }

    #[test]
    fn names_go_with_their_service() {
        let mut world = World::new(Time::default());
        let alias = json!({"metadata": {"name": "a"}, "spec": {"type": "ExternalName", "externalName": "example.com"}});
        let headless = json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None"}});
        let slice = json!({"metadata": {"name": "h", "labels": {SERVICE_NAME: "h"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.9.1.5"], "conditions": {"ready": true}}]});
        put(&mut world, SERVICES, alias);
        put(&mut world, SERVICES, headless);
        put(&mut world, SLICES, slice);
        let order = |world: &mut World, name: &str| -> Vec<bool> {
            let effects = plan(world, &Key::new(Resource(SERVICES), "default", name)).effects;
            effects.iter().for_each(|effect| world.note_order(effect));
            effects.iter().map(|effect| matches!(effect, Effect::Route { route, .. } if route.is_empty())).collect()
        };
        assert_eq!((order(&mut world, "a"), order(&mut world, "h")), (vec![false], vec![false]));
        world.remove(&Key::new(Resource(SERVICES), "default", "a"));
        world.remove(&Key::new(Resource(SLICES), "default", "h"));
        for name in ["a", "h"] {
            assert_eq!(order(&mut world, name), [true], "{name} keeps its name");
            assert!(order(&mut world, name).is_empty());
        }
    }

    #[test]
    fn service_of_the_api_leads_to_the_control_plane_unless_a_server_is_advertised() {
        let mut world = World::new(Time::default());
        let port = json!({"name": "https", "port": 443});
        let service =
            |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": "127.2.128.1", "ports": [port]}});
        put(&mut world, "services", service("kubernetes"));
        put(&mut world, "services", service("other"));
        world.settings.pod_api = Some("127.2.255.2:6443".into());
        let shown = |world: &World, name: &str| {
            let row = world.find("services", "default", name).unwrap();
            route(world, row).unwrap().ports[0].endpoints.iter().map(|one| one.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shown(&world, "kubernetes"), ["127.2.255.2:6443"]);
        assert!(shown(&world, "other").is_empty());
        let slice = json!({"metadata": {"name": "kubernetes", "labels": {SERVICE_NAME: "kubernetes"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"name": "https", "port": 8001}]});
        put(&mut world, SLICES, slice);
        assert_eq!(shown(&world, "kubernetes"), ["127.0.0.1:8001"]);
    }

    #[test]
    fn route_has_ready_or_else_terminating_endpoints() {
        let going = endpoint("127.9.1.1", false, true, true);
        let mut mixed = world(json!([
            going,
            endpoint("127.9.1.3", true, true, false),
            endpoint("127.9.1.2", true, true, false),
            endpoint("127.9.1.4", false, false, false)
        ]));
        assert_eq!(http(&mut mixed), ["127.9.1.2:8080", "127.9.1.3:8080"]);
        assert_eq!(http(&mut world(json!([going]))), ["127.9.1.1:8080"]);
        assert_eq!(http(&mut world(json!([]))), [""; 0]);
    }

    #[test]
    fn service_of_another_proxy_has_only_its_address() {
        for label in OTHER_PROXY_LABELS {
            let mut world = world(json!([endpoint("127.9.1.3", true, true, false)]));
            let key = Key::new(Resource(SERVICES), "default", "web");
            let mut service = world.get(&key).unwrap().object();
            service.0["metadata"]["labels"][label] = "".into();
            put(&mut world, SERVICES, service.0);
            let plan = plan(&world, &key);
            let [Effect::Route { route, .. }] = &plan.effects[..] else { panic!("{:?}", plan.effects) };
            assert_eq!((&*route.address, route.ports.len()), ("127.9.128.7", 0), "{label}");
        }
    }

    #[test]
    fn endpoints_of_a_headless_slice_are_not_behind_an_address() {
        let mut world = world(json!([endpoint("127.9.1.3", true, true, false)]));
        assert_eq!(http(&mut world), ["127.9.1.3:8080"]);
        let mut slice = world.slices_of("default", "web").next().expect("a slice").object();
        slice.0["metadata"]["labels"][HEADLESS] = "".into();
        put(&mut world, "endpointslices.discovery.k8s.io", slice.0);
        assert_eq!(http(&mut world), [""; 0]);
    }

    #[test]
    fn host_network_pod_listens_on_the_port_of_its_service() {
        let target = json!({"kind": "Pod", "name": "p"});
        let pod =
            |ip: &str, ready: bool| json!({"addresses": [ip], "conditions": {"ready": ready}, "targetRef": target});
        let mut server = pod("127.0.0.1", true);
        server.as_object_mut().unwrap().remove("targetRef");
        let table = [
            (json!([pod("127.9.1.3", true)]), 8080, true, false),
            (json!([pod("127.0.0.1", true)]), 8080, true, true),
            (json!([pod("127.0.0.1", false), pod("127.9.1.3", true)]), 8080, true, true),
            (json!([pod("127.0.0.1", true)]), 80, true, false),
            (json!([server]), 8080, true, false),
            (json!([server]), 8080, false, true),
            (json!([]), 8080, false, false),
        ];
        for (endpoints, port, pod_network, expected) in table {
            let mut world = world(endpoints.clone());
            (world.settings.network, world.settings.pod_network) = (9, pod_network);
            let key = Key::new(Resource(SERVICES), "default", "web");
            let mut service = world.get(&key).unwrap().object();
            service.0["spec"]["ports"] = json!([{"name": "http", "port": port, "targetPort": 8080}]);
            world.put(key.clone(), service.0.to_string().into());
            let route = route(&world, world.get(&key).unwrap()).unwrap();
            assert_eq!(route.ports[0].is_open, expected, "{endpoints} {port} {pod_network}");
        }
    }

    #[test]
    fn local_traffic_stays_on_the_machine() {
        let on = |ip: &str, node: &str| json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": true}});
        let mut world = world(json!([on("127.9.1.2", "here"), on("127.9.1.3", "far")]));
        let node = |name: &str, notes: Value| json!({"metadata": {"name": name, "uid": name, "annotations": notes}});
        world.put(Key::new(Resource("nodes"), "", "here"), node("here", json!({})).to_string().into());
        world.put(
            Key::new(Resource("nodes"), "", "far"),
            node("far", json!({crate::world::resources::RUNTIME: SIMULATED})).to_string().into(),
        );
        assert_eq!(http(&mut world), ["127.9.1.2:8080", "127.9.1.3:8080"]);
        let key = Key::new(Resource(SERVICES), "default", "web");
        let mut service = world.get(&key).unwrap().object();
        service.set(&["spec", "internalTrafficPolicy"], "Local");
        world.put(key, service.0.to_string().into());
        assert_eq!(http(&mut world), ["127.9.1.2:8080"]);
    }

    #[test]
    fn pods_on_other_machines_are_left_out() {
        let on = |ip: &str, node: &str| json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": true}});
        let endpoints = json!([on("127.9.1.2", "here"), on("127.9.1.3", "far"), on("10.0.0.7", "far")]);
        let node = |name: &str| {
            let notes = json!({crate::world::resources::MACHINE: "m"});
            json!({"metadata": {"name": name, "uid": name, "annotations": notes}}).to_string()
        };
        let put_node = |world: &mut World, name: &str| {
            world.put(Key::new(Resource("nodes"), "", name), node(name).into());
        };
        let own = crate::world::NodeFacts { ours: true, ..crate::world::NodeFacts::default() };
        // The control plane knows the node that has joined.
        let mut plane = world(endpoints.clone());
        put_node(&mut plane, "far");
        let here = json!({"metadata": {"name": "here", "uid": "here"}}).to_string();
        plane.put(Key::new(Resource("nodes"), "", "here"), here.into());
        assert_eq!(http(&mut plane), ["10.0.0.7:8080", "127.9.1.2:8080"]);
        // The node knows only itself.
        let mut joined = world(endpoints);
        put_node(&mut joined, "far");
        joined.facts.nodes.insert("far".into(), own);
        assert_eq!(http(&mut joined), ["10.0.0.7:8080", "127.9.1.3:8080"]);
    }

    #[test]
    fn pods_on_linked_machines_are_reached() {
        let on = |ip: &str, node: &str| json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": true}});
        let mut world = world(json!([on("127.9.1.2", "here"), on("127.9.64.3", "far"), on("127.9.65.3", "unlinked")]));
        let own = crate::world::NodeFacts { ours: true, ..crate::world::NodeFacts::default() };
        world.facts.nodes.insert("here".into(), own);
        for (name, block, link) in
            [("here", "127.9.0.0/18", true), ("far", "127.9.64.0/25", true), ("unlinked", "127.9.65.0/25", false)]
        {
            let mut notes = json!({crate::world::resources::MACHINE: "m"});
            if link {
                notes[crate::world::resources::LINK] = "10.0.0.1:10245".into();
            }
            let node =
                json!({"metadata": {"name": name, "uid": name, "annotations": notes}, "spec": {"podCIDR": block}});
            world.put(Key::new(Resource("nodes"), "", name), node.to_string().into());
        }
        assert_eq!(http(&mut world), ["127.9.1.2:8080", "127.9.64.3:8080"]);
        let key = Key::new(Resource(SERVICES), "default", "web");
        let mut service = world.get(&key).unwrap().object();
        service.set(&["spec", "internalTrafficPolicy"], "Local");
        world.put(key, service.0.to_string().into());
        assert_eq!(http(&mut world), ["127.9.1.2:8080"], "the traffic stays on this machine");
    }

    #[test]
    fn headless_service_has_members() {
        let mut named = endpoint("127.9.1.3", true, true, false);
        named["hostname"] = "db-0".into();
        let mut world = world(json!([named, endpoint("127.9.1.4", false, false, false)]));
        let spec = json!({"clusterIP": "None"});
        put(
            &mut world,
            SERVICES,
            json!({"metadata": {"name": "web", "namespace": "default", "uid": "web"}, "spec": spec}),
        );
        let key = Key::new(Resource(SERVICES), "default", "web");
        let members = vec![HeadlessEndpoint { address: "127.9.1.3".into(), hostname: "db-0".into() }];
        let route = Route { members, ..Route::default() };
        assert_eq!(plan(&world, &key).effects, [Effect::Route { service: key, route }]);
    }

    #[test]
    fn deleted_service_has_no_route() {
        let mut world = world(json!([endpoint("127.9.1.3", true, true, false)]));
        http(&mut world);
        let key = Key::new(Resource(SERVICES), "default", "web");
        world.remove(&key);
        let plan = plan(&world, &key);
        let nowhere = Route { balancers: vec!["127.9.128.7".into()], ..Route::default() };
        assert_eq!(plan.effects, [Effect::Route { service: key.clone(), route: nowhere }]);
        world.note_order(&plan.effects[0]);
        assert!(super::plan(&world, &key).effects.is_empty());
    }
}
