//! Services.

use super::age::age_since;
use super::body::{BodyRead, joined_pairs, text_or};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time, host_port};
use serde_json::Value;
use std::collections::BTreeSet;

/// The view of services.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Type"),
    Column::text("Cluster-IP"),
    Column::text("External-IP"),
    Column::text("Port(s)"),
    Column::text("Age"),
    Column::wide("Selector"),
];

/// Maximum number of listed endpoints; further ones are only counted.
const ENDPOINTS_SHOWN: usize = 3;

fn cells(service: &Object, now: Time) -> Vec<TableCell> {
    let body = &service.0;
    let first_ip = body.texts("spec.clusterIPs").first().copied().unwrap_or(body.text("spec.clusterIP"));
    vec![
        service.name().into(),
        body.text("spec.type").into(),
        TableCell::or_none(first_ip),
        external_ip(body).into(),
        ports(body.list("spec.ports")).into(),
        age_since(service.created(), now).into(),
        joined_pairs(&body.pairs("spec.selector")).into(),
    ]
}

fn external_ip(body: &Value) -> String {
    let external = body.texts("spec.externalIPs").join(",");
    match body.text("spec.type") {
        "ExternalName" => body.text("spec.externalName").to_owned(),
        "LoadBalancer" => {
            let balanced = load_balancer_addresses(body.value_at("status.loadBalancer"));
            let all: Vec<&str> =
                [balanced.as_str(), external.as_str()].into_iter().filter(|text| !text.is_empty()).collect();
            text_or(&all.join(","), "<pending>").to_owned()
        }
        _ => text_or(&external, "<none>").to_owned(),
    }
}

/// The addresses or host names in a load balancer's status.
pub fn load_balancer_addresses(status: &Value) -> String {
    let points = status.list("ingress").iter();
    let sorted: BTreeSet<&str> = points.map(|point| text_or(point.text("ip"), point.text("hostname"))).collect();
    sorted.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(",")
}

fn ports(ports: &[Value]) -> String {
    let text = |port: &Value| match port.int("nodePort") {
        0 => format!("{}/{}", port.int("port"), port.text("protocol")),
        node => format!("{}:{node}/{}", port.int("port"), port.text("protocol")),
    };
    text_or(&ports.iter().map(text).collect::<Vec<_>>().join(","), "<none>").to_owned()
}

fn describe(service: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &service.0;
    let spec = body.value_at("spec");
    out.name_and_namespace(service);
    out.labels_and_annotations(service);
    out.field(0, "Selector", joined_pairs(&spec.pairs("selector")));
    out.field(0, "Type", spec.text("type"));
    if spec.has("ipFamilyPolicy") {
        out.field(0, "IP Family Policy", spec.text("ipFamilyPolicy"));
    }
    out.field(0, "IP Families", text_or(&spec.texts("ipFamilies").join(","), "<none>"));
    out.field(0, "IP", spec.text("clusterIP"));
    out.field(0, "IPs", text_or(&spec.texts("clusterIPs").join(","), "<none>"));
    let fields = [
        ("External IPs", spec.texts("externalIPs").join(",")),
        ("Desired LoadBalancer IP", spec.plain("loadBalancerIP")),
        ("External Name", spec.plain("externalName")),
        ("LoadBalancer Ingress", load_balancer_ingress(body)),
    ];
    present(out, &fields);
    let slices = slices_of(related, service.namespace(), service.name());
    for port in spec.list("ports") {
        describe_port(out, port, &slices);
    }
    out.field(0, "Session Affinity", spec.text("sessionAffinity"));
    let fields = [
        ("External Traffic Policy", spec.plain("externalTrafficPolicy")),
        ("Internal Traffic Policy", spec.plain("internalTrafficPolicy")),
        ("HealthCheck NodePort", spec.plain("healthCheckNodePort")),
        ("LoadBalancer Source Ranges", spec.texts("loadBalancerSourceRanges").join(",")),
        ("Traffic Distribution", spec.plain("trafficDistribution")),
    ];
    present(out, &fields);
    events::write_events(service, related, out);
}

fn present(out: &mut Describe, fields: &[(&str, String)]) {
    for (label, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        out.field(0, label, value);
    }
}

fn load_balancer_ingress(body: &Value) -> String {
    let text = |point: &Value| match (point.text("ip"), point.text("ipMode")) {
        ("", _) => point.text("hostname").to_owned(),
        (ip, "") => ip.to_owned(),
        (ip, mode) => format!("{ip} ({mode})"),
    };
    body.list("status.loadBalancer.ingress").iter().map(text).collect::<Vec<_>>().join(", ")
}

fn describe_port(out: &mut Describe, port: &Value, slices: &[Object]) {
    let (name, protocol) = (text_or(port.text("name"), "<unset>"), port.text("protocol"));
    out.field(0, "Port", format_args!("{name}\t{}/{protocol}", port.int("port")));
    out.field(0, "TargetPort", format_args!("{}/{protocol}", port.plain("targetPort")));
    if port.has("appProtocol") {
        out.field(0, "AppProtocol", port.text("appProtocol"));
    }
    if port.int("nodePort") != 0 {
        out.field(0, "NodePort", format_args!("{name}\t{}/{protocol}", port.int("nodePort")));
    }
    out.field(0, "Endpoints", endpoints(slices, port.text("name")));
}

/// The endpoint slices of a service.
pub fn slices_of(related: &dyn RelatedObjects, namespace: &str, service: &str) -> Vec<Object> {
    let mut slices = related.list("endpointslices.discovery.k8s.io", namespace);
    slices.retain(|slice| slice.label("kubernetes.io/service-name") == Some(service));
    slices
}

/// The ready addresses behind a port, by the port's name.
pub fn endpoints(slices: &[Object], port_name: &str) -> String {
    if slices.is_empty() {
        return "<none>".into();
    }
    let mut all = Vec::new();
    for slice in slices {
        let ports = slice.0.list("ports");
        let ready = slice
            .0
            .list("endpoints")
            .iter()
            .filter(|endpoint| endpoint.value_at("conditions.ready").as_bool() != Some(false));
        let addresses: Vec<&str> = ready.filter_map(|endpoint| endpoint.texts("addresses").first().copied()).collect();
        if ports.is_empty() {
            all.extend(addresses.iter().map(|address| (*address).to_owned()));
        }
        for port in ports.iter().filter(|port| port.text("name") == port_name) {
            all.extend(addresses.iter().map(|address| host_port(address, port.plain("port"))));
        }
    }
    first_few(&all, ENDPOINTS_SHOWN)
}

/// Joins the first few items, and adds the number of further ones.
pub fn first_few(all: &[String], shown: usize) -> String {
    match all.len().checked_sub(shown) {
        Some(more) if more > 0 => format!("{} + {more} more...", all[..shown].join(",")),
        _ => all.join(","),
    }
}
