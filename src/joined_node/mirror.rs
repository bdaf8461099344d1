//! The thread that keeps a copy of what the node needs: lists and watches at the server, written to the node's own state.
//!
//! While the server is away the copy stays as it is, and the pods go on. Never: sends anything, or decides what is written; [`NodeCopy`]
//! does. Start reading at [`Mirror::run`].

use super::node_context::NodeContext;
use super::node_copy::NodeCopy;
use crate::apiserver::Api;
use crate::client::{ReflectedChange, ReflectedContent, Reflectors};
use crate::object::Object;
use crate::store::OpenMode;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time to wait for changes before other work.
const MAX_CHANGE_WAIT: Duration = Duration::from_millis(250);
/// Maximum number of changes in one transaction.
const BATCH: usize = 256;

/// The thread's state.
pub struct Mirror {
    context: Arc<NodeContext>,
    api: Api,
    reflectors: Reflectors,
    /// The number of the client that the reflectors use.
    client_number: u64,
    copy: NodeCopy,
}

impl Mirror {
    /// Opens the node's state. Reads nothing yet.
    pub fn open(context: Arc<NodeContext>) -> Result<Mirror, String> {
        let api = Api::open(&context.state, OpenMode::Existing, "mirror").map_err(|error| error.to_string())?;
        let (reflectors, client_number) = context.reflectors();
        let copy = NodeCopy::new(context.facts.clone());
        Ok(Mirror { context, api, reflectors, client_number, copy })
    }

    /// Copies until the node stops.
    pub fn run(mut self) {
        self.copy.start_watches(&mut self.reflectors);
        while !self.context.is_stopping() {
            let changes = self.reflectors.next(MAX_CHANGE_WAIT, BATCH);
            if let Err(why) = self.apply(changes) {
                self.context.log(&format!("cannot copy the server's objects: {why}"));
                // Lists all objects again, which includes the lost changes.
                self.restart();
            }
            if self.client_number != self.context.client_number.load(Ordering::Relaxed) {
                self.restart();
            }
        }
    }

    fn apply(&mut self, changes: Vec<ReflectedChange>) -> Result<(), String> {
        let context = &self.context;
        let fetch_tokens = |pod: &Object| context.fetch_tokens(pod);
        let is_list = |change: &ReflectedChange| matches!(change.content, ReflectedContent::Replaced(_));
        let has_lists = changes.iter().any(is_list);
        self.copy.apply(self.api.store_mut(), &mut self.reflectors, changes, &fetch_tokens)?;
        if has_lists {
            let there: HashSet<String> = context.facts.pods.uids().into_iter().collect();
            context.tokens.retain(|uid| there.contains(uid));
        }
        Ok(())
    }

    fn restart(&mut self) {
        (self.reflectors, self.client_number) = self.context.reflectors();
        self.copy.start_again(&mut self.reflectors);
    }
}
