//! EndpointSlice (discovery.k8s.io/v1).

use super::catalogue::typed;
use super::shared::address;
use super::shared::{names, omit};
use super::view;
use super::{DecodeError, FieldErrors, FieldPath, Kind, Typed, UnknownField};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use serde_json::Value;
use std::collections::BTreeSet;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    status: false,
    normalize,
    ..Kind::new::<EndpointSlice>("endpointslices.discovery.k8s.io", "v1", "EndpointSlice", &view::endpoints::SLICE)
};

/// Maximum number of zones, and of nodes, in the hints of an endpoint.
const MAX_HINTS: usize = 8;

/// Label with the writer of a slice. Only kloop's own controller may use loopback addresses, since its pods have them.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] on slices of a Service with a selector.
pub const CONTROLLER: &str = "endpointslice-controller.k8s.io";

fn normalize(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
    let mut slice = typed::normalize::<EndpointSlice>(body, unknown)?;
    omit::null_when_missing(&mut slice, &["endpoints", "ports"]);
    Ok(slice)
}

impl Typed for EndpointSlice {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.endpoints);
        omit::empty(&mut self.ports);
        for port in self.ports.iter_mut().flatten() {
            port.name.get_or_insert_default();
            port.protocol.get_or_insert_with(|| "TCP".to_owned());
        }
        for endpoint in self.endpoints.iter_mut().flatten() {
            endpoint.conditions.get_or_insert_default();
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("addressType");
        if self.address_type.is_empty() {
            errors.required(&path, "");
        } else if !["FQDN", "IPv4", "IPv6"].contains(&self.address_type.as_str()) {
            errors.unsupported(&path, self.address_type.as_str(), &["FQDN", "IPv4", "IPv6"]);
        }
        if let Some(old) = old {
            errors.immutable(&path, &self.address_type, &old.address_type);
        }
        let endpoints = self.endpoints.as_deref().unwrap_or_default();
        if endpoints.len() > 1000 {
            errors.too_many(&FieldPath::root("endpoints"), endpoints.len(), 1000);
        }
        for (index, endpoint) in endpoints.iter().enumerate() {
            let path = FieldPath::root("endpoints").index(index);
            check_endpoint(endpoint, &self.address_type, &path, errors);
        }
        check_ports(self.ports.as_deref().unwrap_or_default(), errors);
    }
}

fn check_endpoint(endpoint: &Endpoint, family: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let addresses = path.child("addresses");
    if endpoint.addresses.is_empty() {
        errors.required(&addresses, "must contain at least 1 address");
    } else if endpoint.addresses.len() > 100 {
        errors.too_many(&addresses, endpoint.addresses.len(), 100);
    }
    for (index, text) in endpoint.addresses.iter().enumerate() {
        match family {
            "IPv4" => address::check_family(text, true, (&addresses, index), errors),
            "IPv6" => address::check_family(text, false, (&addresses, index), errors),
            "FQDN" => errors.each_invalid(&addresses.index(index), text.as_str(), names::subdomain(text)),
            _ => {}
        }
    }
    if let Some(node) = &endpoint.node_name {
        errors.each_invalid(&path.child("nodeName"), node.as_str(), names::subdomain(node));
    }
    if let Some(hostname) = &endpoint.hostname {
        errors.each_invalid(&path.child("hostname"), hostname.as_str(), names::label(hostname));
    }
    if let Some(hints) = &endpoint.hints {
        let zones = hints.for_zones.iter().flatten().map(|zone| zone.name.as_str()).collect();
        check_hints(zones, names::label_value, &path.child("hints").child("forZones"), errors);
        let nodes = hints.for_nodes.iter().flatten().map(|node| node.name.as_str()).collect();
        check_hints(nodes, names::subdomain, &path.child("hints").child("forNodes"), errors);
    }
}

/// Checks the names of the zones or nodes that are to use an endpoint.
fn check_hints(hints: Vec<&str>, name_problems: fn(&str) -> Vec<String>, path: &FieldPath, errors: &mut FieldErrors) {
    if hints.len() > MAX_HINTS {
        return errors.too_many(path, hints.len(), MAX_HINTS);
    }
    for (index, name) in hints.iter().enumerate() {
        let path = path.index(index).child("name");
        if hints[..index].contains(name) {
            errors.duplicate(&path, *name);
        }
        errors.each_invalid(&path, *name, name_problems(name));
    }
}

fn check_ports(ports: &[EndpointPort], errors: &mut FieldErrors) {
    let path = FieldPath::root("ports");
    if ports.len() > 20_000 {
        errors.too_many(&path, ports.len(), 20_000);
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.name.as_deref().unwrap_or_default();
        if !name.is_empty() {
            errors.each_invalid(&path.child("name"), name, names::label(name));
        }
        if !seen.insert(&port.name) {
            errors.duplicate(&path.child("name"), name);
        }
        address::check_protocol(port.protocol.as_deref(), &path.child("protocol"), errors);
        if let Some(protocol) = &port.app_protocol {
            errors.each_invalid(&path.child("appProtocol"), protocol.as_str(), names::qualified(protocol));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::json;

    fn hint_refusals(hints: serde_json::Value) -> Vec<String> {
        let endpoint = json!({"addresses": ["10.9.8.7"], "hints": hints});
        refusals(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "endpoints": [endpoint], "ports": [{"port": 80}]}))
    }

    #[test]
    fn zone_of_an_endpoint_is_any_text() {
        let endpoint = json!({"addresses": ["10.1.2.3"], "zone": "a b"});
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [endpoint]});
        assert_eq!(crate::kinds::testing::refusals(slice), Vec::<String>::new());
    }

    #[test]
    fn hints_are_checked() {
        let names = |count: usize| (0..count).map(|number| json!({"name": format!("z{number}")})).collect::<Vec<_>>();
        assert_eq!(hint_refusals(json!({"forZones": names(8), "forNodes": names(8)})), Vec::<String>::new());
        let many = "Too many: 9: must have at most 8 items";
        let problems = ["forZones", "forNodes"].map(|field| format!("endpoints[0].hints.{field}: {many}"));
        assert_eq!(hint_refusals(json!({"forZones": names(9), "forNodes": names(9)})), problems);
        let twice = hint_refusals(json!({"forZones": [{"name": "a"}, {"name": "a"}]}));
        assert_eq!(twice, ["endpoints[0].hints.forZones[1].name: Duplicate value: \"a\""]);
    }
}
