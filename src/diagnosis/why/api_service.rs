//! APIServices of extension API servers: why their version is not available.
//!
//! Knows: the condition `Available`, which the HTTP server writes. Never: asks a server. Start reading at [`link`].

use super::remedy::in_namespace;
use super::{CauseLink, ControlPlaneState, workload};
use crate::object::{Key, Resource};
use crate::world::{Row, World};
use std::sync::Arc;

/// The resource.
pub const ROOT: &str = "apiservices.apiregistration.k8s.io";

/// The link of an APIService.
pub fn link(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let link = workload::link(world, row, plane);
    let object = row.object();
    let mut conditions = object.items(&["status", "conditions"]).iter();
    let failed = conditions.find(|one| one["type"] == "Available" && one["status"] == "False");
    let (Some(failed), Some(key)) = (failed, service_key(row)) else { return link };
    let text = |field: &str| failed[field].as_str().unwrap_or_default();
    let (name, service, namespace) = (&row.key.name, &key.name, in_namespace(&key));
    let remedy = match text("reason") {
        "ServiceNotFound" => format!("apply the Service {service:?}{namespace}"),
        "ServicePortError" => format!("correct spec.service.port: kloop edit apiservice/{name}"),
        _ => format!("see why its server does not answer: kloop why service/{service}{namespace}"),
    };
    let error = format!("{}: {}", text("reason"), text("message"));
    let link = CauseLink { wanted: "available".into(), seen: "not available".into(), by: "serve", ..link };
    CauseLink { error: Some(error), ..link }.stuck(format!("{remedy}, or remove it: kloop delete apiservice/{name}"))
}

/// The Service of the extension server, where it exists.
pub fn service(world: &World, row: &Row) -> Option<Arc<Row>> {
    world.get(&service_key(row)?).cloned()
}

fn service_key(row: &Row) -> Option<Key> {
    let body = row.body();
    let text = |field: &str| body.text(&["spec", "service", field]);
    Some(Key::new(Resource("services"), text("namespace")?, text("name")?))
}
