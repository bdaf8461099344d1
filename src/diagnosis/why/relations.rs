//! Relations between objects that several kinds follow: owners, and the target of an autoscaler.
//!
//! Never: decides whether an object is right. Start reading at [`owners`].

use crate::object::{Key, Resource};
use crate::world::{Row, World};
use std::sync::Arc;

/// Maximum depth of owners and children to follow.
pub const DEPTH: usize = 8;

/// The controllers above, the highest first.
pub fn owners(world: &World, row: &Row) -> Vec<Arc<Row>> {
    let up = |row: &Row| world.by_uid(&row.controller()?.uid).cloned();
    let mut found: Vec<Arc<Row>> = std::iter::successors(up(row), |row| up(row)).take(DEPTH).collect();
    found.reverse();
    found
}

/// Returns the scale target of an autoscaler.
pub fn target(world: &World, row: &Row) -> Option<Arc<Row>> {
    let object = row.object();
    let kind = crate::kinds::by_kind(
        object.text(&["spec", "scaleTargetRef", "apiVersion"])?,
        object.text(&["spec", "scaleTargetRef", "kind"])?,
    )?;
    let name = object.text(&["spec", "scaleTargetRef", "name"])?;
    world.get(&Key::new(Resource(kind.resource.0), &row.key.namespace, name)).cloned()
}
