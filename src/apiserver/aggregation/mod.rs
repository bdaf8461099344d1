//! APIServices: groups and versions of the API that extension API servers answer (k8s.io/kube-aggregator).
//!
//! Knows: which stored APIServices have a Service, whether that can be reached. Those of this server's own versions are in
//! [`super::local_api_services`]. Never: makes a request; the HTTP server forwards, and asks extension servers whether they answer.
//! Start reading at [`Extension`].

pub mod documents;
pub mod open_api;

use super::ApiResult;
use super::service_endpoints::{ServicePort, find_ready};
use super::transaction::Transaction;
use super::update::{UpdatePart, update};
use super::{WriteOptions, WriteReply};
use crate::kinds::{self, api_service::KIND};
use crate::object::{Key, Object, Resource, condition};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// The resource of APIServices.
pub const API_SERVICES: Resource = Resource("apiservices.apiregistration.k8s.io");
/// Port of a Service that names none.
const HTTPS: u64 = 443;
/// Maximum number of APIServices with a Service that are asked and shown.
pub const MAX_EXTENSIONS: usize = 256;

/// An APIService whose version an extension server answers.
#[derive(Clone, Debug)]
pub struct Extension {
    /// `v1.metrics.dev`.
    pub name: String,
    /// `metrics.dev`.
    pub group: String,
    /// `v1`.
    pub version: String,
    /// Priorities of the group and of the version in it.
    pub priority: (i64, i64),
    /// The namespace and the name of its Service.
    pub service: (String, String),
    /// The port of the Service.
    pub port: u64,
    /// Authorities of the server's certificate, PEM; `None` for those of the system.
    pub authorities: Option<Arc<[u8]>>,
    /// Whether the certificate is verified.
    pub verifies: bool,
    /// Whether it was available when it was asked last.
    pub is_available: bool,
}

impl Extension {
    /// Reads an APIService; `None` for one without a Service.
    pub fn read(object: &Object) -> Option<Extension> {
        let text = |path: &[&str]| object.text(path).unwrap_or_default().to_owned();
        let service = object.value_at(&["spec", "service"]).filter(|service| service.is_object())?;
        let bundle = text(&["spec", "caBundle"]);
        let authorities = Some(bundle).filter(|bundle| !bundle.is_empty());
        Some(Extension {
            name: object.name().to_owned(),
            group: text(&["spec", "group"]),
            version: text(&["spec", "version"]),
            priority: (
                object.int(&["spec", "groupPriorityMinimum"]).unwrap_or(0),
                object.int(&["spec", "versionPriority"]).unwrap_or(0),
            ),
            service: (text(&["spec", "service", "namespace"]), text(&["spec", "service", "name"])),
            port: service["port"].as_u64().unwrap_or(HTTPS),
            authorities: authorities.map(|bundle| Arc::from(BASE64_STANDARD.decode(bundle).unwrap_or_default())),
            verifies: object.value_at(&["spec", "insecureSkipTLSVerify"]) != Some(&json!(true)),
            is_available: object.has_condition("Available"),
        })
    }

    /// The path of its version.
    pub fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    /// The name that the server's certificate has to have.
    pub fn host(&self) -> String {
        let (namespace, name) = &self.service;
        format!("{name}.{namespace}.svc")
    }
}

/// Whether a group may be answered by an extension server: those of the kinds that are built in are not.
pub fn may_be_extended(group: &str) -> bool {
    !group.is_empty() && !kinds::ALL.iter().any(|kind| kind.resource.group() == group)
}

/// Returns all APIServices whose version an extension server answers.
pub fn extensions(txn: &dyn Transaction) -> ApiResult<Vec<Extension>> {
    Ok(select_extensions(&txn.list(API_SERVICES, None)?))
}

/// Returns the extensions among APIServices.
pub fn select_extensions(objects: &[Object]) -> Vec<Extension> {
    let found = objects.iter().filter_map(Extension::read).filter(|one| may_be_extended(&one.group));
    found.take(MAX_EXTENSIONS).collect()
}

/// The state of an APIService: its condition `Available`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// `True`, `False`.
    pub status: &'static str,
    /// `Passed`.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
}

impl Availability {
    /// The server answers.
    pub fn passed() -> Availability {
        Availability { status: "True", reason: "Passed", message: "all checks passed".to_owned() }
    }

    /// The server does not answer as it should.
    pub fn failed_check(why: String) -> Availability {
        Availability::unavailable("FailedDiscoveryCheck", why)
    }

    fn is_shown_by(&self, condition: &Value) -> bool {
        let is_same = |field: &str, text: &str| condition[field] == text;
        is_same("status", self.status) && is_same("reason", self.reason) && is_same("message", &self.message)
    }

    fn unavailable(reason: &'static str, message: String) -> Availability {
        Availability { status: "False", reason, message }
    }
}

/// The server of an extension: the address to connect to, and the address in messages.
pub struct ExtensionServer {
    /// A ready endpoint.
    pub place: SocketAddr,
    /// The address of the Service with its port.
    pub shown: String,
}

/// Finds the server of an extension. The error is the reason why there is none.
pub fn find_server(txn: &dyn Transaction, extension: &Extension) -> ApiResult<Result<ExtensionServer, Availability>> {
    let (namespace, name) = &extension.service;
    let unavailable = |reason, text: String| Ok(Err(Availability::unavailable(reason, text)));
    let about = format!("service/{name} in {namespace:?}");
    let Some(service) = txn.get_shared(&Key::new(Resource("services"), namespace, name))? else {
        return unavailable("ServiceNotFound", format!("{about} is not present"));
    };
    let ports = service.items(&["spec", "ports"]).iter();
    let Some(port) = ports.clone().find(|port| port["port"].as_u64() == Some(extension.port)) else {
        let text = format!("{about} is not listening on port {}", extension.port);
        return unavailable("ServicePortError", text);
    };
    let port_name = port["name"].as_str().unwrap_or_default();
    let Some(place) = find_ready(txn, &service, ServicePort::Number(extension.port))? else {
        let text = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return match super::service_endpoints::has_slices(txn, &service)? {
            true => unavailable("MissingEndpoints", text),
            false => unavailable("EndpointsNotFound", format!("cannot find endpointslices for {about}")),
        };
    };
    let address = service.text(&["spec", "clusterIP"]).filter(|address| !matches!(*address, "" | "None"));
    let shown = address.map_or_else(|| place.ip().to_string(), str::to_owned);
    Ok(Ok(ExtensionServer { place, shown: format!("{shown}:{}", extension.port) }))
}

/// Whether an APIService has this condition `Available`, or is gone.
pub fn has_availability(txn: &dyn Transaction, name: &str, found: &Availability) -> ApiResult<bool> {
    let object = txn.get_shared(&Key::new(API_SERVICES, "", name))?;
    Ok(object.is_none_or(|object| object.condition("Available").is_some_and(|condition| found.is_shown_by(condition))))
}

/// Writes the condition `Available` of an APIService, if it differs.
pub fn set_availability(txn: &mut dyn Transaction, name: &str, found: &Availability) -> ApiResult<Option<WriteReply>> {
    let Some(mut object) = txn.get(&Key::new(API_SERVICES, "", name))? else { return Ok(None) };
    if object.condition("Available").is_some_and(|known| found.is_shown_by(known)) {
        return Ok(None);
    }
    object.set_condition(condition::new("Available", found.status, found.reason, &found.message, txn.now()));
    update(txn, &KIND, &object, UpdatePart::Status, &WriteOptions::default()).map(Some)
}

#[cfg(test)]
mod tests;
