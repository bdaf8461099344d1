//! Validation of Services (`ValidateService`), in Kubernetes' order.

use super::{HEADLESS, is_external};
use crate::kinds::shared::address::{self, LoopbackRule};
use crate::kinds::shared::go::{self, GoField, GoShape};
use crate::kinds::shared::{load_balancer, metadata, names};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use std::collections::BTreeSet;

const KUBELET_PORT: i32 = 10_250;
/// The error of a family that the cluster has no addresses of, which Kubernetes finds last.
const NOT_CONFIGURED: &str = "not configured on this cluster";
const MAX_AFFINITY_SECONDS: i32 = 86_400;

const PORT: &[GoField] = &[
    ("Name", "name", GoShape::Text),
    ("Protocol", "protocol", GoShape::Text),
    ("AppProtocol", "appProtocol", GoShape::Pointer),
    ("Port", "port", GoShape::Number),
    ("TargetPort", "targetPort", GoShape::Number),
    ("NodePort", "nodePort", GoShape::Number),
];

/// Checks a spec. The notation of addresses that the old spec has is not checked again.
pub fn check_spec(spec: &ServiceSpec, old: &ServiceSpec, errors: &mut FieldErrors) {
    let path = FieldPath::root("spec");
    // Kubernetes checks these before it allocates addresses, and then reports no other errors.
    let mut wrong = FieldErrors::default();
    check_addresses(spec, spec.type_.as_deref().unwrap_or_default(), old, &path, &mut wrong);
    if !wrong.0.is_empty() {
        if wrong.0.len() > 1 {
            wrong.0.retain(|error| !error.message.ends_with(NOT_CONFIGURED));
        }
        *errors = wrong;
        return;
    }
    let kind = spec.type_.as_deref().unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() && spec.cluster_ip.as_deref() != Some(HEADLESS) && kind != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    check_type(spec, kind, &path, errors);
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.child("ports").index(index);
        check_port(port, ports.len() > 1, &path, errors);
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty() && !names.insert(*name)) {
            errors.duplicate(&path.child("name"), name);
        }
    }
    if let Some(selector) = &spec.selector {
        metadata::check_labels(selector, &path.child("selector"), errors);
    }
    check_affinity(spec, &path, errors);
    let known: BTreeSet<&String> = old.external_ips.iter().flatten().collect();
    for (index, text) in spec.external_ips.iter().flatten().enumerate() {
        let path = path.child("externalIPs").index(index);
        if known.contains(text) || address::check_address(text, &path, errors).is_some() {
            address::check_destination(text, LoopbackRule::Refused, &path, errors);
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind) {
        errors.unsupported(&path.child("type"), kind, &kinds);
    }
    if kind == "ClusterIP" {
        for (index, _) in ports.iter().enumerate().filter(|(_, port)| port.node_port.is_some()) {
            let path = path.child("ports").index(index).child("nodePort");
            errors.forbidden(&path, "may not be used when `type` is 'ClusterIP'");
        }
    }
    check_duplicate_ports(ports, &path.child("ports"), errors);
    check_load_balancer(spec, kind, old, &path, errors);
    check_traffic(spec, &path, errors);
}

/// Checks that allocated addresses and the primary IP family do not change.
pub fn check_address_change(new: &ServiceSpec, old: &ServiceSpec, errors: &mut FieldErrors) {
    let external = Some("ExternalName");
    if new.type_.as_deref() == external || old.type_.as_deref() == external {
        return;
    }
    let path = FieldPath::root("spec");
    let (now, before) =
        (new.cluster_ips.as_deref().unwrap_or_default(), old.cluster_ips.as_deref().unwrap_or_default());
    let first = path.child("clusterIPs").index(0);
    match (before.first(), now.first()) {
        (Some(_), None) => errors.invalid(&first, json!(now), "primary clusterIP can not be unset"),
        (Some(before), Some(after)) if before != after => {
            errors.invalid(&first, json!(now), "may not change once set");
        }
        _ => {}
    }
    let health_port = |spec: &ServiceSpec| {
        let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
        spec.health_check_node_port.filter(|_| is_local && spec.type_.as_deref() == Some("LoadBalancer"))
    };
    if let (Some(before), Some(after)) = (health_port(old), health_port(new))
        && before != after
    {
        errors.forbidden(&path.child("healthCheckNodePort"), "field is immutable");
    }
    let family = |spec: &ServiceSpec| spec.ip_families.as_ref().and_then(|all| all.first().cloned());
    if let (Some(before), Some(after)) = (family(old), family(new))
        && before != after
    {
        errors.invalid(&path.child("ipFamilies").index(0), json!(new.ip_families), "may not change once set");
    }
}

fn check_type(spec: &ServiceSpec, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if kind == "LoadBalancer" {
        for (index, _) in spec.ports.iter().flatten().enumerate().filter(|(_, port)| port.port == KUBELET_PORT) {
            let detail = format!("may not expose port {KUBELET_PORT} externally since it is used by kubelet");
            errors.invalid(&path.child("ports").index(index), KUBELET_PORT, &detail);
        }
    }
    if matches!(kind, "LoadBalancer" | "NodePort") && spec.cluster_ip.as_deref() == Some(HEADLESS) {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.invalid(&path.child("clusterIPs").index(0), HEADLESS, &detail);
    }
    if kind == "ExternalName" {
        check_external_name(spec, path, errors);
    }
}

fn check_external_name(spec: &ServiceSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let never = "may not be set for ExternalName services";
    if spec.cluster_ips.as_ref().is_some_and(|all| !all.is_empty()) {
        errors.forbidden(&path.child("clusterIPs"), never);
    }
    if spec.ip_families.as_ref().is_some_and(|all| !all.is_empty()) {
        errors.forbidden(&path.child("ipFamilies"), never);
    }
    if spec.ip_family_policy.is_some() {
        errors.forbidden(&path.child("ipFamilyPolicy"), never);
    }
    let full = spec.external_name.as_deref().unwrap_or_default();
    let name = full.strip_suffix('.').unwrap_or(full);
    let path = path.child("externalName");
    match name {
        "" => errors.required(&path, ""),
        name => errors.each_invalid(&path, name, names::subdomain(name)),
    }
}

fn check_port(port: &ServicePort, several: bool, path: &FieldPath, errors: &mut FieldErrors) {
    address::check_port(port.name.as_deref(), several, port.port, port.protocol.as_deref(), path, errors);
    match &port.target_port {
        Some(IntOrString::Int(number)) => {
            errors.each_invalid(&path.child("targetPort"), *number, names::port((*number).into()));
        }
        Some(IntOrString::String(name)) => {
            errors.each_invalid(&path.child("targetPort"), name.as_str(), names::port_name(name));
        }
        None => {}
    }
    address::check_app_protocol(port.app_protocol.as_deref(), path, errors);
}

fn check_affinity(spec: &ServiceSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let config = path.child("sessionAffinityConfig");
    match spec.session_affinity.as_deref().unwrap_or_default() {
        "" => errors.required(&path.child("sessionAffinity"), ""),
        "None" if spec.session_affinity_config.is_some() => {
            errors.forbidden(&config, "must not be set when session affinity is None");
        }
        "None" => {}
        "ClientIP" => {
            let client = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
            let path = config.child("clientIP").child("timeoutSeconds");
            match client.and_then(|client| client.timeout_seconds) {
                None => errors.required(&config, "when session affinity type is ClientIP"),
                Some(seconds) if (1..=MAX_AFFINITY_SECONDS).contains(&seconds) => {}
                Some(seconds) => {
                    let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                    errors.invalid(&path, seconds, &detail);
                }
            }
        }
        other => errors.unsupported(&path.child("sessionAffinity"), other, &["ClientIP", "None"]),
    }
}

fn check_addresses(spec: &ServiceSpec, kind: &str, old: &ServiceSpec, path: &FieldPath, errors: &mut FieldErrors) {
    if kind == "ExternalName" {
        return;
    }
    let all = spec.cluster_ips.as_deref().unwrap_or_default();
    let list = path.child("clusterIPs");
    match (spec.cluster_ip.as_deref(), all.first()) {
        (Some(single), first) if first.is_none_or(|first| first != single) => {
            errors.invalid(&list, json!(all), "first value must match `clusterIP`");
        }
        (None, Some(_)) => errors.invalid(&list, json!(all), "must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    check_families(spec, path, errors);
    let before = errors.0.len();
    check_each_address(all, old.cluster_ips.as_deref().unwrap_or_default(), &list, errors);
    if errors.0.len() > before {
        return;
    }
    if all.len() == 2 && all[0].contains(':') == all[1].contains(':') {
        errors.invalid(&list, json!(all), "may specify no more than one IP for each IP family");
    }
    let families = spec.ip_families.as_deref().unwrap_or_default();
    for (index, (text, family)) in all.iter().zip(families).enumerate().filter(|(_, (text, _))| *text != HEADLESS) {
        let fits = text.contains(':') == (family == "IPv6");
        if !fits && matches!(family.as_str(), "IPv4" | "IPv6") {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&list.index(index), text.as_str(), &detail);
        }
    }
}

/// Checks that each cluster IP is an address, or that the only one is `None`.
fn check_each_address(all: &[String], known: &[String], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, text) in all.iter().enumerate() {
        if index == 0 && text == HEADLESS {
            if all.len() > 1 {
                errors.invalid(path, json!(all), "'None' must be the first and only value");
            }
        } else if !known.contains(text) {
            address::check_address(text, &path.index(index), errors);
        }
    }
    if all.len() > 2 {
        errors.invalid(path, json!(all), "may only hold up to 2 values");
    }
}

fn check_families(spec: &ServiceSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let families = path.child("ipFamilies");
    // Without a selector and a cluster IP, the writer of the endpoints chooses the families.
    let is_free =
        spec.cluster_ip.as_deref() == Some(HEADLESS) && spec.selector.as_ref().is_none_or(|all| all.is_empty());
    for (index, family) in spec.ip_families.iter().flatten().enumerate() {
        if !matches!(family.as_str(), "IPv4" | "IPv6") {
            errors.unsupported_as_listed(&families.index(index), family.as_str(), &["IPv4", "IPv6"]);
        } else if family == "IPv6" && index == 0 && !is_free {
            errors.invalid(&families.index(index), "IPv6", NOT_CONFIGURED);
        }
        if spec.ip_families.iter().flatten().take(index).any(|before| before == family) {
            errors.duplicate(&families.index(index), family.as_str());
        }
    }
    let headless = spec.cluster_ip.as_deref() == Some(HEADLESS);
    let policy = path.child("ipFamilyPolicy");
    match spec.ip_family_policy.as_deref() {
        Some("RequireDualStack") if !(headless && spec.selector.as_ref().is_none_or(|all| all.is_empty())) => {
            let detail = "this cluster is not configured for dual-stack services";
            errors.invalid(&policy, "RequireDualStack", detail);
        }
        Some("SingleStack") if spec.ip_families.as_ref().is_some_and(|all| all.len() > 1) => {
            let detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified";
            errors.invalid(&policy, "SingleStack", detail);
        }
        None | Some("SingleStack" | "PreferDualStack" | "RequireDualStack") => {}
        Some(other) => errors.unsupported(&policy, other, &["SingleStack", "PreferDualStack", "RequireDualStack"]),
    }
}

/// Refuses ports with the same protocol and number, on the Service's address or on the nodes.
fn check_duplicate_ports(ports: &[ServicePort], path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate().filter(|(_, port)| port.node_port.is_some()) {
        if !seen.insert((&port.protocol, port.node_port)) {
            errors.duplicate(&path.index(index).child("nodePort"), json!(port.node_port));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        if !seen.insert((&port.protocol, port.port)) {
            let key = json!({"protocol": port.protocol, "port": port.port});
            let text = go::lay_out(&key, PORT).compact();
            errors.duplicate_text(&path.index(index), &text, "");
        }
    }
}

fn check_load_balancer(spec: &ServiceSpec, kind: &str, old: &ServiceSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let only = "may only be used when `type` is 'LoadBalancer'";
    let ranges = path.child("LoadBalancerSourceRanges");
    if spec.load_balancer_source_ranges.as_ref().is_some_and(|all| !all.is_empty()) && kind != "LoadBalancer" {
        errors.forbidden(&ranges, only);
    }
    // Blanks around a range are allowed.
    let known: BTreeSet<&str> = old.load_balancer_source_ranges.iter().flatten().map(|range| range.trim()).collect();
    for (index, range) in spec.load_balancer_source_ranges.iter().flatten().map(|range| range.trim()).enumerate() {
        if !known.contains(&range) {
            address::check_range(range, &ranges.index(index), errors);
        }
    }
    match (spec.allocate_load_balancer_node_ports, kind) {
        (None, "LoadBalancer") => errors.required(&path.child("allocateLoadBalancerNodePorts"), ""),
        (Some(_), other) if other != "LoadBalancer" => {
            errors.forbidden(&path.child("allocateLoadBalancerNodePorts"), only);
        }
        _ => {}
    }
    if let Some(class) = &spec.load_balancer_class {
        if kind == "LoadBalancer" {
            errors.each_invalid(&path.child("loadBalancerClass"), class.as_str(), names::qualified(class));
        } else {
            errors.forbidden(&path.child("loadBalancerClass"), only);
        }
    }
}

/// Checks that the class of a load balancer stays.
pub fn check_class_change(new: &ServiceSpec, old: &ServiceSpec, errors: &mut FieldErrors) {
    let is_balancer = |spec: &ServiceSpec| spec.type_.as_deref() == Some("LoadBalancer");
    if is_balancer(new) && is_balancer(old) && new.load_balancer_class != old.load_balancer_class {
        let path = FieldPath::root("spec").child("loadBalancerClass");
        errors.invalid(&path, json!(new.load_balancer_class), "may not change once set");
    }
}

/// Checks the points of ingress in a status, which only a load balancer has.
pub fn check_status(new: &Service, old: &Service, errors: &mut FieldErrors) {
    let path = FieldPath::root("status").child("loadBalancer").child("ingress");
    let kind = new.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    if kind != Some("LoadBalancer") && ingress_points(new).next().is_some() {
        return errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    let known: BTreeSet<&str> = ingress_points(old).filter_map(|point| point.ip.as_deref()).collect();
    for (index, point) in ingress_points(new).enumerate() {
        let path = path.index(index);
        load_balancer::check_address(point.ip.as_deref(), &known, &path, errors);
        check_ip_mode(point, &path.child("ipMode"), errors);
        load_balancer::check_host_name(point.hostname.as_deref(), &path, errors);
    }
}

fn ingress_points(service: &Service) -> impl Iterator<Item = &LoadBalancerIngress> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.into_iter().flat_map(|balancer| balancer.ingress.iter().flatten())
}

fn check_ip_mode(point: &LoadBalancerIngress, path: &FieldPath, errors: &mut FieldErrors) {
    let has_address = point.ip.as_deref().is_some_and(|ip| !ip.is_empty());
    match point.ip_mode.as_deref() {
        None if has_address => errors.required(path, "must be specified when `ip` is set"),
        None => {}
        Some(_) if !has_address => errors.forbidden(path, "may not be specified when `ip` is not set"),
        Some("VIP" | "Proxy") => {}
        Some(other) => errors.unsupported(path, other, &["Proxy", "VIP"]),
    }
}

fn check_traffic(spec: &ServiceSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let external = path.child("externalTrafficPolicy");
    match spec.external_traffic_policy.as_deref() {
        Some(policy) if !is_external(spec) => {
            errors.invalid(&external, policy, "may only be set for externally-accessible services");
        }
        None if is_external(spec) => errors.required(&external, "must be set for externally-accessible services"),
        None | Some("Cluster" | "Local") => {}
        Some(other) => errors.unsupported(&external, other, &["Cluster", "Local"]),
    }
    let local = spec.external_traffic_policy.as_deref() == Some("Local");
    if let Some(port) = spec.health_check_node_port {
        let at = path.child("healthCheckNodePort");
        if spec.type_.as_deref() == Some("LoadBalancer") && local {
            errors.each_invalid(&at, port, names::port(port.into()));
        } else {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&at, port, detail);
        }
    }
    match spec.internal_traffic_policy.as_deref() {
        None | Some("Cluster" | "Local") => {}
        Some(other) => errors.unsupported(&path.child("internalTrafficPolicy"), other, &["Cluster", "Local"]),
    }
    let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(other) = spec.traffic_distribution.as_deref().filter(|text| !known.contains(text)) {
        errors.unsupported_as_listed(&path.child("trafficDistribution"), other, &known);
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use crate::object::Object;
    use serde_json::json;

    #[test]
    fn one_family_twice_is_refused() {
        let spec = json!({"ipFamilies": ["IPv4", "IPv4"], "ports": [{"port": 80}]});
        let found = refusals(json!({"apiVersion": "v1", "kind": "Service", "spec": spec}));
        let policy = "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' \
                      when multiple IP families are specified";
        assert_eq!(found, ["spec.ipFamilies[1]: Duplicate value: \"IPv4\"", policy]);
    }

    #[test]
    fn addresses_and_ranges_have_one_notation() {
        let found = |spec| refusals(json!({"apiVersion": "v1", "kind": "Service", "spec": spec})).join("; ");
        let cases = [
            (
                json!({"externalIPs": ["::ffff:1.2.3.4"]}),
                "spec.externalIPs[0]: Invalid value: \"::ffff:1.2.3.4\": must not be an IPv4-mapped IPv6 address",
            ),
            (
                json!({"externalIPs": ["01.2.3.4"]}),
                "spec.externalIPs[0]: Invalid value: \"01.2.3.4\": must not have leading 0s",
            ),
            (
                json!({"externalIPs": ["0.0.0.0"]}),
                "spec.externalIPs[0]: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0)",
            ),
            (
                json!({"type": "LoadBalancer", "loadBalancerSourceRanges": [" 1.2.3.0/24", "1.2.3.4/24"]}),
                "spec.LoadBalancerSourceRanges[1]: Invalid value: \"1.2.3.4/24\": must not have bits set beyond the prefix length",
            ),
            (
                json!({"clusterIPs": ["10.0.0.7"]}),
                "spec.clusterIPs: Invalid value: [\"10.0.0.7\"]: must be empty when `clusterIP` is not specified",
            ),
            (
                json!({"clusterIP": "::1"}),
                "spec.clusterIPs[0]: Invalid value: \"::1\": expected an IPv4 value as indicated by `ipFamilies[0]`",
            ),
        ];
        for (mut spec, expected) in cases {
            spec["ports"] = json!([{"port": 80}]);
            assert_eq!(found(spec), expected);
        }
    }

    #[test]
    fn stored_notation_of_addresses_may_stay() {
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "externalIPs": ["::ffff:1.2.3.4"], "loadBalancerSourceRanges": ["1.2.3.4/24"]});
        let body =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        let mut object = Object((super::super::KIND.normalize)(&body, &mut |_| {}).unwrap());
        (super::super::KIND.prepare)(&mut object, None);
        assert_eq!((super::super::KIND.validate)(&object, None).len(), 2);
        assert_eq!((super::super::KIND.validate)(&object, Some(&object)), []);
    }

    #[test]
    fn port_of_health_checks_stays() {
        let spec = |port: i32| -> super::ServiceSpec {
            let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port});
            serde_json::from_value(spec).unwrap()
        };
        let found = |new: i32| {
            let mut errors = super::FieldErrors::default();
            super::check_address_change(&spec(new), &spec(30001), &mut errors);
            errors.0.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(30001), Vec::<String>::new());
        assert_eq!(found(30002), ["spec.healthCheckNodePort: Forbidden: field is immutable"]);
    }

    #[test]
    fn traffic_fields_have_known_values() {
        let found = |spec| refusals(json!({"apiVersion": "v1", "kind": "Service", "spec": spec})).join("; ");
        let local = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "externalTrafficPolicy": "Local", "healthCheckNodePort": 65536});
        assert_eq!(
            found(local),
            "spec.healthCheckNodePort: Invalid value: 65536: must be between 1 and 65535, inclusive"
        );
        let alias = json!({"type": "ExternalName", "externalName": "a.b", "internalTrafficPolicy": "Odd"});
        assert_eq!(
            found(alias),
            "spec.internalTrafficPolicy: Unsupported value: \"Odd\": supported values: \"Cluster\", \"Local\""
        );
    }
}
