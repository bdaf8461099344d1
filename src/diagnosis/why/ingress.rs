//! Ingresses: whether kloop listens for requests, and whether a Service answers them.

use super::remedy::in_namespace;
use super::{CauseLink, ControlPlaneState, ConvergenceState};
use crate::network::ingress::faults::{faults, other_controller};
use crate::world::{Row, World};
use serde_json::Value;
use std::sync::Arc;

/// The link of an Ingress: its parts that are not served as written, and whether a process listens.
pub fn link(world: &World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    if let Some(seen) = other_controller(world, row) {
        return CauseLink { wanted: "exists".into(), seen, ..CauseLink::from_row(row) };
    }
    let faults = faults(world, row);
    let link = CauseLink { wanted: "ready endpoints for all its backends".into(), ..CauseLink::from_row(row) };
    let more: Vec<String> = faults.iter().skip(1).map(|fault| fault.what.clone()).collect();
    let link = CauseLink { more, ..link };
    if let Some(fault) = faults.first() {
        let link = CauseLink { seen: fault.what.clone(), ..link };
        return match &fault.next {
            Some(next) => link.stuck(next.clone()),
            // The Service's own link explains its endpoints.
            None => CauseLink { state: ConvergenceState::Converging, ..link },
        };
    }
    let places = places(row);
    if places.is_empty() && plane.is_preview {
        return CauseLink { seen: "its Services answer; the proxy listens once it is applied".into(), ..link };
    }
    if places.is_empty() {
        return CauseLink {
            seen: "the Ingress proxy does not listen for it yet".into(),
            state: ConvergenceState::Converging,
            ..link
        };
    }
    let is_usual = |place: &String| place.ends_with(":80") || place.ends_with(":443");
    let inside = match world.settings.pod_network && !places.iter().all(is_usual) {
        true => ", for pods at the usual ports, too",
        false => "",
    };
    let seen = format!("at {}{inside}", places.join(", "));
    if plane.is_closed {
        let seen = format!("{seen}: the process that listens there (kloop network) has ended");
        let run = || match plane.runs {
            true => "read the output of `kloop reconcile`: it starts that process again".to_owned(),
            false => "kloop reconcile --watch".to_owned(),
        };
        return CauseLink { seen, ..link }.stuck_if(true, run);
    }
    let next = Some(format!("kloop describe ingress/{}{}", row.key.name, in_namespace(&row.key)));
    CauseLink { seen, next, ..link }
}

/// Returns its addresses.
fn places(row: &Row) -> Vec<String> {
    let object = row.object();
    let doors = object.items(&["status", "loadBalancer", "ingress"]).iter();
    let places = doors.flat_map(|door| {
        let ip = door["ip"].as_str().unwrap_or_default();
        let ports = door["ports"].as_array().into_iter().flatten();
        ports.filter_map(move |port| Some(format!("{ip}:{}", port["port"].as_i64()?)))
    });
    places.collect()
}

/// The backend Services of an Ingress that kloop serves.
pub fn backends(world: &World, ingress: &Row) -> Vec<Arc<Row>> {
    if other_controller(world, ingress).is_some() {
        return Vec::new();
    }
    let object = ingress.object();
    let rules = object.items(&["spec", "rules"]).iter();
    let paths = rules.flat_map(|rule| rule["http"]["paths"].as_array().into_iter().flatten());
    let backends = paths.map(|path| &path["backend"]).chain(object.value_at(&["spec", "defaultBackend"]));
    let names = backends.filter_map(|backend: &Value| backend["service"]["name"].as_str());
    names.filter_map(|name| world.find("services", &ingress.key.namespace, name).cloned()).collect()
}
