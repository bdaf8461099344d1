//! The processing around a request: its id, its measurements and the compression.

use super::audit;
use super::audit_log::{AuditExchange, AuditLog};
use super::compress::{accepts_gzip, compress};
use super::request_metrics::{MeasuredRequest, RequestLabels, RequestMetrics};
use crate::apiserver::Api;
use crate::kinds::KindRegistry;
use crate::reconcile::metrics::LoopMetrics;
use crate::runtime::usage;
use crate::serve::metrics::{self, MetricsText};
use crate::serve::path::{ApiDocument, ApiPath, parse};
use crate::serve::resolve::RequestedPath;
use crate::serve::{ApiRequest, HttpAnswer};
use hyper::HeaderMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Measurements of this process.
pub struct ServerMetrics {
    /// Measurements of its requests.
    pub requests: RequestMetrics,
    /// Measurements of the control plane in the same process.
    pub control_plane: Option<Arc<LoopMetrics>>,
    /// The audit log, if one is written.
    pub audit: Option<Arc<AuditLog>>,
}

/// A request being processed.
pub struct Exchange {
    id: String,
    is_gzip: bool,
    requested: RequestedPath,
    labels: RequestLabels,
    measured: MeasuredRequest,
}

impl Exchange {
    /// Begins with the headers of a request.
    pub fn begin(headers: &HeaderMap, asked: &ApiRequest, kinds: &KindRegistry, metrics: &ServerMetrics) -> Exchange {
        let requested = RequestedPath::parse(&asked.path, kinds);
        let encodings = headers.get_all("accept-encoding").iter().filter_map(|value| value.to_str().ok());
        Exchange {
            id: audit::choose_id(headers),
            is_gzip: encodings.into_iter().any(accepts_gzip),
            labels: RequestLabels::classify(asked, &requested),
            requested,
            measured: metrics.requests.begin(&asked.method),
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its path.
    pub fn requested(&self) -> &RequestedPath {
        &self.requested
    }

    /// Whether the client accepts compressed answers.
    pub fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    /// Ends with the answer, and adds the id to it.
    pub fn end(self, answer: HttpAnswer, metrics: &ServerMetrics) -> HttpAnswer {
        metrics.requests.record(&self.measured, self.labels, answer.code);
        answer.with_header("Audit-Id", self.id)
    }
}

/// Answers a request, on a thread that may block.
pub fn answer(
    api: &mut Api,
    request: &ApiRequest,
    is_gzip: bool,
    metrics: &ServerMetrics,
    audited: Option<&AuditExchange>,
) -> HttpAnswer {
    let is_metrics = request.is_get_or_head() && parse(&request.path) == Some(ApiPath::Document(ApiDocument::Metrics));
    let answer = match is_metrics.then(|| measure(api, metrics)) {
        Some(Some(text)) => text.into_answer(),
        _ => crate::serve::answer(api, request),
    };
    if let Some(audited) = audited {
        // The audit log needs the body before it is compressed.
        audited.set_annotations(&api.take_annotations());
        audited.set_answer(&answer);
    }
    if is_gzip { compress(answer) } else { answer }
}

/// Returns all measurements of this process; `None` when the store cannot be read.
fn measure(api: &Api, metrics: &ServerMetrics) -> Option<MetricsText> {
    let mut text = MetricsText::default();
    metrics.requests.write(&mut text);
    if let Some(sample) = metrics.control_plane.as_ref().and_then(|metrics| metrics.sample()) {
        text.add_single("kloop_ticks_total", "counter", "Number of ticks of the control plane.", sample.ticks);
        text.add_single("kloop_tick_seconds_total", "counter", "Duration of all ticks.", sample.seconds);
        text.add_single("kloop_tick_rows_total", "counter", "Number of rows that ticks wrote.", sample.rows);
        text.add_single(
            "kloop_control_plane_revision",
            "gauge",
            "Revision the control plane has seen.",
            sample.revision,
        );
        text.begin("workqueue_depth", "gauge", "Number of keys that wait for a loop.");
        for (name, depth) in &sample.depths {
            text.add("workqueue_depth", &[("name", name)], depth);
        }
    }
    if let Some(counts) = metrics.audit.as_ref().map(|log| log.counts()) {
        let (events, lost) = (counts.events.load(Relaxed), counts.lost.load(Relaxed));
        text.add_single("apiserver_audit_event_total", "counter", "Number of audit events.", events);
        text.add_single("apiserver_audit_error_total", "counter", "Number of audit events that were lost.", lost);
    }
    let resident = usage::resident(std::process::id() as i32).0;
    text.add_single("process_resident_memory_bytes", "gauge", "Memory of the server's process.", resident);
    metrics::measure_store(api, &mut text).ok()?;
    Some(text)
}
