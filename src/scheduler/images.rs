//! ImageLocality: prefers nodes that already have a pod's images, by size.
//!
//! The local node has no images, because its programs are available to every pod: only simulated nodes with
//! `status.images` differ.

use super::filter::PodQuery;
use super::ranked_node::RankedNode;
use crate::world::NodeFields;
use std::borrow::Cow;

/// Sizes below this score zero; the upper threshold per container scores the maximum.
const MIN_SIZE: i64 = 23 * 1024 * 1024;
const MAX_CONTAINER_SIZE: i64 = 1000 * 1024 * 1024;

/// The score of each node, 0 to 100. Skips the nodes if none of them reports images.
pub fn scores(query: &PodQuery<'_>, nodes: &[RankedNode]) -> Vec<i64> {
    let scored = if query.world.has_images() { nodes } else { &[] };
    scored.iter().map(|node| score(query, node.slot)).collect()
}

/// The score of the node in this slot.
fn score(query: &PodQuery<'_>, slot: usize) -> i64 {
    let node =
        query.world.node_cache().get(slot).and_then(|node| node.row.node()).filter(|node| !node.images.is_empty());
    let Some(node) = node else { return 0 };
    let containers: Vec<&str> =
        query.pod.containers().map(|container| container["image"].as_str().unwrap_or_default()).collect();
    let sum: i64 = containers.iter().map(|image| scaled_size(query, node, &normalized_image_name(image))).sum();
    let most = MAX_CONTAINER_SIZE * containers.len() as i64;
    100 * (sum.clamp(MIN_SIZE, most) - MIN_SIZE) / (most - MIN_SIZE)
}

/// The size of an image on a node, scaled by the fraction of nodes that have it, so that pods do not crowd on few nodes.
fn scaled_size(query: &PodQuery<'_>, node: &NodeFields, image: &str) -> i64 {
    let Some(size) = node.images.get(image) else { return 0 };
    let (having, nodes) = (query.world.nodes_with_image(image), query.world.node_cache().len());
    (*size as f64 * (having as f64 / nodes as f64)) as i64
}

/// Kubernetes: `normalizedImageName`.
fn normalized_image_name(image: &str) -> Cow<'_, str> {
    if image.rfind(':') > image.rfind('/') { image.into() } else { format!("{image}:latest").into() }
}
