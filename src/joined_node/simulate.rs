//! A joined node without a network, for the seeded simulator: its copy and its reports work on a simulated cluster of the node. The test
//! carries changes and requests between that and the server, in any order, and repeats or drops them.
//!
//! Start reading at [`SimulatedLink`].

use super::node_context::{JoinedFacts, NodeTraits};
use super::node_copy::{CollectionWatches, NodeCopy};
use super::node_reports::NodeReports;
pub use super::node_reports::ReportTarget;
use crate::client::{ClientError, ReflectedChange};
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The collections that a node watches: their paths by name.
#[derive(Default)]
pub struct WatchedCollections(pub BTreeMap<String, String>);

impl CollectionWatches for WatchedCollections {
    fn start(&mut self, name: &str, path: &str) {
        self.0.entry(name.to_owned()).or_insert_with(|| path.to_owned());
    }

    fn stop(&mut self, name: &str) {
        self.0.remove(name);
    }

    fn running(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

/// The link between a node and its server.
pub struct SimulatedLink {
    /// The collections that the node watches.
    pub watched: WatchedCollections,
    copy: NodeCopy,
    reports: NodeReports,
}

impl SimulatedLink {
    /// Makes the link of a node that has received nothing yet. A new one over the same state simulates a restart of the node.
    pub fn new(node: &str) -> SimulatedLink {
        let facts = Arc::new(JoinedFacts::new(node, NodeTraits::default(), Box::new(|_| {})));
        let mut watched = WatchedCollections::default();
        let mut copy = NodeCopy::new(facts.clone());
        copy.start_watches(&mut watched);
        SimulatedLink { watched, copy, reports: NodeReports::new(facts, 0) }
    }

    /// Takes changes of the server's collections into the node's state.
    pub fn deliver(&mut self, store: &mut Store, changes: Vec<ReflectedChange>) -> Result<(), String> {
        self.copy.apply(store, &mut self.watched, changes, &|_| {})
    }

    /// Sends the node's reports to the server.
    pub fn report(&mut self, store: &Store, server: &dyn ReportTarget) -> Result<(), ClientError> {
        self.reports.send(store, server)
    }
}
