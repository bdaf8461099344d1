//! The ingress controller: computes the routes of each Ingress and its status.
//!
//! Resolves the rules, default backend and certificates of an Ingress ([`IngressRoute`]). [`table`] matches requests.
//! All Ingresses share one address. kloop serves every Ingress whose class belongs to no other controller: without a
//! class, with a class that no IngressClass describes, or with a class of [`CONTROLLER`]. An Ingress without a class
//! gets the default class, if there is one. Never: selects endpoints. The proxy does so per request, from the routes of
//! Services. Start reading at [`LOOP`].

pub mod faults;
pub mod table;

use crate::kinds::ingress::CLASS_ANNOTATION;
use crate::kinds::shared::data_keys::decode_value;
use crate::object::{Key, Object, Str};
use crate::world::ingress_routes::{
    BackendPort, IngressBackend, IngressCertificate, IngressListener, IngressPath, IngressRoute,
};
use crate::world::{AppliedReport, Effect, EventType, Loop, Plan, Row, World, WriteVerb};
use serde_json::{Value, json};
use std::sync::Arc;

/// The loop of Ingresses.
pub const LOOP: Loop =
    Loop { name: "ingress-controller", root: INGRESSES, concerns, plan, reports: Some(reports), ..Loop::BASE };

/// A change of the listeners concerns every Ingress, whose status contains their addresses.
fn reports(world: &World, report: &AppliedReport) -> Vec<Key> {
    match report {
        AppliedReport::IngressListeners => world.list(INGRESSES).map(|row| row.key.clone()).collect(),
        _ => Vec::new(),
    }
}

/// `spec.controller` of the classes that kloop serves.
pub const CONTROLLER: &str = "kloop.dev/ingress";

const INGRESSES: &str = "ingresses.networking.k8s.io";
const CLASSES: &str = "ingressclasses.networking.k8s.io";
const SECRETS: &str = "secrets";

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let all = || world.list(INGRESSES);
    match row.key.resource.0 {
        INGRESSES => vec![row.key.clone()],
        CLASSES | "nodes" => all().map(|row| row.key.clone()).collect(),
        SECRETS => {
            let around = world.list_in(INGRESSES, &row.key.namespace);
            let names = |ingress: &&Arc<Row>| tls(&ingress.body()).any(|(secret, _)| secret == &*row.key.name);
            around.filter(|ingress| ingress.mentions(&row.key.name)).filter(names).map(|row| row.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let row = world.get(key);
    let served = row.filter(|row| !row.is_deleting() && is_served(world, &row.body()));
    let wanted = served.map(|row| ingress_route(world, row));
    let ordered = world.orders.ingress_routes.get(key);
    if wanted.as_ref() != ordered.map(|ordered| &**ordered) {
        if let Some(row) = served {
            warn(world, row, &mut plan);
        }
        plan.effects.push(Effect::SetIngress { ingress: key.clone(), ingress_route: wanted.clone().map(Arc::new) });
    }
    if let Some(row) = row.filter(|row| !row.is_deleting()) {
        write_status(world, row, wanted.as_ref(), &mut plan);
    }
    plan
}

/// The class of an Ingress. The default class is set when an Ingress is created and does not apply to existing ones.
fn class(ingress: &Object) -> Option<&str> {
    ingress.text(&["spec", "ingressClassName"]).or_else(|| ingress.annotation(CLASS_ANNOTATION))
}

/// Whether no other controller is responsible for its class.
fn is_served(world: &World, ingress: &Object) -> bool {
    let described = class(ingress).and_then(|class| world.find(CLASSES, "", class));
    described.is_none_or(|class| class.body().text(&["spec", "controller"]) == Some(CONTROLLER))
}

fn address(world: &World) -> String {
    format!("127.{}.255.1", world.settings.network)
}

fn ingress_route(world: &World, row: &Row) -> IngressRoute {
    let ingress = row.body();
    let namespace = &row.key.namespace;
    let rules = ingress.items(&["spec", "rules"]).iter();
    let rules = rules.flat_map(|rule| {
        let host: Str = rule["host"].as_str().unwrap_or_default().into();
        let paths = rule["http"]["paths"].as_array().into_iter().flatten();
        paths.map(move |path| IngressPath {
            host: host.clone(),
            path: path["path"].as_str().unwrap_or_default().into(),
            is_exact: path["pathType"] == "Exact",
            backend: backend(namespace, &path["backend"]),
        })
    });
    IngressRoute {
        address: address(world).into(),
        created: row.created,
        rules: rules.collect(),
        default: ingress.value_at(&["spec", "defaultBackend"]).and_then(|default| backend(namespace, default)),
        certificates: tls(&ingress).filter_map(|tls| certificate(world, namespace, tls).ok()).collect(),
    }
}

fn backend(namespace: &str, backend: &Value) -> Option<IngressBackend> {
    let service = &backend["service"];
    let port = match service["port"]["name"].as_str() {
        Some(name) if !name.is_empty() => BackendPort::Name(name.into()),
        _ => BackendPort::Number(u16::try_from(service["port"]["number"].as_i64()?).ok()?),
    };
    let service = Key::new(crate::object::Resource("services"), namespace, service["name"].as_str()?);
    Some(IngressBackend { service, port })
}

/// The TLS Secrets, each with its hosts.
fn tls(ingress: &Object) -> impl Iterator<Item = (&str, Vec<Str>)> {
    ingress.items(&["spec", "tls"]).iter().filter_map(|tls| {
        let hosts = tls["hosts"].as_array().into_iter().flatten().filter_map(|host| host.as_str().map(Str::from));
        Some((tls["secretName"].as_str().filter(|name| !name.is_empty())?, hosts.collect()))
    })
}

/// The certificate; the error describes the problem of the Secret.
fn certificate(world: &World, namespace: &str, (name, hosts): (&str, Vec<Str>)) -> Result<IngressCertificate, String> {
    let secret = world.find(SECRETS, namespace, name).ok_or_else(|| format!("secret \"{name}\" not found"))?;
    let secret = secret.body();
    let pem = |key: &str, mark: &str| {
        let text = secret.text(&["data", key]).ok_or_else(|| format!("secret \"{name}\" has no {key}"))?;
        let bytes = decode_value(text);
        let is_pem = memchr::memmem::find(&bytes, mark.as_bytes()).is_some();
        if is_pem { Ok(bytes) } else { Err(format!("{key} of secret \"{name}\" has no {mark} in PEM format")) }
    };
    Ok(IngressCertificate { hosts, chain: pem("tls.crt", "BEGIN CERTIFICATE")?, key: pem("tls.key", "PRIVATE KEY")? })
}

/// Reports the parts of an Ingress that cannot be served as written.
fn warn(world: &World, row: &Row, plan: &mut Plan) {
    let ingress = row.body();
    for tls in tls(&ingress) {
        if let Err(why) = certificate(world, &row.key.namespace, tls) {
            plan.event(row, EventType::Warning, "BadCertificate", format!("no TLS for its hosts: {why}"));
        }
    }
    let paths = ingress.items(&["spec", "rules"]).iter().flat_map(|rule| rule["http"]["paths"].as_array());
    let backends = paths.flatten().map(|path| &path["backend"]).chain(ingress.value_at(&["spec", "defaultBackend"]));
    for resource in backends.filter_map(|backend| backend.get("resource")) {
        let (kind, name) = (&resource["kind"], &resource["name"]);
        let text = format!("kloop does not serve resource backends such as {kind} {name}: requests for it get 503");
        plan.event(row, EventType::Warning, "UnsupportedBackend", text);
    }
    for (annotation, _) in ingress.pairs(&["metadata", "annotations"]) {
        if annotation.contains("ingress.kubernetes.io/") {
            let text = format!("annotation {annotation} is for another controller, and has no effect");
            plan.event(row, EventType::Warning, "IgnoredAnnotation", text);
        }
    }
}

/// Updates the status with the address. Without a local node there is no proxy, and so no address.
fn write_status(world: &World, row: &Row, ingress_route: Option<&IngressRoute>, plan: &mut Plan) {
    let ingress = row.body();
    let has = ingress.value_at(&["status", "loadBalancer", "ingress"]).unwrap_or(&Value::Null);
    let listeners = &world.facts.ingress_listeners;
    let Some(ingress_route) = ingress_route else {
        // Keeps an address that another controller has set.
        if has[0]["ip"] == address(world) {
            plan.write(with_status(&ingress, json!({})), "its class is another controller's");
        }
        return;
    };
    if world.facts.real_nodes().next().is_none() {
        return;
    }
    let is_secure = !ingress_route.certificates.is_empty();
    let wanted: Vec<&IngressListener> =
        std::iter::once(&listeners.http).chain(is_secure.then_some(&listeners.https)).collect();
    if wanted.iter().any(|listener| listener.port == 0) {
        return;
    }
    let ports: Vec<Value> = wanted.iter().map(|listener| json!({"port": listener.port, "protocol": "TCP"})).collect();
    let status = json!([{"ip": ingress_route.address, "ports": ports}]);
    // Controllers of any class may serve an Ingress without one; two would replace each other's addresses forever.
    if *has == status || class(&ingress).is_none() && has_other_address(has) {
        return;
    }
    let texts = ["http", "https"].into_iter().zip(&wanted).map(|(scheme, listener)| {
        let usual = format!("; in pods {scheme}://{}/", ingress_route.address);
        place(scheme, &ingress_route.address, listener, if world.settings.pod_network { &usual } else { "" })
    });
    let text = format!("Scheduled for sync: answers at {}", texts.collect::<Vec<_>>().join(" and "));
    plan.event(row, EventType::Normal, "Sync", text.clone());
    plan.write(with_status(&ingress, json!({"ingress": status})), text);
}

/// Whether the addresses in a status are those of another controller: kloop's are loopback addresses.
fn has_other_address(addresses: &Value) -> bool {
    let is_other = |address: &Value| !address["ip"].as_str().is_some_and(|ip| ip.starts_with("127."));
    addresses.as_array().is_some_and(|addresses| addresses.iter().any(is_other))
}

/// Formats `http://127.9.255.1:8080 (port 80: permission denied; in pods http://127.9.255.1/)`: on the pod network, the
/// usual port works.
fn place(scheme: &str, address: &str, listener: &IngressListener, usual: &str) -> String {
    match (&*listener.instead, listener.port) {
        ("", 80 | 443) => format!("{scheme}://{address}/"),
        ("", port) => format!("{scheme}://{address}:{port}/"),
        (instead, port) => format!("{scheme}://{address}:{port}/ ({instead}{usual})"),
    }
}

fn with_status(ingress: &Object, balancer: Value) -> WriteVerb {
    let mut changed = ingress.clone();
    changed.set(&["status", "loadBalancer"], balancer);
    WriteVerb::Status(changed)
}

#[cfg(test)]
mod tests;
