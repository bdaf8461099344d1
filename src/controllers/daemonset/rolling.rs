//! Replaces the pods of old templates, within `maxUnavailable` or `maxSurge`.

use super::{DaemonSetState, NodeFit};
use crate::controllers::pods::{self, BATCH, BURST};
use crate::controllers::revisions::REVISION_HASH;
use crate::world::Row;
use std::sync::Arc;

impl<'w> DaemonSetState<'w> {
    pub(super) fn roll(&mut self) {
        if self.object.text(&["spec", "updateStrategy", "type"]) == Some("OnDelete") {
            return;
        }
        let takes_part = |node: &str, fit: NodeFit| match fit {
            NodeFit::Run => true,
            // Such a node gets no pod that the rollout could wait for.
            NodeFit::Stay => self.pods.contains_key(node),
            NodeFit::Leave => false,
        };
        let nodes = self.nodes.iter().filter(|(node, fit)| takes_part(&node.key.name, *fit));
        let nodes: Vec<String> = nodes.map(|(node, _)| node.key.name.to_string()).collect();
        if self.surge() > 0 { self.roll_surging(nodes) } else { self.roll_in_place(nodes) }
    }

    /// The pods of the newest and of an older template on a node, without pods that are being deleted.
    fn pair(&self, node: &str) -> (Option<&'w Arc<Row>>, Option<&'w Arc<Row>>) {
        let live = || self.pods_on_node(node).into_iter().filter(|pod| !pod.is_deleting());
        let is_new = |pod: &&Arc<Row>| pod.label(REVISION_HASH) == Some(&self.hash);
        (live().find(|pod| is_new(pod)), live().find(|pod| !is_new(pod)))
    }

    /// Deletes old pods: unavailable ones at once, available ones within the budget.
    fn roll_in_place(&mut self, nodes: Vec<String>) {
        let mut unavailable = 0;
        let mut candidates: Vec<&Arc<Row>> = Vec::new();
        for node in nodes {
            if pods::is_full(&self.plan) {
                return;
            }
            match self.pair(&node) {
                (None, Some(old)) if self.is_available(old) => candidates.push(old),
                (None, Some(old)) => {
                    unavailable += 1;
                    self.delete(old, "its template is out of date");
                }
                (Some(new), None) if self.is_available(new) => {}
                _ => unavailable += 1,
            }
        }
        let budget = usize::try_from(self.bound("maxUnavailable", 1) - unavailable).unwrap_or(0);
        if !candidates.is_empty() && budget == 0 {
            self.plan.wait("waiting for new pods to be available before deleting more old ones");
        }
        for old in candidates.into_iter().take(budget.min(BURST)) {
            self.delete(old, "its template is out of date");
        }
    }

    /// Creates new pods beside old ones, and deletes an old pod when its successor is available.
    fn roll_surging(&mut self, nodes: Vec<String>) {
        let mut surging = 0;
        let mut candidates: Vec<String> = Vec::new();
        for node in nodes {
            if pods::is_full(&self.plan) {
                return;
            }
            match self.pair(&node) {
                (None, Some(old)) if self.is_available(old) => candidates.push(node),
                (None, Some(_)) => self.create_pod(&node),
                (Some(new), Some(old)) if self.is_available(new) => self.delete(old, "its successor is available"),
                (Some(_), Some(old)) if !self.is_available(old) => {
                    self.delete(old, "it is out of date and not available")
                }
                (Some(_), Some(_)) => surging += 1,
                _ => {}
            }
        }
        let budget = usize::try_from(self.surge() - surging).unwrap_or(0);
        for node in candidates.into_iter().take(budget.min(BATCH)) {
            self.create_pod(&node);
        }
    }
}
