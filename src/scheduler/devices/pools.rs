//! The devices that ResourceSlices offer, as pools on a node, and the devices that claims have.
//!
//! Never: chooses a device. Start reading at [`pools_on_node`].

use super::capacity::{self, CapacityAmounts};
use crate::object::Key;
use crate::world::{Row, World, devices, terms};
use hashlink::LruCache;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice, ResourceSliceSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of parsed slices that are kept.
const MAX_SLICES: usize = 4096;

/// Identity of a device: driver, pool and name.
pub type DeviceId = (String, String, String);

/// The devices that claims have.
#[derive(Default)]
pub struct DevicesInUse {
    /// Devices that are allocated to one claim alone.
    pub whole: HashSet<DeviceId>,
    /// Devices that several claims share, with the capacity that these take together.
    pub shared: HashMap<DeviceId, CapacityAmounts>,
}

/// All slices, in the order of their names.
pub type DeviceSlices = Vec<Arc<ResourceSliceSpec>>;

/// Slices of one pool that a node can use.
pub struct DevicePool {
    /// The driver.
    pub driver: String,
    /// The name.
    pub name: String,
    /// The newest slices.
    pub slices: Vec<Arc<ResourceSliceSpec>>,
    /// Whether slices are missing.
    pub is_incomplete: bool,
    /// Whether two devices have one name.
    pub is_invalid: bool,
}

/// Parsed slices by key, with the uid and the generation that they were parsed from.
struct SliceCache(LruCache<Key, (String, i64, Arc<ResourceSliceSpec>)>);

impl Default for SliceCache {
    fn default() -> SliceCache {
        SliceCache(LruCache::new(MAX_SLICES))
    }
}

/// Returns all slices. One that cannot be read offers nothing.
pub fn all_slices(world: &World) -> DeviceSlices {
    world.list(devices::SLICES).filter(|row| !row.is_deleting()).filter_map(|row| read_slice(world, row)).collect()
}

fn read_slice(world: &World, row: &Row) -> Option<Arc<ResourceSliceSpec>> {
    world.with_cached(|SliceCache(cached)| {
        if let Some((uid, generation, spec)) = cached.get(&row.key)
            && **uid == *row.uid
            && *generation == row.generation
        {
            return Some(spec.clone());
        }
        let spec = Arc::new(ResourceSlice::deserialize(&row.body().0).ok()?.spec);
        cached.insert(row.key.clone(), (row.uid.to_string(), row.generation, spec.clone()));
        Some(spec)
    })
}

/// Returns the devices of all allocated claims, without those for administrators, which others may have as well.
pub fn allocated_devices(world: &World) -> DevicesInUse {
    let mut taken = DevicesInUse::default();
    for row in world.list(devices::CLAIMS).filter(|row| row.mentions("\"allocation\"")) {
        let claim = row.body();
        for result in claim.items(&["status", "allocation", "devices", "results"]) {
            let text = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
            let id = (text("driver"), text("pool"), text("device"));
            match (&result["adminAccess"], &result["shareID"]) {
                (Value::Bool(true), _) => {}
                (_, Value::String(_)) => {
                    let amounts = BTreeMap::deserialize(&result["consumedCapacity"]).ok();
                    capacity::add_amounts(
                        taken.shared.entry(id).or_default(),
                        &capacity::read_amounts(amounts.as_ref()),
                    );
                }
                _ => drop(taken.whole.insert(id)),
            }
        }
    }
    taken
}

/// Returns the pools whose devices a node can use, ordered by driver and name. Those with devices that have to be made ready come last.
pub fn pools_on_node(slices: &DeviceSlices, node: &Row) -> Vec<DevicePool> {
    let mut pools: BTreeMap<(&str, &str), Vec<Arc<ResourceSliceSpec>>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| reaches(slice, node)) {
        let newest_slices = pools.entry((&slice.driver, &slice.pool.name)).or_default();
        let newest = newest_slices.first().map_or(i64::MIN, |first| first.pool.generation);
        if slice.pool.generation > newest {
            newest_slices.clear();
        }
        if slice.pool.generation >= newest {
            newest_slices.push(slice.clone());
        }
    }
    let pool = |((driver, name), slices): ((&str, &str), Vec<Arc<ResourceSliceSpec>>)| {
        let mut names = BTreeSet::new();
        let mut devices = slices.iter().flat_map(|slice| slice.devices.iter().flatten());
        DevicePool {
            driver: driver.to_owned(),
            name: name.to_owned(),
            is_incomplete: slices.first().is_some_and(|slice| slice.pool.resource_slice_count != slices.len() as i64),
            is_invalid: !devices.all(|device| names.insert(&device.name)),
            slices,
        }
    };
    let mut pools: Vec<DevicePool> = pools.into_iter().map(pool).collect();
    pools.sort_by_key(DevicePool::has_binding_conditions);
    pools
}

impl DevicePool {
    /// Whether pods wait for a condition of one of its devices.
    fn has_binding_conditions(&self) -> bool {
        let mut devices = self.slices.iter().flat_map(|slice| slice.devices.iter().flatten());
        devices.any(|device| device.binding_conditions.as_ref().is_some_and(|names| !names.is_empty()))
    }
}

/// Whether a node can use devices of a slice.
fn reaches(slice: &ResourceSliceSpec, node: &Row) -> bool {
    match slice.per_device_node_selection {
        Some(true) => slice.devices.iter().flatten().any(|device| device_reaches(device, node)),
        _ => matches_node(&slice.node_name, slice.all_nodes, &slice.node_selector, node),
    }
}

/// Whether a node can use a device of a slice whose devices have nodes of their own.
pub fn device_reaches(device: &Device, node: &Row) -> bool {
    matches_node(&device.node_name, device.all_nodes, &device.node_selector, node)
}

fn matches_node(name: &Option<String>, all: Option<bool>, selector: &Option<NodeSelector>, node: &Row) -> bool {
    match (name.as_deref().filter(|name| !name.is_empty()), all, selector) {
        (Some(name), _, _) => *name == *node.key.name,
        (None, Some(true), _) => true,
        (None, _, Some(selector)) => terms::any_matches(&json!(selector), node),
        _ => false,
    }
}
