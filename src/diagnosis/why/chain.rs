//! Follows an object to its owners, and to the objects that it depends on.

use super::relations::{DEPTH, owners, target};
use super::remedy::{advice, in_namespace};
use super::{
    CauseChain, CauseLink, ControlPlaneState, ConvergenceState, LastActivity, api_service, autoscaler, container,
    disruption, dry_run, image, ingress, last_activity, needs, node, plane_link, pod, row_name, service,
    signing_request, workload,
};
use crate::controllers::certificates;
use crate::controllers::namespace::CONTENT_FAILURE;
use crate::controllers::pv_binder;
use crate::diagnosis::convergence;
use crate::kinds::{persistent_volume, persistent_volume_claim};
use crate::object::Key;
use crate::reconcile::tick::INTERNAL_ERROR;
use crate::world::{Row, World, storage};
use std::sync::Arc;

/// The chain of an object; `None` when it does not exist.
pub fn explain(world: &mut World, key: &Key, plane: &ControlPlaneState) -> Option<CauseChain> {
    let row = world.get(key)?.clone();
    let mut links: Vec<CauseLink> = owners(world, &row).iter().map(|owner| link(world, owner, plane)).collect();
    let above = links.len();
    links.extend(causes_below(world, &row, plane, DEPTH));
    let missing = links[above..].iter().any(|link| link.state != ConvergenceState::Converged);
    for link in links.iter_mut().filter(|link| link.state != ConvergenceState::Converged) {
        link.last = link.about.as_ref().and_then(|subject| last_activity::last_activity(world, subject));
        show_panic(world, link);
    }
    links.insert(0, plane_link(plane, world.now, missing));
    Some(CauseChain { about: row_name(&row), links, place: above + 1 })
}

/// Shows that a loop panicked when it last planned an object, as the object's events say. Plans of loops that use reports of the machine,
/// such as the kubelet, cannot be made here.
fn show_panic(world: &World, link: &mut CauseLink) {
    let told = link
        .about
        .as_ref()
        .and_then(|subject| last_activity::last_activity_with_reason(world, subject, INTERNAL_ERROR));
    // A later activity shows that the loop works again.
    let is_newest = |told: &LastActivity| link.last.as_ref().is_none_or(|last| last.at <= told.at);
    let Some(told) = told.filter(is_newest) else { return };
    link.state = ConvergenceState::Stuck;
    link.next = Some("this is a bug in kloop, please report it; it is tried again, less and less often".into());
    link.error.get_or_insert_with(|| told.message.clone());
    link.last = Some(told);
}

/// The object's own link.
fn link(world: &mut World, row: &Arc<Row>, plane: &ControlPlaneState) -> CauseLink {
    let link = match row.key.resource.0 {
        "pods" => pod::link(world, row, plane),
        "nodes" => node::link(row),
        "services" => service::link(world, row, plane),
        "ingresses.networking.k8s.io" => ingress::link(world, row, plane),
        "networkpolicies.networking.k8s.io" => service::policy(world, row),
        "persistentvolumeclaims" => needs::claim(world, row, plane),
        "persistentvolumes" => needs::volume(world, row, plane),
        api_service::ROOT => api_service::link(world, row, plane),
        autoscaler::ROOT => autoscaler::link(world, row, plane),
        disruption::ROOT => disruption::link(world, row, plane),
        certificates::ROOT => signing_request::link(world, row, plane),
        crate::kinds::image::RESOURCE => image::link(world, row, plane),
        _ => workload::link(world, row, plane),
    };
    let link = if row.is_deleting() { explain_deletion(world, row, link) } else { link };
    let link = explain_blocked_namespace(world, row, link, plane);
    explain_disabled_controller(world, row, link, plane)
}

/// Names a disabled controller if it would act next.
fn explain_disabled_controller(world: &mut World, row: &Row, link: CauseLink, plane: &ControlPlaneState) -> CauseLink {
    if plane.disabled_controllers.is_empty() || !plane.runs || link.state == ConvergenceState::Stuck {
        return link;
    }
    let is_responsible =
        link.state != ConvergenceState::Converged && plane.disabled_controllers.iter().any(|name| *name == link.by);
    let name = is_responsible.then_some(link.by).or_else(|| {
        let root = row.key.resource.0;
        dry_run::disabled_loops(plane)
            .find(|each| each.root == root && dry_run::is_due(world, each, &row.key))
            .map(|each| each.name)
    });
    let Some(name) = name else { return link };
    let error = format!("{name} is not running: it was left out by --controllers");
    let next = format!("end the control plane, and start one that runs {name}: kloop reconcile --watch");
    CauseLink { error: Some(error), ..link }.stuck(next)
}

/// Explains a deletion in progress by the remaining finalizers.
fn explain_deletion(world: &World, row: &Row, link: CauseLink) -> CauseLink {
    let mut handled =
        vec!["foregroundDeletion", "orphan", persistent_volume_claim::PROTECTION, persistent_volume::PROTECTION];
    if row.body().text(&["spec", "csi", "driver"]) == Some(persistent_volume::LOCAL_DRIVER) {
        handled.push(persistent_volume::PROVISIONER_FINALIZER);
    }
    let finalizers: Vec<&str> = row.finalizers.iter().map(|one| &**one).collect();
    let foreign: Vec<&str> = finalizers
        .iter()
        .copied()
        .filter(|one| !handled.contains(one) && *one != "batch.kubernetes.io/job-tracking")
        .collect();
    let seen = match &finalizers[..] {
        [] => "it is being deleted".to_owned(),
        held => format!("it is being deleted and waits for the finalizers {}", held.join(", ")),
    };
    let link = CauseLink { wanted: "to be gone".into(), seen, state: ConvergenceState::Converging, next: None, ..link };
    if foreign.is_empty()
        && let Some(pod) = user_of_protected_claim(world, row)
    {
        let (name, place) = (row_name(pod), in_namespace(&row.key));
        let seen = format!("{}, as {name} uses it", link.seen);
        let next = format!("delete the pod: kloop delete {name}{place}");
        return CauseLink { seen, by: pv_binder::LOOP.name, ..link }.stuck(next);
    }
    let is_pod_that_ends = row.pod().is_some_and(|_| world.now < row.deletion.unwrap_or(world.now));
    link.stuck_if(!foreign.is_empty() && !is_pod_that_ends, || {
        let kind = row_name(row);
        format!(
            "wait for the owner of the finalizers {} to remove them, or remove them: kloop patch {kind}{} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
            foreign.join(", "),
            in_namespace(&row.key)
        )
    })
}

/// Returns a pod that uses a claim which is protected while pods do.
fn user_of_protected_claim<'a>(world: &'a World, claim: &'a Row) -> Option<&'a Arc<Row>> {
    let is_protected = claim.has_finalizer(persistent_volume_claim::PROTECTION);
    is_protected.then(|| storage::find_keeper(world, claim)).flatten()
}

/// Explains a namespace whose content cannot be deleted.
fn explain_blocked_namespace(world: &World, row: &Row, link: CauseLink, plane: &ControlPlaneState) -> CauseLink {
    if row.key.resource != "namespaces" || !row.is_deleting() {
        return link;
    }
    let object = row.object();
    let failure = object.true_condition(CONTENT_FAILURE).and_then(|one| one["message"].as_str());
    match failure {
        Some(message) => {
            let next = advice(world, row, message, plane);
            CauseLink { error: Some(message.to_owned()), ..link }.stuck(next)
        }
        None => link,
    }
}

/// The object and the objects below it: at each step the child that is furthest from its desired state.
fn causes_below(world: &mut World, row: &Arc<Row>, plane: &ControlPlaneState, depth: usize) -> Vec<CauseLink> {
    let own = link(world, row, plane);
    let mut links = vec![own];
    if row.key.resource == "pods" && !awaits_dependents(row) {
        links.extend(container::links(world, row, plane));
        links.extend(needs::links(world, row, plane));
        links.extend(image::links(world, row, plane));
        return links;
    }
    if depth == 0 {
        return links;
    }
    let children = children(world, row);
    let all = children.len();
    let mut chains: Vec<Vec<CauseLink>> =
        children.iter().take(MAX_CHILDREN).map(|child| causes_below(world, child, plane, depth - 1)).collect();
    let worst = (0..chains.len()).max_by_key(|place| (state(&chains[*place]), std::cmp::Reverse(*place)));
    if let Some(worst) = worst {
        let alike = chains.iter().filter(|chain| state(chain) == state(&chains[worst])).count();
        let mut chain = chains.swap_remove(worst);
        if alike > 1 && state(&chain) != ConvergenceState::Converged {
            let and = if all > MAX_CHILDREN { "more than " } else { "" };
            chain[0].more.insert(0, format!("and {and}{} more like it", alike - 1));
        }
        links.extend(chain);
    }
    links
}

/// Maximum number of children to examine for the least converged one.
const MAX_CHILDREN: usize = 50;

fn state(chain: &[CauseLink]) -> ConvergenceState {
    chain.iter().map(|link| link.state).max().unwrap_or_default()
}

/// Whether it is being deleted in the foreground, so that its dependents must go first.
fn awaits_dependents(row: &Row) -> bool {
    row.is_deleting() && row.has_finalizer("foregroundDeletion")
}

/// Returns the objects that an object depends on for convergence.
fn children(world: &World, row: &Arc<Row>) -> Vec<Arc<Row>> {
    if awaits_dependents(row) {
        let holds =
            |other: &&Arc<Row>| other.owners.iter().any(|owner| owner.block_owner_deletion && *owner.uid == *row.uid);
        return world.dependents(&row.uid).filter(holds).cloned().collect();
    }
    match row.key.resource.0 {
        "deployments.apps" => workload::newest_set(world, row).into_iter().collect(),
        "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" | "jobs.batch" | "replicationcontrollers" => {
            let pods = world.controlled("pods", &row.uid).filter(|pod| !pod.is_deleting());
            let ended = |pod: &Row| pod.pod().is_some_and(|pod| pod.phase.is_terminal());
            let is_job = row.key.resource == "jobs.batch";
            // The pods that a Job has used up are counted in its status.
            pods.filter(|pod| !is_job || !ended(pod)).cloned().collect()
        }
        "cronjobs.batch" => {
            // A running Job is normal for a CronJob, so only other Jobs are examined.
            let runs = |job: &Row| !job.is_deleting() && convergence::job_runs(&job.object());
            world.controlled("jobs.batch", &row.uid).filter(|job| !runs(job)).cloned().collect()
        }
        "services" => {
            let pods = world.list_in("pods", &row.key.namespace).filter(|pod| pod.is_active_pod() && row.selects(pod));
            let unready = |pod: &Arc<Row>| !pod.pod().is_some_and(|pod| pod.ready);
            // A Service needs only one ready pod.
            let pods: Vec<Arc<Row>> = pods.cloned().collect();
            if pods.iter().all(unready) { pods } else { pods.into_iter().filter(|pod| !unready(pod)).take(1).collect() }
        }
        "ingresses.networking.k8s.io" => ingress::backends(world, row),
        api_service::ROOT => api_service::service(world, row).into_iter().collect(),
        autoscaler::ROOT => target(world, row).into_iter().collect(),
        disruption::ROOT => disruption::unhealthy(world, row),
        "persistentvolumeclaims" => {
            let volume = row.object().text(&["spec", "volumeName"]).map(str::to_owned);
            volume.and_then(|name| world.find("persistentvolumes", "", &name).cloned()).into_iter().collect()
        }
        "namespaces" if row.is_deleting() => {
            let held = world.content_of(&row.key.name).into_iter().find(|row| row.is_deleting());
            held.cloned().into_iter().collect()
        }
        _ => Vec::new(),
    }
}
