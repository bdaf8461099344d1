//! Service (core/v1).
//!
//! Defines defaults, derived fields (`clusterIP` and `clusterIPs`, fields of only one type) and checks.
//! Never: allocates addresses or node ports; `apiserver` does, since allocation depends on all Services.

mod carry;
mod check;

use super::catalogue::{merge_rules, shapes, typed};
use super::shared::omit;
use super::{FieldErrors, Kind, NameRule, Typed};
use crate::kinds::view;
use crate::object::Object;
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

/// The catalogue's entry. Since Kubernetes 1.36 a Service's name may start with a digit.
pub const KIND: Kind = Kind {
    short: &["svc"],
    categories: &["all"],
    generation: false,
    create_on_update: true,
    name_rule: NameRule::Label,
    warnings,
    selectable: &["spec.clusterIP", "spec.type"],
    merge_rules: &MERGE_RULES,
    shape: &SHAPE,
    returns_deleted: true,
    validate_status: |new, old| typed::validate_status(new, old, check::check_status),
    ..Kind::new::<Service>("services", "v1", "Service", &view::service::VIEW)
};

static MERGE_RULES: MergeSchema =
    MergeSchema::new(&[merge_rules::META, ("spec", merge_rules::map(&SPEC_MERGE_RULES)), merge_rules::STATUS]);
static SPEC_MERGE_RULES: MergeSchema = MergeSchema::new(&[(
    "ports",
    merge_rules::with_second_key("protocol", "TCP", merge_rules::list("port", &merge_rules::ANY)),
)]);
static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))),
    ("status", shapes::in_place(shapes::map(&shapes::SERVICE_STATUS))),
]);
static SPEC_SHAPE: StructShape = StructShape::new(&[
    ("ports", shapes::keyed_list(&[("port", None), ("protocol", Some("TCP"))], &shapes::ANY)),
    shapes::SELECTOR,
]);

fn warnings(service: &Object) -> Vec<String> {
    let has = |field: &str| !service.items(&["spec", field]).is_empty();
    let is_set = |field: &str| service.text(&["spec", field]).is_some_and(|text| !text.is_empty());
    let is_sctp = |port: &Value| port["protocol"] == "SCTP";
    let is_alias = service.text(&["spec", "type"]) == Some("ExternalName");
    let is_headless = service.text(&["spec", "clusterIP"]) == Some(HEADLESS);
    let known = [
        (has("externalIPs") && is_alias, "spec.externalIPs is ignored when spec.type is \"ExternalName\""),
        (is_set("externalName") && !is_alias, "spec.externalName is ignored when spec.type is not \"ExternalName\""),
        (
            service.text(&["spec", "trafficDistribution"]) == Some("PreferClose"),
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ),
        (
            has("externalIPs") && !is_alias && !is_headless,
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ),
        (
            has("loadBalancerSourceRanges"),
            "spec.loadBalancerSourceRanges: not supported by kloop: every client can reach the load balancer's address",
        ),
        (
            is_set("loadBalancerIP"),
            "spec.loadBalancerIP: not supported by kloop: kloop chooses the load balancer's address",
        ),
        (
            is_set("trafficDistribution"),
            "spec.trafficDistribution: kloop's own Service addresses do not follow the hints that EndpointSlices get",
        ),
        (
            service.items(&["spec", "ports"]).iter().any(is_sctp),
            "spec.ports: not supported by kloop: SCTP is not routed",
        ),
    ];
    let known = known.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text.to_owned());
    let hints = "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use \
                 service.kubernetes.io/topology-mode instead";
    let is_hinted = service.annotation("service.kubernetes.io/topology-aware-hints").is_some();
    let affinity = service.text(&["spec", "sessionAffinity"]).is_some_and(|text| text != "None");
    let ignored = [
        (is_set("loadBalancerIP"), "spec.loadBalancerIP is ignored for headless services"),
        (has("externalIPs"), "spec.externalIPs is ignored for headless services"),
        (affinity, "spec.SessionAffinity is ignored for headless services"),
    ];
    let ignored = ignored.into_iter().filter(|(is_so, _)| is_headless && *is_so).map(|(_, text)| text.to_owned());
    is_hinted.then(|| hints.to_owned()).into_iter().chain(known).chain(ignored).collect()
}

/// The value of `clusterIP` for a headless Service.
pub const HEADLESS: &str = "None";
const AFFINITY_SECONDS: i32 = 10_800;

impl Typed for Service {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit_empty(spec);
        let kind = spec.type_.get_or_insert_with(|| "ClusterIP".to_owned()).clone();
        default_affinity(spec);
        for port in spec.ports.iter_mut().flatten() {
            port.protocol.get_or_insert_with(|| "TCP".to_owned());
            if port.target_port.as_ref().is_none_or(is_unset) {
                port.target_port = Some(IntOrString::Int(port.port));
            }
        }
        if is_external(spec) {
            spec.external_traffic_policy.get_or_insert_with(|| "Cluster".to_owned());
        }
        if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
            spec.internal_traffic_policy.get_or_insert_with(|| "Cluster".to_owned());
        } else if matches!(spec.internal_traffic_policy.as_deref(), Some("Cluster" | "Local")) {
            // Kubernetes accepts it and does not show it.
            spec.internal_traffic_policy = None;
        }
        if kind == "LoadBalancer" {
            spec.allocate_load_balancer_node_ports.get_or_insert(true);
        }
        let balancer = self.status.get_or_insert_default().load_balancer.get_or_insert_default();
        for point in
            balancer.ingress.iter_mut().flatten().filter(|point| point.ip.as_deref().is_some_and(|ip| !ip.is_empty()))
        {
            point.ip_mode.get_or_insert_with(|| "VIP".to_owned());
        }
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if let Some(old) = old {
            carry::drop_other_types(new, old);
            carry::keep_allocated(new, old);
        }
        carry::pair_addresses(new, old);
        carry::default_families(new);
        if old.is_none() {
            new.set(&["status"], serde_json::json!({"loadBalancer": {}}));
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let spec = self.spec.clone().unwrap_or_default();
        if let Some(old) = old.and_then(|old| old.spec.as_ref()) {
            check::check_address_change(&spec, old, errors);
            check::check_class_change(&spec, old, errors);
        }
        let none = ServiceSpec::default();
        check::check_spec(&spec, old.and_then(|old| old.spec.as_ref()).unwrap_or(&none), errors);
    }
}

fn omit_empty(spec: &mut ServiceSpec) {
    for text in [
        &mut spec.cluster_ip,
        &mut spec.external_name,
        &mut spec.external_traffic_policy,
        &mut spec.load_balancer_ip,
        &mut spec.session_affinity,
        &mut spec.type_,
    ] {
        omit::empty(text);
    }
    for list in
        [&mut spec.cluster_ips, &mut spec.external_ips, &mut spec.ip_families, &mut spec.load_balancer_source_ranges]
    {
        omit::empty(list);
    }
    omit::empty(&mut spec.selector);
    omit::empty(&mut spec.ports);
    omit::empty(&mut spec.health_check_node_port);
    omit::empty(&mut spec.publish_not_ready_addresses);
    for port in spec.ports.iter_mut().flatten() {
        omit::empty(&mut port.name);
        omit::empty(&mut port.node_port);
        omit::empty(&mut port.protocol);
    }
}

fn default_affinity(spec: &mut ServiceSpec) {
    match spec.session_affinity.get_or_insert_with(|| "None".to_owned()).as_str() {
        "None" => spec.session_affinity_config = None,
        "ClientIP" => {
            let client = spec.session_affinity_config.get_or_insert_default().client_ip.get_or_insert_default();
            client.timeout_seconds.get_or_insert(AFFINITY_SECONDS);
        }
        _ => {}
    }
}

fn is_unset(target: &IntOrString) -> bool {
    match target {
        IntOrString::Int(number) => *number == 0,
        IntOrString::String(name) => name.is_empty(),
    }
}

/// Whether the Service is externally accessible, so that an external traffic policy applies.
fn is_external(spec: &ServiceSpec) -> bool {
    match spec.type_.as_deref() {
        Some("LoadBalancer" | "NodePort") => true,
        Some("ClusterIP") => spec.external_ips.as_ref().is_some_and(|all| !all.is_empty()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_other_types_are_warned_about() {
        let warned = |spec: Value| warnings(&Object(json!({"spec": spec}))).join("; ");
        assert_eq!(
            warned(json!({"type": "ClusterIP", "externalName": "a.b"})),
            "spec.externalName is ignored when spec.type is not \"ExternalName\""
        );
        let alias = json!({"type": "ExternalName", "externalName": "a.b", "externalIPs": ["1.2.3.4"]});
        assert_eq!(warned(alias), "spec.externalIPs is ignored when spec.type is \"ExternalName\"");
        let near = warned(json!({"type": "ClusterIP", "trafficDistribution": "PreferClose"}));
        assert!(near.contains("\"PreferClose\" is deprecated; use \"PreferSameZone\""), "{near}");
    }
}
