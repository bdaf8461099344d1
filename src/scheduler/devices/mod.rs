//! The plugin DynamicResources: allocates the devices of a pod's claims on a node.
//!
//! Knows: which claims are allocated already, and where; [`search`] finds devices for the others. Never: gives a claim a device that
//! another claim has, but for devices that several claims can share. The choice is written together with the binding of the pod, so that
//! no two claims get one device.
//! Start reading at [`PodDevices::from_pod`].

mod allocation;
mod binding;
mod capacity;
mod extended;
mod pools;
mod requests;
mod search;

use crate::object::{Object, Str, Time};
use crate::world::devices::{self, FINALIZER, PodDeviceClaim};
use crate::world::scheduler_profile::BINDING_TIMEOUT;
use crate::world::{Row, World, WriteVerb};
use binding::BindingState;
use extended::ExtendedClaim;
use pools::{DeviceSlices, DevicesInUse};
use requests::ClaimRequests;
pub use search::SearchFailure;
use serde_json::Value;
use std::sync::Arc;

/// The plugin.
pub const PLUGIN: &str = "DynamicResources";

/// A refusal: the node has no devices for all claims.
pub const CANNOT_ALLOCATE: &str = "cannot allocate all claims";
const ELSEWHERE: &str = "resourceclaim not available on the node";
const IN_USE: &str = "resourceclaim in use";

/// Constraints of a pod's claims on nodes.
#[derive(Clone, Default)]
pub struct PodDevices(Option<Arc<DeviceQuery>>);

/// Input of the search for devices, for all nodes.
struct DeviceQuery {
    claims: Vec<PodDeviceClaim>,
    /// The states of the binding conditions of these claims.
    binding_states: Vec<BindingState>,
    /// The moment of the query.
    now: Time,
    /// The requests of the claims that are not allocated yet, with their places among the claims.
    open: Vec<(usize, ClaimRequests)>,
    /// The claim for extended resources, which is not made yet.
    extended: Option<ExtendedClaim>,
    /// The extended resources that device classes provide.
    resources: Vec<Str>,
    slices: DeviceSlices,
    /// Devices of other claims.
    taken: DevicesInUse,
}

impl PodDevices {
    /// Reads the claims of a pod; the error says why no node can take it.
    pub fn from_pod(world: &World, row: &Row) -> Result<PodDevices, String> {
        let claims = devices::used_by_pod(world, row)?;
        let resources = extended::class_resources(world, row);
        if claims.is_empty() && resources.is_empty() {
            return Ok(PodDevices::default());
        }
        // A pod that waits for binding conditions has its claim for extended resources already.
        let is_made = claims.iter().any(|claim| claim.body.annotation(devices::EXTENDED_CLAIM).is_some());
        let extended = match resources.is_empty() || is_made {
            true => None,
            false => Some(ExtendedClaim::from_pod(world, row, &resources)?),
        };
        let mut open = Vec::new();
        for (place, claim) in claims.iter().enumerate() {
            if !devices::is_allocated(&claim.body) {
                open.push((place, ClaimRequests::read(world, &claim.body)?));
            } else if !devices::can_be_reserved(&claim.body) && !devices::is_reserved_for(&claim.body, &row.uid) {
                return Err(IN_USE.to_owned());
            }
        }
        let (slices, taken) = match open.is_empty() && extended.is_none() {
            true => Default::default(),
            false => (pools::all_slices(world), pools::allocated_devices(world)),
        };
        let timeout = super::profile_of(world, row).map_or(BINDING_TIMEOUT, |profile| profile.binding_timeout);
        let binding_states = claims.iter().map(|claim| BindingState::read(&claim.body, timeout, world.now)).collect();
        Ok(PodDevices(Some(Arc::new(DeviceQuery {
            claims,
            binding_states,
            now: world.now,
            open,
            extended,
            resources: resources.into_keys().collect(),
            slices,
            taken,
        }))))
    }

    /// Whether the pod has no claims.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the requested resources that device classes provide.
    pub fn extended_resources(&self) -> &[Str] {
        self.0.as_ref().map(|query| &*query.resources).unwrap_or_default()
    }

    /// Whether devices provide a requested resource on a node, which does not offer it itself.
    pub fn provides(&self, resource: &str, node: &Row) -> bool {
        self.extended_resources().iter().any(|known| **known == *resource) && !extended::offers(node, resource)
    }

    /// Returns the reason why a node cannot take the pod; `None` when it can.
    pub fn refusal(&self, node: &Row) -> Option<SearchFailure> {
        let query = self.0.as_ref()?;
        let is_here = |claim: &PodDeviceClaim| binding::is_available(&claim.body, node);
        if query.binding_states.contains(&BindingState::Failed) || !query.claims.iter().all(is_here) {
            return Some(SearchFailure::Node(ELSEWHERE.to_owned()));
        }
        match query.allocate(node) {
            Ok(Some(_)) => None,
            Ok(None) => Some(SearchFailure::Node(CANNOT_ALLOCATE.to_owned())),
            Err(why) => Some(why),
        }
    }

    /// Whether a claim has requests with alternatives, so that nodes are ranked by those that they offer.
    pub fn has_alternatives(&self) -> bool {
        let requests = |claim: &PodDeviceClaim| claim.body.items(&["spec", "devices", "requests"]).to_vec();
        let mut claims = self.0.iter().flat_map(|query| &query.claims);
        claims.any(|claim| requests(claim).iter().any(|request| request["firstAvailable"].is_array()))
    }

    /// Returns how early the alternatives are that the claims get on a node: more for earlier ones (KEP-4816).
    pub fn preference(&self, node: &Row) -> i64 {
        let Some(query) = &self.0 else { return 0 };
        let open = query.allocate(node).ok().flatten().unwrap_or_default().claims;
        let scores = query.claims.iter().enumerate().map(|(place, claim)| {
            let new = open.iter().find(|(of, _)| *of == place).map(|(_, allocation)| allocation);
            let allocation = new.or_else(|| claim.body.value_at(&["status", "allocation"]));
            allocation.map_or(0, |allocation| allocation::alternatives_score(&claim.body, allocation))
        });
        scores.sum()
    }

    /// Returns how long a placed pod has to wait for its devices: all claims are allocated and reserved for it, and a condition is not true
    /// yet. The moment is `None` where nothing limits that; the result is where the pod does not wait.
    pub fn awaited_until(&self, pod: &Row) -> Option<Option<Time>> {
        let query = self.0.as_ref().filter(|query| query.open.is_empty() && query.extended.is_none())?;
        let is_placed = |claim: &PodDeviceClaim| devices::is_reserved_for(&claim.body, &pod.uid);
        if !query.claims.iter().all(is_placed) || query.binding_states.contains(&BindingState::Failed) {
            return None;
        }
        let mut pending = query.binding_states.iter().filter_map(|state| match state {
            BindingState::Pending(until) => Some(*until),
            _ => None,
        });
        let first = pending.next()?;
        Some(pending.fold(first, |until, other| until.into_iter().chain(other).min()))
    }

    /// Whether a pod that is placed with these writes for its claims has to wait for conditions of its devices.
    pub fn has_to_wait(&self, writes: &[(WriteVerb, String)]) -> bool {
        let is_new = |(verb, _): &(WriteVerb, String)| match verb {
            WriteVerb::Status(claim) => {
                let results = claim.items(&["status", "allocation", "devices", "results"]);
                claim.items(&["status", "devices"]).is_empty() && results.iter().any(binding::has_conditions)
            }
            _ => false,
        };
        let is_pending = |state: &BindingState| matches!(state, BindingState::Pending(_));
        writes.iter().any(is_new) || self.0.iter().any(|query| query.binding_states.iter().any(is_pending))
    }

    /// Returns the write that deallocates the devices of a claim that fit no node for the pod: a device failed, or these nodes cannot reach
    /// it. The pod gets other devices then.
    pub fn deallocation<'n>(&self, pod: &Row, mut nodes: impl Iterator<Item = &'n Row>) -> Option<(WriteVerb, String)> {
        let query = self.0.as_ref()?;
        let failed =
            query.claims.iter().zip(&query.binding_states).filter(|(_, state)| **state == BindingState::Failed);
        let failed = failed.map(|(claim, _)| (claim, "its device failed or is not ready in time"));
        let is_elsewhere = |node: &Row| query.claims.iter().find(|claim| !binding::is_available(&claim.body, node));
        let elsewhere = nodes.find_map(is_elsewhere).map(|claim| (claim, "its devices are on another node"));
        failed.chain(elsewhere).find_map(|(claim, why)| {
            let verb = binding::deallocate(&claim.body, pod)?;
            Some((verb, format!("the claim {} loses its devices: {why}", claim.row.key.path())))
        })
    }

    /// Returns the writes for the pod's claims when it is placed on a node: the allocation, and the reservation for the pod.
    pub fn claim_writes(&self, pod: &Row, node: &Row) -> Vec<(WriteVerb, String)> {
        let Some(query) = &self.0 else { return Vec::new() };
        let NodeAllocation { claims: mut allocations, extended } =
            query.allocate(node).ok().flatten().unwrap_or_default();
        let mut writes = Vec::new();
        for (place, PodDeviceClaim { row, body }) in query.claims.iter().enumerate() {
            let of_this = |(claim, _): &(usize, Value)| *claim == place;
            let allocation = allocations.iter().position(of_this).map(|index| allocations.swap_remove(index).1);
            if devices::is_reserved_for(body, &pod.uid) && allocation.is_none() {
                continue;
            }
            let mut status = devices::reserved_for(body, pod);
            let mut why = format!("the claim {} is reserved for {}", row.key.path(), pod.key.name);
            if let Some(allocation) = allocation {
                status.set(&["status", "allocation"], allocation);
                why = format!("the claim {} gets devices on {}", row.key.path(), node.key.name);
                if let Some(claim) = with_finalizer(body) {
                    writes.push((WriteVerb::Update(claim), format!("the claim {} is in use", row.key.path())));
                    // The revision of the claim is that of the write before, in the same transaction.
                    status.unset(&["metadata", "resourceVersion"]);
                }
            }
            writes.push((WriteVerb::Status(status), why));
        }
        if let (Some(allocation), Some(claim)) = (extended, &query.extended) {
            let (claim, named) = claim.objects_on(node, pod);
            let mut status = devices::reserved_for(&claim, pod);
            status.set(&["status", "allocation"], allocation);
            let name = claim.name().to_owned();
            writes.push((WriteVerb::Create(claim), format!("{} requests extended resources of devices", pod.key.name)));
            writes.push((WriteVerb::Status(status), format!("the claim {name} gets devices on {}", node.key.name)));
            writes.push((WriteVerb::Status(named), format!("the claim {name} has the extended resources of the pod")));
        }
        writes
    }
}

impl DeviceQuery {
    /// Returns the allocations on a node; `None` where there are too few devices.
    fn allocate(&self, node: &Row) -> Result<Option<NodeAllocation>, SearchFailure> {
        let extended = self.extended.as_ref().map(|claim| claim.requests_on(node));
        let extended = extended.filter(|claim| !claim.requests.is_empty());
        let claims: Vec<&ClaimRequests> =
            self.open.iter().map(|(_, requests)| requests).chain(extended.as_ref()).collect();
        if claims.is_empty() {
            return Ok(Some(NodeAllocation::default()));
        }
        let pools = pools::pools_on_node(&self.slices, node);
        let Some(chosen) = search::find_devices(&claims, &pools, node, &self.taken)? else { return Ok(None) };
        let results = claims
            .iter()
            .zip(&chosen)
            .map(|(claim, chosen)| allocation::build_allocation(claim, chosen, node, self.now));
        let mut results: Vec<Value> = results.collect();
        let extended = extended.and_then(|_| results.pop());
        let claims = self.open.iter().map(|(place, _)| *place).zip(results).collect();
        Ok(Some(NodeAllocation { claims, extended }))
    }
}

/// Devices of a node for the claims of a pod.
#[derive(Default)]
struct NodeAllocation {
    /// The allocation of each open claim, with the claim's place.
    claims: Vec<(usize, Value)>,
    /// The allocation of the claim for extended resources, if the pod needs one there.
    extended: Option<Value>,
}

/// Returns the claim with the finalizer of allocated claims; `None` when it has that already.
fn with_finalizer(claim: &Object) -> Option<Object> {
    (!claim.has_finalizer(FINALIZER)).then(|| {
        let mut claim = claim.clone();
        claim.add_finalizer(FINALIZER);
        claim
    })
}

#[cfg(test)]
mod binding_tests;
#[cfg(test)]
mod tests;
