//! Problems because of which an Ingress is not served as written.

use super::{CLASSES, CONTROLLER, certificate, class, is_served, tls};
use crate::network::routes;
use crate::object::Object;
use crate::world::{Row, World};
use serde_json::Value;

/// A problem of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressFault {
    /// The problem.
    pub what: String,
    /// The remedy; `None` when the Service exists but has no endpoints, which the Service itself explains.
    pub next: Option<String>,
}

/// All problems, the worst first; none for an Ingress of another controller.
pub fn faults(world: &World, row: &Row) -> Vec<IngressFault> {
    let ingress = row.body();
    if !is_served(world, &ingress) {
        return Vec::new();
    }
    let mut faults: Vec<IngressFault> =
        backends(&ingress).filter_map(|(place, backend)| backend_fault(world, row, &place, backend)).collect();
    faults.extend(tls(&ingress).filter_map(|tls| {
        let (name, why) = (tls.0, certificate(world, &row.key.namespace, tls).err()?);
        let next = format!("kloop create secret tls {name} --cert=FILE --key=FILE -n {}", row.key.namespace);
        Some(IngressFault { what: format!("no TLS: {why}"), next: Some(next) })
    }));
    // Stable order; problems that need a change are first.
    faults.sort_by_key(|fault| fault.next.is_none());
    faults.dedup();
    faults
}

/// Describes the other controller that is responsible for an Ingress because of its class.
pub fn other_controller(world: &World, row: &Row) -> Option<String> {
    let ingress = row.body();
    if is_served(world, &ingress) {
        return None;
    }
    let class = class(&ingress).unwrap_or_default();
    let described = world.find(CLASSES, "", class).map(|class| class.body());
    let controller = described.as_ref().and_then(|class| class.text(&["spec", "controller"])).unwrap_or_default();
    Some(format!(
        "its class {class:?} belongs to the controller {controller}, which is not kloop's ({CONTROLLER}): kloop does not serve it"
    ))
}

/// Every backend with a description of its rule.
fn backends(ingress: &Object) -> impl Iterator<Item = (String, &Value)> {
    let rules = ingress.items(&["spec", "rules"]).iter().flat_map(|rule| {
        let host = rule["host"].as_str().unwrap_or("*");
        let paths = rule["http"]["paths"].as_array().into_iter().flatten();
        paths.map(move |path| (format!("{host}{}", path["path"].as_str().unwrap_or("/")), &path["backend"]))
    });
    let default =
        ingress.value_at(&["spec", "defaultBackend"]).into_iter().map(|backend| ("the default".into(), backend));
    rules.chain(default)
}

fn backend_fault(world: &World, row: &Row, place: &str, backend: &Value) -> Option<IngressFault> {
    let fault = |what: String, next: Option<String>| Some(IngressFault { what: format!("{place}: {what}"), next });
    if let Some(resource) = backend.get("resource") {
        let what = format!("kloop does not serve resource backends such as {} {}", resource["kind"], resource["name"]);
        return fault(what, Some("set a Service as backend".into()));
    }
    let name = backend["service"]["name"].as_str()?;
    let Some(service) = world.find("services", &row.key.namespace, name) else {
        let next = format!("apply the Service {name:?}, or correct the Ingress");
        return fault(format!("there is no Service {name:?}"), Some(next));
    };
    let route = routes::route(world, service);
    if route.as_ref().is_some_and(|route| !route.alias.is_empty()) {
        return None;
    }
    let port = &backend["service"]["port"];
    let (number, named) = (port["number"].as_i64(), port["name"].as_str().unwrap_or_default());
    let shown = number.map_or_else(|| format!("{named:?}"), |number| number.to_string());
    let service = service.body();
    let is_it = |one: &&Value| number.map_or(one["name"] == *named, |number| one["port"].as_i64() == Some(number));
    let Some(declared) = service.items(&["spec", "ports"]).iter().find(is_it) else {
        let next = format!("add the port {shown} to the Service {name:?}, or correct the Ingress");
        return fault(format!("Service {name:?} has no port {shown}"), Some(next));
    };
    let mut ports = route.into_iter().flat_map(|route| route.ports);
    let has_endpoint =
        ports.any(|port| declared["port"].as_i64() == Some(port.port.into()) && !port.endpoints.is_empty());
    if has_endpoint { None } else { fault(format!("Service {name:?} has no ready endpoint"), None) }
}
