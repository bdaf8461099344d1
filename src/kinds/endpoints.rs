//! Endpoints (core/v1), the predecessors of EndpointSlices.

use super::shared::address::{self, LoopbackRule};
use super::shared::{names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, Endpoints};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["ep"],
    status: false,
    generation: false,
    create_on_update: true,
    deprecated: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    ..Kind::new::<Endpoints>("endpoints", "v1", "Endpoints", &view::endpoints::ENDPOINTS)
};

/// Label with the writer. Only kloop's own controller may use loopback addresses, since its pods have them.
pub const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] on Endpoints of a Service with a selector.
pub const CONTROLLER: &str = "endpoint-controller";

impl Typed for Endpoints {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.subsets);
        for subset in self.subsets.iter_mut().flatten() {
            omit::empty(&mut subset.addresses);
            omit::empty(&mut subset.not_ready_addresses);
            omit::empty(&mut subset.ports);
            for port in subset.ports.iter_mut().flatten() {
                omit::empty(&mut port.name);
                port.protocol.get_or_insert_with(|| "TCP".to_owned());
            }
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let ours = self.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
        let is_ours = ours.is_some_and(|by| by == CONTROLLER) || is_of_api_server(&self.metadata);
        let loopback = if is_ours { LoopbackRule::Allowed } else { LoopbackRule::OfPods };
        for (index, subset) in self.subsets.iter().flatten().enumerate() {
            let path = FieldPath::root("subsets").index(index);
            if subset.addresses.is_none() && subset.not_ready_addresses.is_none() {
                errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
            }
            for (field, all) in [("addresses", &subset.addresses), ("notReadyAddresses", &subset.not_ready_addresses)] {
                for (index, address) in all.iter().flatten().enumerate() {
                    check_address(address, loopback, &path.child(field).index(index), errors);
                }
            }
            let ports = subset.ports.as_deref().unwrap_or_default();
            for (index, port) in ports.iter().enumerate() {
                check_port(port, ports.len() > 1, &path.child("ports").index(index), errors);
            }
        }
    }
}

/// Whether these are the Endpoints of the API server, which usually listens on localhost.
fn is_of_api_server(metadata: &ObjectMeta) -> bool {
    (metadata.namespace.as_deref(), metadata.name.as_deref()) == (Some("default"), Some("kubernetes"))
}

fn check_address(address: &EndpointAddress, loopback: LoopbackRule, path: &FieldPath, errors: &mut FieldErrors) {
    address::check_address(&address.ip, &path.child("ip"), errors);
    if let Some(hostname) = address.hostname.as_deref().filter(|hostname| !hostname.is_empty()) {
        errors.each_invalid(&path.child("hostname"), hostname, names::label(hostname));
    }
    if let Some(node) = &address.node_name {
        errors.each_invalid(&path.child("nodeName"), node.as_str(), names::subdomain(node));
    }
    address::check_destination(&address.ip, loopback, &path.child("ip"), errors);
}

fn check_port(port: &EndpointPort, several: bool, path: &FieldPath, errors: &mut FieldErrors) {
    address::check_port(port.name.as_deref(), several, port.port, port.protocol.as_deref(), path, errors);
    address::check_app_protocol(port.app_protocol.as_deref(), path, errors);
}
