//! Ingresses and their classes.

use super::age::age_since;
use super::body::{BodyRead, text_or};
use super::service::{endpoints, first_few, load_balancer_addresses, slices_of};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of ingresses.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

/// The view of ingress classes.
pub static CLASS: KindView = KindView { columns: CLASS_COLUMNS, cells: class_cells, describe: describe_class };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Class"),
    Column::text("Hosts"),
    Column::text("Address"),
    Column::text("Ports"),
    Column::text("Age"),
];

const CLASS_COLUMNS: &[Column] =
    &[Column::text("Name"), Column::text("Controller"), Column::text("Parameters"), Column::text("Age")];

/// Maximum number of listed hosts; further ones are only counted.
const HOSTS_SHOWN: usize = 3;

fn cells(ingress: &Object, now: Time) -> Vec<TableCell> {
    let body = &ingress.0;
    let hosts: Vec<String> = body
        .list("spec.rules")
        .iter()
        .map(|rule| rule.text("host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    vec![
        ingress.name().into(),
        TableCell::or_none(body.text("spec.ingressClassName")),
        text_or(&first_few(&hosts, HOSTS_SHOWN), "*").into(),
        load_balancer_addresses(body.value_at("status.loadBalancer")).into(),
        ports(body).into(),
        age_since(ingress.created(), now).into(),
    ]
}

/// The ports in the status; until they are set, the ports that kubectl always prints.
fn ports(body: &Value) -> String {
    let points = body.list("status.loadBalancer.ingress").iter().flat_map(|point| point.list("ports"));
    let ports: Vec<String> = points.map(|port| port.plain("port")).collect();
    match (ports.is_empty(), body.list("spec.tls").is_empty()) {
        (false, _) => ports.join(", "),
        (true, true) => "80".into(),
        (true, false) => "80, 443".into(),
    }
}

/// Returns a note with the ports on the pod network, if they differ from the ports on the machine.
fn note_of_ports(body: &Value) -> Option<&'static str> {
    let ports = ports(body);
    match (ports.split(", ").all(|port| ["80", "443"].contains(&port)), ports.contains(", ")) {
        (true, _) => None,
        (false, false) => Some(" (on this machine; 80 on the pod network)"),
        (false, true) => Some(" (on this machine; 80 and 443 on the pod network)"),
    }
}

fn class_cells(class: &Object, now: Time) -> Vec<TableCell> {
    let parameters = class.0.value_at("spec.parameters");
    let text = match (parameters.text("kind"), parameters.text("apiGroup")) {
        ("", _) => "<none>".into(),
        (kind, "") => format!("{kind}/{}", parameters.text("name")),
        (kind, group) => format!("{kind}.{group}/{}", parameters.text("name")),
    };
    let controller = class.0.text("spec.controller");
    vec![class.name().into(), controller.into(), text.into(), age_since(class.created(), now).into()]
}

fn describe(ingress: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &ingress.0;
    let spec = body.value_at("spec");
    let backend = |backend: &Value| backend_text(backend, ingress.namespace(), related);
    out.field(0, "Name", ingress.name());
    out.pairs(0, "Labels", &body.pairs("metadata.labels"));
    out.field(0, "Namespace", ingress.namespace());
    out.field(0, "Address", load_balancer_addresses(body.value_at("status.loadBalancer")));
    // kubectl has no such line: ports other than the usual ones are those of kloop.
    if let Some(note) = note_of_ports(body) {
        out.field(0, "Ports", ports(body) + note);
    }
    out.field(0, "Ingress Class", text_or(spec.text("ingressClassName"), "<none>"));
    let default = spec.get("defaultBackend").map_or_else(|| "<default>".into(), backend);
    out.field(0, "Default backend", &default);
    if !spec.list("tls").is_empty() {
        out.heading(0, "TLS");
    }
    for tls in spec.list("tls") {
        let hosts = tls.texts("hosts").join(",");
        match tls.text("secretName") {
            "" => out.line(1, format_args!("SNI routes {hosts}")),
            secret => out.line(1, format_args!("{secret} terminates {hosts}")),
        }
    }
    out.heading(0, "Rules");
    out.header(1, &["Host", "Path", "Backends"]);
    let rules: Vec<&Value> = spec.list("rules").iter().filter(|rule| rule.has("http")).collect();
    for rule in &rules {
        out.line(1, format_args!("{}\t", text_or(rule.text("host"), "*")));
        for path in rule.list("http.paths") {
            out.line(2, format_args!("\t{} \t{}", path.text("path"), backend(path.value_at("backend"))));
        }
    }
    if rules.is_empty() {
        out.row(1, &[&"*", &"*", &default]);
    }
    out.annotations(0, "Annotations", &body.pairs("metadata.annotations"));
    events::write_events(ingress, related, out);
}

/// Formats a backend with its endpoints, such as `svc:80 (10.0.0.1:8080)`.
fn backend_text(backend: &Value, namespace: &str, related: &dyn RelatedObjects) -> String {
    if let Some(resource) = backend.get("resource") {
        let group = text_or(resource.text("apiGroup"), "<none>");
        return format!("APIGroup: {group}, Kind: {}, Name: {}", resource.text("kind"), resource.text("name"));
    }
    let Some(wanted) = backend.get("service") else { return String::new() };
    let (name, number, port_name) = (wanted.text("name"), wanted.int("port.number"), wanted.text("port.name"));
    let text = if number != 0 { format!("{name}:{number}") } else { format!("{name}:{port_name}") };
    let Some(service) = related.get("services", namespace, name) else {
        return format!("{text} (<error: services \"{name}\" not found>)");
    };
    let port = service.0.list("spec.ports").iter().find(|port| {
        (number != 0 && port.int("port") == number) || (!port_name.is_empty() && port.text("name") == port_name)
    });
    let port = port.map_or("", |port| port.text("name"));
    format!("{text} ({})", endpoints(&slices_of(related, namespace, name), port))
}

fn describe_class(class: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.field(0, "Name", class.name());
    out.labels_and_annotations(class);
    out.field(0, "Controller", class.0.text("spec.controller"));
    if let Some(parameters) = class.0.value_at("spec").get("parameters") {
        out.heading(0, "Parameters");
        for (label, field) in [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")] {
            if parameters.has(field) {
                out.field(1, label, parameters.text(field));
            }
        }
    }
    events::write_events(class, related, out);
}
