//! The search for devices: it chooses a device for one request after the other, and backtracks when none is left.
//!
//! Knows: the first solution is taken. The number of choices grows exponentially, and selectors are expressions of users: the search gives
//! up after a number of steps, and when selectors cost too much. Never: changes a claim. Start reading at [`find_devices`].

use super::capacity;
use super::pools::{DeviceId, DevicePool, DevicesInUse, device_reaches};
use super::requests::{ClaimRequests, WantedDevices};
use crate::object::quantity::Quantity;
use crate::world::Row;
use k8s_openapi::api::resource::v1::{
    Device, DeviceAttribute, DeviceConstraint, DeviceTaint, DeviceToleration, ResourceSliceSpec,
};
use std::collections::HashMap;

/// Maximum number of devices that one claim gets (`AllocationResultsMaxSize`).
const MAX_RESULTS: usize = 32;
/// Maximum number of tried devices for one node.
const MAX_STEPS: usize = 50_000;
/// Maximum cost of all selectors for one node.
const MAX_COST: u64 = 20_000_000;

/// Why it is not known whether a node has devices for the claims.
pub enum SearchFailure {
    /// The node cannot be used now.
    Node(String),
    /// A selector of a claim or a class fails at a device. That ends the attempt to place the pod: another node would hide it.
    Selector(String),
}

/// A device that was chosen for a request.
#[derive(Clone, Copy)]
pub struct ChosenDevice<'a> {
    /// The request.
    pub wanted: &'a WantedDevices,
    /// Its pool.
    pub pool: &'a DevicePool,
    /// Its slice.
    pub slice: &'a ResourceSliceSpec,
    /// The device.
    pub device: &'a Device,
}

impl ChosenDevice<'_> {
    fn is_exclusive(&self) -> bool {
        self.wanted.admin_access != Some(true)
    }

    /// Whether several claims can have the device at once.
    pub fn is_shared(&self) -> bool {
        is_shared(self.device)
    }
}

/// A device of a pool.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    pool: &'a DevicePool,
    slice: &'a ResourceSliceSpec,
    device: &'a Device,
}

/// Devices for some claims, as far as they were chosen.
struct Search<'a> {
    claims: &'a [&'a ClaimRequests],
    candidates: Vec<Candidate<'a>>,
    taken: &'a DevicesInUse,
    /// The devices of each claim.
    chosen: Vec<Vec<ChosenDevice<'a>>>,
    /// Whether a candidate meets the selectors of a request, by their places.
    matches: HashMap<(*const WantedDevices, usize), bool>,
    steps: usize,
    /// The cost of the selectors so far.
    cost: u64,
}

/// Returns devices of these pools for each claim; `None` where there are too few. The error says why a request cannot be decided.
pub fn find_devices<'a>(
    claims: &'a [&'a ClaimRequests],
    pools: &'a [DevicePool],
    node: &Row,
    taken: &'a DevicesInUse,
) -> Result<Option<Vec<Vec<ChosenDevice<'a>>>>, SearchFailure> {
    let mut candidates = Vec::new();
    for pool in pools.iter().filter(|pool| !pool.is_invalid) {
        for slice in &pool.slices {
            let own_nodes = slice.per_device_node_selection == Some(true);
            let devices = slice.devices.iter().flatten().filter(|device| !own_nodes || device_reaches(device, node));
            candidates.extend(devices.map(|device| Candidate { pool, slice, device }));
        }
    }
    let chosen = vec![Vec::new(); claims.len()];
    let mut search = Search { claims, candidates, taken, chosen, matches: HashMap::new(), steps: 0, cost: 0 };
    search.check_pools(pools)?;
    Ok(search.choose_for(0, 0)?.then_some(search.chosen))
}

impl<'a> Search<'a> {
    /// Refuses requests for all devices while the slices of a pool are not complete.
    fn check_pools(&self, pools: &[DevicePool]) -> Result<(), SearchFailure> {
        let Some(pool) = pools.iter().find(|pool| pool.is_incomplete || pool.is_invalid) else { return Ok(()) };
        for claim in self.claims {
            if let Some(all) =
                claim.requests.iter().flat_map(|wanted| wanted.iter()).find(|wanted| wanted.count.is_none())
            {
                let state = if pool.is_invalid { "invalid" } else { "being updated" };
                return Err(SearchFailure::Node(format!(
                    "claim {}, request {}: asks for all devices, but resource pool {}/{} is currently {state}",
                    claim.claim, all.name, pool.driver, pool.name
                )));
            }
        }
        Ok(())
    }

    /// Chooses devices for a request of a claim and all that follow.
    fn choose_for(&mut self, claim: usize, request: usize) -> Result<bool, SearchFailure> {
        let Some(requests) = self.claims.get(claim) else { return Ok(true) };
        let Some(alternatives) = requests.requests.get(request) else { return self.choose_for(claim + 1, 0) };
        for wanted in alternatives.iter() {
            let is_complete = match wanted.count {
                Some(count) => self.choose_some((claim, request), wanted, (count, 0))?,
                None => self.choose_all((claim, request), wanted)?,
            };
            if is_complete {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Chooses a number of devices, beginning with a candidate: the devices of one request are interchangeable.
    fn choose_some(
        &mut self,
        (claim, request): (usize, usize),
        wanted: &'a WantedDevices,
        (left, first): (usize, usize),
    ) -> Result<bool, SearchFailure> {
        if left == 0 {
            return self.choose_for(claim, request + 1);
        }
        for index in first..self.candidates.len() {
            if !self.choose(claim, wanted, index)? {
                continue;
            }
            if self.choose_some((claim, request), wanted, (left - 1, index + 1))? {
                return Ok(true);
            }
            self.chosen[claim].pop();
        }
        Ok(false)
    }

    /// Chooses every device that matches; at least one has to match.
    fn choose_all(
        &mut self,
        (claim, request): (usize, usize),
        wanted: &'a WantedDevices,
    ) -> Result<bool, SearchFailure> {
        let before = self.chosen[claim].len();
        for index in 0..self.candidates.len() {
            if self.is_match(wanted, index)? && !self.choose(claim, wanted, index)? {
                self.chosen[claim].truncate(before);
                return Ok(false);
            }
        }
        if self.chosen[claim].len() > before && self.choose_for(claim, request + 1)? {
            return Ok(true);
        }
        self.chosen[claim].truncate(before);
        Ok(false)
    }

    /// Chooses a candidate if it is compatible with the devices that are chosen already.
    fn choose(&mut self, claim: usize, wanted: &'a WantedDevices, index: usize) -> Result<bool, SearchFailure> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            let why = format!("no devices were found for the claims within {MAX_STEPS} steps");
            return Err(SearchFailure::Node(why));
        }
        let Candidate { pool, slice, device } = self.candidates[index];
        let choice = ChosenDevice { wanted, pool, slice, device };
        let fits = self.chosen[claim].len() < MAX_RESULTS
            && self.is_available(claim, &choice)
            && self.is_match(wanted, index)?
            && self.has_capacity(&choice)
            && tolerates(device.taints.iter().flatten(), &wanted.tolerations)
            && (!choice.is_exclusive() || self.has_counters(pool, device))
            && self.claims[claim].constraints().all(|constraint| admits(constraint, &self.chosen[claim], &choice));
        if fits {
            self.chosen[claim].push(choice);
        }
        Ok(fits)
    }

    /// Whether a candidate meets the selectors of a request.
    fn is_match(&mut self, wanted: &'a WantedDevices, index: usize) -> Result<bool, SearchFailure> {
        let place = (std::ptr::from_ref(wanted), index);
        if let Some(earlier) = self.matches.get(&place) {
            return Ok(*earlier);
        }
        let Candidate { pool, device, .. } = self.candidates[index];
        let mut is_match = true;
        for (place, selector) in &wanted.selectors {
            let evaluated = selector.evaluate(&pool.driver, device);
            let failed = |why| SearchFailure::Selector(format!("{place}: CEL runtime error: {why}"));
            let (is_selected, cost) = evaluated.map_err(failed)?;
            is_match = is_selected;
            self.cost = self.cost.saturating_add(cost);
            if self.cost > MAX_COST {
                let why = format!("{place}: the selectors cost too much for the devices of this node");
                return Err(SearchFailure::Node(why));
            }
            if !is_match {
                break;
            }
        }
        self.matches.insert(place, is_match);
        Ok(is_match)
    }

    /// Whether no other request has the device alone. An administrator gets a device once for a claim, also one that others have.
    fn is_available(&self, claim: usize, choice: &ChosenDevice<'_>) -> bool {
        let is_same = |other: &ChosenDevice<'_>| std::ptr::eq(other.device, choice.device);
        if !choice.is_exclusive() {
            return choice.is_shared() || !self.chosen[claim].iter().any(is_same);
        }
        let mut others = self.chosen.iter().flatten().filter(|other| other.is_exclusive());
        !self.taken.whole.contains(&id_of(choice.pool, choice.device)) && (choice.is_shared() || !others.any(is_same))
    }

    /// Whether some request has the device or a share of it.
    fn is_in_use(&self, pool: &DevicePool, device: &Device) -> bool {
        let id = id_of(pool, device);
        let mut chosen = self.chosen.iter().flatten().filter(|choice| choice.is_exclusive());
        self.taken.whole.contains(&id)
            || self.taken.shared.contains_key(&id)
            || chosen.any(|choice| std::ptr::eq(choice.device, device))
    }

    /// Whether a device has the requested capacity. Other shares of a shared device reduce it.
    fn has_capacity(&self, choice: &ChosenDevice<'_>) -> bool {
        let device = choice.device;
        let Some(mut amounts) = capacity::consumed_by_request(device, &choice.wanted.capacity) else { return false };
        if choice.is_shared() {
            if let Some(used) = self.taken.shared.get(&id_of(choice.pool, device)) {
                capacity::add_amounts(&mut amounts, used);
            }
            let shares = self.chosen.iter().flatten().filter(|other| std::ptr::eq(other.device, device));
            for share in shares.filter_map(|other| capacity::consumed_by_request(device, &other.wanted.capacity)) {
                capacity::add_amounts(&mut amounts, &share);
            }
        }
        capacity::offers(device, &amounts)
    }

    /// Whether the pool's counters suffice for a device and the other chosen devices of the pool. Shares of one device consume them once.
    fn has_counters(&self, pool: &DevicePool, device: &Device) -> bool {
        if is_shared(device) && self.is_in_use(pool, device) {
            return true;
        }
        let mut needs = device.consumes_counters.iter().flatten();
        needs.all(|need| {
            need.counters.iter().all(|(name, counter)| {
                let place = (&*need.counter_set, name.as_str());
                let free = total_counter(pool, place) - self.consumed_counter(pool, place);
                free >= parse_quantity(&counter.value.0)
            })
        })
    }

    /// Returns the amount of a counter that the devices in use consume.
    fn consumed_counter(&self, pool: &DevicePool, (set, name): (&str, &str)) -> Quantity {
        let devices = pool.slices.iter().flat_map(|slice| slice.devices.iter().flatten());
        let used = devices.filter(|device| device.consumes_counters.is_some() && self.is_in_use(pool, device));
        let needs = used.flat_map(|device| device.consumes_counters.iter().flatten());
        let needs = needs.filter(|need| need.counter_set == set);
        needs.filter_map(|need| need.counters.get(name)).map(|counter| parse_quantity(&counter.value.0)).sum()
    }
}

fn is_shared(device: &Device) -> bool {
    device.allow_multiple_allocations == Some(true)
}

fn id_of(pool: &DevicePool, device: &Device) -> DeviceId {
    (pool.driver.clone(), pool.name.clone(), device.name.clone())
}

/// Returns the amount of a counter that a pool shares among its devices.
fn total_counter(pool: &DevicePool, (set, name): (&str, &str)) -> Quantity {
    let sets = pool.slices.iter().flat_map(|slice| slice.shared_counters.iter().flatten());
    let counters = sets.filter(|shared| shared.name == set).filter_map(|shared| shared.counters.get(name));
    counters.map(|counter| parse_quantity(&counter.value.0)).sum()
}

fn parse_quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or(Quantity::from_int(0))
}

/// Whether tolerations cover all taints that keep pods away.
fn tolerates<'t>(mut taints: impl Iterator<Item = &'t DeviceTaint>, tolerations: &[DeviceToleration]) -> bool {
    taints.all(|taint| {
        let covers = |toleration: &DeviceToleration| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (key, effect) = (text(&toleration.key), text(&toleration.effect));
            let is_value = match toleration.operator.as_deref() {
                Some("Exists") => true,
                _ => text(&toleration.value) == text(&taint.value),
            };
            is_value && (key.is_empty() || key == taint.key) && (effect.is_empty() || effect == taint.effect)
        };
        !["NoSchedule", "NoExecute"].contains(&&*taint.effect) || tolerations.iter().any(covers)
    })
}

/// Whether a constraint of a claim holds with one more device.
fn admits(constraint: &DeviceConstraint, chosen: &[ChosenDevice<'_>], new: &ChosenDevice<'_>) -> bool {
    let is_meant = |choice: &ChosenDevice<'_>| match constraint.requests.as_deref() {
        None | Some([]) => true,
        Some(names) => {
            let parent = choice.wanted.name.split('/').next().unwrap_or_default();
            names.iter().any(|name| *name == choice.wanted.name || name == parent)
        }
    };
    if !is_meant(new) {
        return true;
    }
    let mut others = chosen.iter().filter(|choice| is_meant(choice));
    match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(name), _) => {
            let Some(own) = attribute(new, name) else { return false };
            others.next().is_none_or(|other| attribute(other, name) == Some(own))
        }
        (None, Some(name)) => {
            let Some(own) = attribute(new, name) else { return false };
            others.all(|other| attribute(other, name) != Some(own))
        }
        (None, None) => false,
    }
}

/// Returns the attribute of a qualified name; the domain of an attribute without one is the driver.
fn attribute<'a>(choice: &ChosenDevice<'a>, name: &str) -> Option<&'a DeviceAttribute> {
    let attributes = choice.device.attributes.as_ref()?;
    let short = name.strip_prefix(&*choice.pool.driver).and_then(|rest| rest.strip_prefix('/'));
    attributes.get(name).or_else(|| attributes.get(short?))
}
