//! EndpointSlice (discovery.k8s.io/v1).

use super::address;
use super::view;
use super::{DecodeError, FieldErrors, FieldPath, Kind, Typed, UnknownField, names, omit, typed};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use serde_json::Value;
use std::collections::BTreeSet;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    status: false,
    normalize,
    ..Kind::new::<EndpointSlice>("endpointslices.discovery.k8s.io", "v1", "EndpointSlice", &view::endpoints::SLICE)
};

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
        let path = addresses.index(index);
        match family {
            "IPv4" => address::check_family(text, true, &path, errors),
            "IPv6" => address::check_family(text, false, &path, errors),
            "FQDN" => errors.each_invalid(&path, text.as_str(), names::subdomain(text)),
            _ => {}
        }
    }
    if let Some(node) = &endpoint.node_name {
        errors.each_invalid(&path.child("nodeName"), node.as_str(), names::subdomain(node));
    }
    if let Some(zone) = &endpoint.zone {
        errors.each_invalid(&path.child("zone"), zone.as_str(), names::label_value(zone));
    }
    if let Some(hostname) = &endpoint.hostname {
        errors.each_invalid(&path.child("hostname"), hostname.as_str(), names::label(hostname));
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
