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
        let nodes: Vec<(String, NodeFit)> = nodes.map(|(node, fit)| (node.key.name.to_string(), *fit)).collect();
        if self.surge() > 0 { self.roll_surging(nodes) } else { self.roll_in_place(nodes) }
    }

    /// The pods of the newest and of an older template on a node, without pods that are being deleted.
    fn pair(&self, node: &str) -> (Option<&'w Arc<Row>>, Option<&'w Arc<Row>>) {
        let live = || self.pods_on_node(node).into_iter().filter(|pod| !pod.is_deleting());
        let is_new = |pod: &&Arc<Row>| pod.label(REVISION_HASH) == Some(&self.hash);
        (live().find(|pod| is_new(pod)), live().find(|pod| !is_new(pod)))
    }

    /// Deletes old pods: unavailable ones at once, available ones within the budget.
    fn roll_in_place(&mut self, nodes: Vec<(String, NodeFit)>) {
        let mut unavailable = 0;
        let mut candidates: Vec<&Arc<Row>> = Vec::new();
        for (node, _) in nodes {
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

    /// Creates new pods before old ones are deleted, and deletes an old pod when its successor is available. A node that accepts no new
    /// pod loses its old one when that is unavailable, or when more pods are available than nodes should run one.
    fn roll_surging(&mut self, nodes: Vec<(String, NodeFit)>) {
        let (mut surging, mut available) = (0, 0);
        let mut candidates: Vec<String> = Vec::new();
        let mut misplaced: Vec<&Arc<Row>> = Vec::new();
        for (node, fit) in nodes {
            if pods::is_full(&self.plan) {
                return;
            }
            let (new, old) = self.pair(&node);
            let is_served = old.or(new).is_some_and(|pod| self.is_available(pod));
            available += i64::from(is_served);
            match (new, old) {
                (None, Some(old)) if fit != NodeFit::Run && is_served => misplaced.push(old),
                (None, Some(old)) if fit != NodeFit::Run => self.delete(old, "its node takes no new pod"),
                (None, Some(_)) if is_served => candidates.push(node),
                (None, Some(_)) => self.create_pod(&node),
                (Some(new), Some(old)) if self.is_available(new) => self.delete(old, "its successor is available"),
                (Some(_), Some(old)) if !is_served => self.delete(old, "it is out of date and not available"),
                (Some(_), Some(_)) => surging += 1,
                _ => {}
            }
        }
        let spare = usize::try_from(available - self.desired()).unwrap_or(0);
        if misplaced.len() > spare {
            self.plan.wait("waiting for pods on other nodes before deleting those of nodes that take no new pod");
        }
        for old in misplaced.into_iter().take(spare.min(BURST)) {
            self.delete(old, "its node takes no new pod, and enough others are available");
        }
        let budget = usize::try_from(self.surge() - surging).unwrap_or(0);
        for node in candidates.into_iter().take(budget.min(BATCH)) {
            self.create_pod(&node);
        }
    }
}
