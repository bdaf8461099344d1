//! The thread that tells the server what the node has found out: statuses and ends of pods, and events.
//!
//! Never: changes the node's state, or decides what is told; [`NodeReports`] does. Start reading at [`Upstream::run`].

use super::node_context::NodeContext;
use super::node_reports::{NodeReports, ReportTarget};
use crate::apiserver::Api;
use crate::client::{ClientError, ClientRequest};
use crate::store::{OpenMode, WakeHint, watch_hint};
use std::sync::Arc;
use std::time::Duration;

/// Longest time without a look at the state.
const MAX_HINT_WAIT: Duration = Duration::from_millis(500);
/// Pause after the server did not answer.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

impl ReportTarget for NodeContext {
    fn send(&self, request: ClientRequest) -> Result<(), ClientError> {
        self.client().send(request).map(drop)
    }
}

/// The thread's state.
pub struct Upstream {
    context: Arc<NodeContext>,
    api: Api,
    hint: Option<WakeHint>,
    reports: NodeReports,
    problem: Option<String>,
}

impl Upstream {
    /// Opens the node's state; sends nothing yet.
    pub fn open(context: Arc<NodeContext>) -> Result<Upstream, String> {
        let api = Api::open(&context.state, OpenMode::Existing, "upstream").map_err(|error| error.to_string())?;
        let revision = api.read(|snapshot| snapshot.revision()).map_err(|status| status.message)?;
        let hint = watch_hint(api.store());
        let reports = NodeReports::new(context.facts.clone(), revision);
        Ok(Upstream { context, api, hint, reports, problem: None })
    }

    /// Sends news until the node stops.
    pub fn run(mut self) {
        while !self.context.is_stopping() {
            let sent = self.reports.send(self.api.store(), &*self.context);
            let failed = sent.is_err();
            self.note(sent);
            match &self.hint {
                _ if failed => std::thread::sleep(AFTER_FAILURE),
                Some(hint) => _ = hint.wait(MAX_HINT_WAIT),
                None => std::thread::sleep(MAX_HINT_WAIT),
            }
        }
    }

    fn note(&mut self, outcome: Result<(), ClientError>) {
        // The heartbeats tell that the server is away.
        let problem = outcome.err().filter(|error| !error.is_temporary()).map(|error| error.to_string());
        if problem != self.problem
            && let Some(text) = &problem
        {
            self.context.log(&format!("cannot report to the server, and will again: {text}"));
        }
        self.problem = problem;
    }
}
