//! Worlds for tests of the network's loops.

use crate::object::{Key, Resource};
use crate::world::World;
use serde_json::Value;

/// Puts an object into a world; returns its key.
pub fn put(world: &mut World, resource: &'static str, object: Value) -> Key {
    let meta = &object["metadata"];
    let namespace = meta["namespace"].as_str().unwrap_or_default();
    let key = Key::new(Resource(resource), namespace, meta["name"].as_str().unwrap());
    world.put(key.clone(), object.to_string().into());
    key
}
