//! Services and NetworkPolicies: whether a Service has ready endpoints, and which pods a policy selects.

use super::dry_run::with_dry_run;
use super::last_activity::port_unavailable;
use super::{CauseLink, ControlPlaneState, ConvergenceState, name};
use crate::diagnosis::convergence::reachability::{self, NoEndpoints};
use crate::object::Selector;
use crate::world::{Row, World};
use serde_json::Value;

/// The link of a Service.
pub fn link(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let mut link = behind_it(world, row, plane);
    link.more.extend(port_unavailable(world, row));
    link
}

fn behind_it(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let object = row.object();
    let link = CauseLink { wanted: "a ready endpoint".into(), ..CauseLink::from_row(row) };
    if object.text(&["spec", "type"]) == Some("ExternalName") {
        let seen = format!("a name for {}", object.text(&["spec", "externalName"]).unwrap_or_default());
        return CauseLink { wanted: "exists".into(), seen, ..link };
    }
    if !reachability::selects_pods(&object) {
        return CauseLink {
            wanted: "exists".into(),
            seen: "no selector: its endpoints are set by hand".into(),
            ..link
        };
    }
    if let Some(idle) = reachability::find_idle_workload(world, row, &object) {
        let seen = format!("no pods: {} is scaled to none", name(&idle.key));
        return CauseLink { wanted: "exists".into(), seen, ..link };
    }
    let pods = reachability::pods(world, row);
    let ready = pods.iter().filter(|pod| pod.pod().is_some_and(|pod| pod.ready)).count();
    let seen = format!("{ready} of {} pods are ready", pods.len());
    let state = match reachability::missing_endpoints(world, row) {
        Some(NoEndpoints::NoPods) => {
            let selector: Vec<String> =
                object.pairs(&["spec", "selector"]).map(|(key, value)| format!("{key}={value}")).collect();
            let seen = format!("no pod has the labels {}", selector.join(","));
            let next = format!("apply pods with these labels, or correct spec.selector: {}", plane.correct(world, row));
            return CauseLink { seen, ..link }.stuck(next);
        }
        Some(NoEndpoints::UnnamedPort(port)) => {
            let seen = format!("{seen}; no container names a port {port:?}");
            let next = format!("name a containerPort {port:?}, or correct targetPort");
            return CauseLink { seen, ..link }.stuck(next);
        }
        Some(NoEndpoints::NoneReady) => ConvergenceState::Converging,
        None => ConvergenceState::Converged,
    };
    with_dry_run(world, row, CauseLink { seen, state, ..link }, plane)
}

/// The link of a NetworkPolicy: the number of pods that it selects, and of its rules for each direction.
pub fn policy(world: &World, row: &Row) -> CauseLink {
    let object = row.object();
    let selector = Selector::from_label_selector(&object.0["spec"]["podSelector"]);
    let pods = selector.map_or(0, |selector| world.pods_matching(&row.key.namespace, &selector).len());
    let types = object.items(&["spec", "policyTypes"]).iter().filter_map(Value::as_str);
    let rules = types.map(|direction| {
        let rules = object.items(&["spec", &direction.to_lowercase()]).len();
        format!(
            "{}: {rules} rules{}",
            direction.to_lowercase(),
            if rules == 0 { ", so nothing is allowed" } else { "" }
        )
    });
    let seen = format!("it selects {pods} pods; {}", rules.collect::<Vec<_>>().join("; "));
    let wanted = "applies to connections from and to its pods".into();
    CauseLink { seen, wanted, ..CauseLink::from_row(row) }
}
