//! Ready endpoints of Services, for requests that the API server itself sends there.

use super::ApiResult;
use super::transaction::Transaction;
use crate::object::{Object, Reason, Resource, Status};
use std::net::{IpAddr, SocketAddr};

/// The label that names the Service of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const SLICES: Resource = Resource("endpointslices.discovery.k8s.io");

/// A port of a Service.
#[derive(Clone, Copy, Debug)]
pub enum ServicePort<'a> {
    /// The port with this number.
    Number(u64),
    /// The port with this name.
    Name(&'a str),
    /// The Service's only port.
    Only,
}

/// Returns a ready endpoint of a Service; none while there is none. A port that the Service lacks is an error.
pub fn find_ready(txn: &dyn Transaction, service: &Object, port: ServicePort<'_>) -> ApiResult<Option<SocketAddr>> {
    let ports = service.items(&["spec", "ports"]);
    let wanted = match port {
        ServicePort::Number(number) => {
            let missing = || {
                let text = format!("no service port {number} found for service {:?}", service.name());
                Status::new(Reason::ServiceUnavailable, text)
            };
            let found = ports.iter().find(|one| one["port"].as_u64() == Some(number)).ok_or_else(missing)?;
            found["name"].as_str().unwrap_or_default()
        }
        ServicePort::Only if ports.len() == 1 => ports[0]["name"].as_str().unwrap_or_default(),
        ServicePort::Only => "",
        ServicePort::Name(name) => name,
    };
    let slices = txn.list(SLICES, Some(service.namespace()))?;
    let own = slices.iter().filter(|slice| slice.label(SERVICE_NAME) == Some(service.name()));
    let find = |slice: &Object| {
        let port = slice.items(&["ports"]).iter().find(|one| one["name"].as_str().unwrap_or_default() == wanted)?;
        let mut endpoints = slice.items(&["endpoints"]).iter().filter(|one| one["conditions"]["ready"] != false);
        let address = endpoints.find_map(|one| one["addresses"][0].as_str()?.parse::<IpAddr>().ok())?;
        Some(SocketAddr::new(address, u16::try_from(port["port"].as_u64()?).ok()?))
    };
    Ok(own.into_iter().find_map(find))
}

/// Whether a Service has EndpointSlices.
pub fn has_slices(txn: &dyn Transaction, service: &Object) -> ApiResult<bool> {
    let slices = txn.list(SLICES, Some(service.namespace()))?;
    Ok(slices.iter().any(|slice| slice.label(SERVICE_NAME) == Some(service.name())))
}
