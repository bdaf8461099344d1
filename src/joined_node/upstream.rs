//! The thread that sends the node's reports to the server: statuses and ends of pods, and events.
//!
//! Never: changes the node's state, or decides what is sent; [`NodeReports`] does. Start reading at [`Upstream::run`].

use super::node_context::NodeContext;
use super::node_reports::{NodeReports, ReportTarget};
use crate::apiserver::Api;
use crate::client::{ClientError, ClientRequest};
use crate::store::{OpenMode, WakeHint, watch_hint};
use std::sync::Arc;
use std::time::Duration;

/// Maximum time between two reads of the state.
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
        let api = Api::open(&context.files.state, OpenMode::Existing, "upstream").map_err(|error| error.to_string())?;
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

    /// Logs why the server refuses reports, once.
    fn note(&mut self, outcome: Result<(), ClientError>) {
        let problem = match outcome {
            Ok(()) => None,
            // The heartbeats already report that the server does not answer.
            Err(error) if error.status().is_none() => return,
            Err(error) => Some(error.to_string()),
        };
        if problem != self.problem
            && let Some(text) = &problem
        {
            let client = self.context.client();
            self.context.log(&format!("cannot send pod reports to {}, retrying: {text}", client.config().address));
        }
        self.problem = problem;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestServer;
    use super::*;
    use crate::object::Status;
    use serde_json::Value;

    #[test]
    fn refusal_of_reports_is_logged_once() {
        let folder = tempfile::tempdir().unwrap();
        drop(Api::open(&folder.path().join("state.db"), OpenMode::Create, "test").unwrap());
        let (context, lines) = TestServer::start(|_, _| (200, Value::Null)).context(folder.path());
        let server = context.client().config().address.to_string();
        let mut upstream = Upstream::open(context).unwrap();
        let busy = || Err(ClientError::from(Status::from_answer(503, b"busy")));
        upstream.note(busy());
        upstream.note(busy());
        upstream.note(Err(ClientError::Late { server: "s".into() }));
        upstream.note(busy());
        let text = busy().unwrap_err().to_string();
        assert_eq!(*lines.lock().unwrap(), [format!("cannot send pod reports to {server}, retrying: {text}")]);
        upstream.note(Ok(()));
        upstream.note(busy());
        assert_eq!(lines.lock().unwrap().len(), 2);
    }
}
