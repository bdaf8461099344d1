//! Reads a pod: its spec and status from the store, and the facts of its machine, or of one that only pretends.

use super::pod::{ContainerRole, LocalPod, PodContainer, resolve};
use super::{hooks, simulated_pod};
use crate::kinds::pod::{ephemeral::as_container, facts::is_sidecar};
use crate::kinds::typed;
use crate::world::{NodeFacts, PodFacts, Row, World};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus};
use std::borrow::Cow;

impl<'a> LocalPod<'a> {
    /// Reads a pod; `None` when its body cannot be decoded.
    pub fn read(world: &'a World, row: &'a Row, node: &NodeFacts) -> Option<LocalPod<'a>> {
        let object = world.open(row);
        // Only these two: to decode the metadata, with a list of all fields for each manager, takes as long as the spec.
        let spec: PodSpec = typed::read(object.0.get("spec")?, &mut |_| {}).ok()?;
        let status = object.0.get("status").map(|status| typed::read::<Option<PodStatus>>(status, &mut |_| {}));
        let status = status.transpose().ok()?.flatten().unwrap_or_default();
        let facts = if node.simulated {
            Some(Cow::Owned(simulated_pod::simulated_facts(world, row, &object, &spec, &status)))
        } else {
            world.facts.pods.get(&row.uid).map(Cow::Borrowed)
        };
        let members = members(world, &spec, &status, facts.as_deref());
        let mut pod = LocalPod { world, row, object, spec, status, facts, members, simulated: node.simulated };
        if pod.simulated {
            simulated_pod::hold_back(&mut pod);
        }
        Some(pod)
    }
}

fn members(world: &World, spec: &PodSpec, status: &PodStatus, facts: Option<&PodFacts>) -> Vec<PodContainer> {
    let init = spec.init_containers.iter().flatten().map(|container| {
        let role = if is_sidecar(container) { ContainerRole::Sidecar } else { ContainerRole::Init };
        (role, container.clone(), status.init_container_statuses.as_deref())
    });
    let statuses = status.container_statuses.as_deref();
    let main = spec.containers.iter().map(|container| (ContainerRole::Main, container.clone(), statuses));
    let statuses = status.ephemeral_container_statuses.as_deref();
    let added = spec.ephemeral_containers.iter().flatten();
    let added = added.map(|container| (ContainerRole::Ephemeral, as_container(container), statuses));
    let member = |(role, container, statuses): (ContainerRole, Container, Option<&[ContainerStatus]>)| {
        let old = statuses.unwrap_or_default().iter().find(|status| status.name == container.name).cloned();
        let mut facts = facts.and_then(|facts| facts.containers.get(container.name.as_str())).cloned();
        facts.iter_mut().for_each(|facts| hooks::wake_up(world.now, &container, facts));
        let (attempt, state, last) = resolve(world.now, old.as_ref(), facts.as_ref());
        PodContainer { role, spec: container, old, attempt, state, last, facts }
    };
    init.chain(main).chain(added).map(member).collect()
}
