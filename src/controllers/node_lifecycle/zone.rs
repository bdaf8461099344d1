//! Eviction rate of unreachable nodes: one node after the other in each zone, slower or not at all when a large part of
//! a zone is unreachable, because then the network is the more likely cause.
//!
//! Source: `pkg/controller/nodelifecycle`, whose defaults these are.

use super::{NOT_READY, ROOT, UNREACHABLE, add_seconds, is_ready};
use crate::object::Time;
use crate::world::{Row, World};
use std::sync::Arc;

/// Seconds between the evictions of two nodes of a zone (`--node-eviction-rate`).
const EVICTION_INTERVAL_SECONDS: i64 = 10;
/// Seconds between the evictions of two nodes of a large zone with many unready nodes (`--secondary-node-eviction-rate`).
const SLOW_EVICTION_INTERVAL_SECONDS: i64 = 100;
/// Number of nodes above which a zone is large (`--large-cluster-size-threshold`).
const LARGE_ZONE_NODES: usize = 50;
/// Percentage of unready nodes from which a zone is unhealthy (`--unhealthy-zone-threshold`).
const UNHEALTHY_PERCENT: usize = 55;
/// Number of unready nodes up to which a zone is never unhealthy.
const MAX_TOLERATED: usize = 2;

/// The earliest time to evict the pods of an unreachable node; `None` while the state of its zone forbids evictions.
pub(super) fn next_eviction_turn(world: &World, node: &Row) -> Option<Time> {
    // Without any ready node, the control plane itself is the more likely cause.
    if !world.list(ROOT).any(is_ready) {
        return None;
    }
    let zone: Vec<&Arc<Row>> = world.list(ROOT).filter(|other| place(other) == place(node)).collect();
    let silent = zone.len() - zone.iter().filter(|node| is_ready(node)).count();
    let partly = silent < zone.len() && silent > MAX_TOLERATED && silent * 100 >= UNHEALTHY_PERCENT * zone.len();
    let pause = match partly {
        true if zone.len() > LARGE_ZONE_NODES => SLOW_EVICTION_INTERVAL_SECONDS,
        true => return None,
        false => EVICTION_INTERVAL_SECONDS,
    };
    let last = zone.iter().filter_map(|other| evicting_since(other)).max();
    Some(last.map_or(world.now, |last| add_seconds(last, pause)))
}

/// Region and zone.
fn place(node: &Row) -> (Option<&str>, Option<&str>) {
    (node.label("topology.kubernetes.io/region"), node.label("topology.kubernetes.io/zone"))
}

/// The time since which the pods of an unreachable node have to be evicted.
fn evicting_since(node: &Row) -> Option<Time> {
    let taints = node.node()?.taints.iter();
    let ours = |key: &str| key == NOT_READY || key == UNREACHABLE;
    taints.filter(|taint| taint.effect == "NoExecute" && ours(&taint.key)).filter_map(|taint| taint.added).max()
}
