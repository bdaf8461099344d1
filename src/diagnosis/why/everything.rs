//! Explains all objects that have not converged, each cause once.

use super::last_activity::{PORT_UNAVAILABLE, port_unavailable};
use super::relations::owners;
use super::{
    CauseChain, CauseLink, ControlPlaneState, ConvergenceState, PLANE, api_service, dry_run, explain, name, plane_link,
};
use crate::diagnosis::convergence;
use crate::kinds::image;
use crate::object::Key;
use crate::world::{Loop, Row, World};
use std::collections::BTreeSet;

/// Resources without a status that shows when they are stuck, explained by their chain. Prerequisites of others are
/// first.
const BY_CHAIN: [&str; 8] = [
    image::RESOURCE,
    "nodes",
    "persistentvolumes",
    "persistentvolumeclaims",
    "services",
    "ingresses.networking.k8s.io",
    "horizontalpodautoscalers.autoscaling",
    api_service::ROOT,
];

/// Resources that can be stuck for a reason of their own while the objects that they lead to are stuck for another.
const OWN_CAUSES: [&str; 2] = ["services", "ingresses.networking.k8s.io"];

/// The chains of everything in one namespace, or in all, that has not converged.
pub fn explain_unconverged(world: &mut World, namespace: Option<&str>, plane: &ControlPlaneState) -> Vec<CauseChain> {
    let is_meant = |key: &Key| namespace.is_none_or(|namespace| [namespace, ""].contains(&&*key.namespace));
    let judged = convergence::unmet(world).into_iter().map(|unmet| unmet.key).filter(is_meant);
    let judged =
        judged.filter(|key| !BY_CHAIN.contains(&key.resource.0) || world.get(key).is_some_and(|row| row.is_deleting()));
    let judged: Vec<Key> = judged.collect();
    let mut answers: Vec<CauseChain> = judged.iter().filter_map(|key| explain(world, key, plane)).collect();
    for key in owners_of_lost_pods(world, plane).into_iter().filter(is_meant).filter(|key| !judged.contains(key)) {
        answers.extend(explain(world, &key, plane).filter(|answer| answer.state() == ConvergenceState::Stuck));
    }
    let rows = BY_CHAIN.iter().flat_map(|resource| world.list(resource)).filter(|row| !row.is_deleting());
    let mut others: Vec<Key> = rows.map(|row| row.key.clone()).filter(is_meant).collect();
    others.extend(
        keys_awaiting_disabled_controllers(world, plane)
            .into_iter()
            .filter(is_meant)
            .filter(|key| !judged.contains(key)),
    );
    for key in others {
        let answer = explain(world, &key, plane).filter(|answer| answer.state() == ConvergenceState::Stuck);
        answers.extend(answer.and_then(|answer| keep_unreported_cause(&answers, &key, answer)));
    }
    if answers.is_empty() && (plane.is_silent || plane.stopped.is_some()) {
        answers.push(CauseChain { about: PLANE.into(), links: vec![plane_link(plane, world.now, false)], place: 0 });
    }
    answers
}

/// A port that does not lead to its object, which has converged otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailablePort {
    /// The pod or Service, as `pod/web`.
    pub about: String,
    /// The event's message, with the address and the reason.
    pub message: String,
}

/// Returns the unavailable host ports of pods, and ports of Services of the types NodePort and LoadBalancer, in one namespace or in all.
/// Leaves out Services of the type ClusterIP: pods reach them even so, and an ordinary user cannot open their ports below 1024.
pub fn unavailable_ports(world: &World, namespace: Option<&str>) -> Vec<UnavailablePort> {
    let reported = world.list("events").filter(|event| event.mentions(PORT_UNAVAILABLE)).map(|event| event.object());
    let of_namespace = reported.filter(|event| {
        namespace.is_none_or(|namespace| event.text(&["involvedObject", "namespace"]) == Some(namespace))
    });
    let uids: BTreeSet<String> =
        of_namespace.filter_map(|event| Some(event.text(&["involvedObject", "uid"])?.to_owned())).collect();
    let rows = uids.iter().filter_map(|uid| world.by_uid(uid)).filter(|row| is_meant_for_others(row));
    let port = |row: &Row| Some(UnavailablePort { about: name(&row.key), message: port_unavailable(world, row)? });
    rows.filter_map(|row| port(row)).collect()
}

fn is_meant_for_others(row: &Row) -> bool {
    row.key.resource.0 == "pods" || matches!(row.body().text(&["spec", "type"]), Some("NodePort" | "LoadBalancer"))
}

/// Returns the objects of other kinds for which a controller has something to do that does not run.
fn keys_awaiting_disabled_controllers(world: &mut World, plane: &ControlPlaneState) -> Vec<Key> {
    let loops: Vec<&Loop> = dry_run::disabled_loops(plane).filter(|each| !BY_CHAIN.contains(&each.root)).collect();
    let mut found = Vec::new();
    for each in loops {
        let keys: Vec<Key> = world.list(each.root).map(|row| row.key.clone()).collect();
        found.extend(keys.into_iter().filter(|key| dry_run::is_due(world, each, key)));
    }
    found
}

/// Returns the topmost owners of pods (or the pods) that have ended, are stopped, or have lost their node, although their status says that
/// they run.
fn owners_of_lost_pods(world: &World, plane: &ControlPlaneState) -> BTreeSet<Key> {
    let rows = plane.lost.keys().chain(plane.halted.keys()).filter_map(|uid| world.by_uid(uid));
    let rows = rows.chain(world.list("pods").filter(|pod| !plane.hides_nodes && has_lost_its_node(world, pod)));
    rows.map(|row| owners(world, row).first().unwrap_or(row).key.clone()).collect()
}

fn has_lost_its_node(world: &World, row: &Row) -> bool {
    let pod = row.pod().filter(|pod| !pod.phase.is_terminal() && !row.is_deleting());
    pod.and_then(|pod| pod.node.as_deref()).is_some_and(|node| world.find("nodes", "", node).is_none())
}

/// Returns a chain with a cause that has no line yet. Where its last cause has one, a Service or Ingress may still have a cause of its own,
/// such as a targetPort that no container names: the chain then ends there.
fn keep_unreported_cause(answers: &[CauseChain], key: &Key, mut answer: CauseChain) -> Option<CauseChain> {
    if !is_reported(answers, answer.root_cause()?) {
        return Some(answer);
    }
    let own = answer.links.get(answer.place).filter(|_| OWN_CAUSES.contains(&key.resource.0))?;
    let is_cause = own.state == ConvergenceState::Stuck && !is_reported(answers, own);
    answer.links.truncate(answer.place + 1);
    is_cause.then_some(answer)
}

/// Whether a cause has its line already, such as the pod of a Deployment that is also behind a Service.
fn is_reported(answers: &[CauseChain], cause: &CauseLink) -> bool {
    let same = |link: &CauseLink| (&link.what, &link.about, &link.seen) == (&cause.what, &cause.about, &cause.seen);
    answers.iter().flat_map(|answer| &answer.links).any(same)
}
