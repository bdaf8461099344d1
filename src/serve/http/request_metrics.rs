//! Measurements of requests: counts by kind, durations, and requests in progress.
//!
//! Labels come from tables and the catalogue of kinds, never from a client's input, so that clients cannot multiply them.

use crate::kinds::Kind;
use crate::object::{IgnorePoison, api_version};
use crate::serve::metrics::MetricsText;
use crate::serve::path::{ApiDocument, ApiPath};
use crate::serve::resolve::RequestedPath;
use crate::serve::{ApiRequest, discovery, subresource};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Upper bounds of the histogram's buckets, in seconds.
const BUCKETS: [f64; 16] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 8.0, 15.0, 20.0, 30.0, 60.0];

/// Maximum number of label combinations, because custom kinds are added and removed.
const MAX_SERIES: usize = 2000;

/// Everything that is measured.
#[derive(Default)]
pub struct RequestMetrics {
    series: Mutex<BTreeMap<RequestLabels, RequestSeries>>,
    /// Requests that wait for a thread.
    pub waiting: Gauge,
    reading: Gauge,
    writing: Gauge,
    /// Open watches.
    pub watches: Gauge,
}

/// A current count.
#[derive(Clone, Default)]
pub struct Gauge(Arc<AtomicI64>);

/// One counted item, until it is dropped.
pub struct Counted(Gauge);

impl Gauge {
    /// Counts one more item.
    pub fn count(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The labels of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestLabels {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    /// The subresource, or the path of a document about the API.
    subresource: &'static str,
    scope: &'static str,
}

#[derive(Default)]
struct RequestSeries {
    codes: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

/// A request in progress.
pub struct MeasuredRequest {
    started: Instant,
    _inflight: Counted,
}

impl RequestMetrics {
    /// Begins to measure a request.
    pub fn begin(&self, method: &str) -> MeasuredRequest {
        let gauge = if matches!(method, "GET" | "HEAD") { &self.reading } else { &self.writing };
        MeasuredRequest { started: Instant::now(), _inflight: gauge.count() }
    }

    /// Records the answer of a request.
    pub fn record(&self, request: &MeasuredRequest, labels: RequestLabels, code: u16) {
        let mut all = self.series.lock().ignore_poison();
        let is_room = all.len() < MAX_SERIES || all.contains_key(&labels);
        let labels = if is_room { labels } else { RequestLabels { verb: labels.verb, ..RequestLabels::default() } };
        let series = all.entry(labels).or_default();
        *series.codes.entry(code).or_default() += 1;
        // The duration of a watch is how long its client listened.
        if labels.verb != "WATCH" {
            series.observe(request.started.elapsed());
        }
    }

    /// Writes all metrics.
    pub fn write(&self, text: &mut MetricsText) {
        let all = self.series.lock().ignore_poison();
        let name = "apiserver_request_total";
        text.begin(name, "counter", "Number of requests by verb, resource and code.");
        for (labels, series) in all.iter() {
            for (code, count) in &series.codes {
                let code = code.to_string();
                text.add(name, &[&labels.pairs()[..], &[("code", &code)]].concat(), count);
            }
        }
        text.begin(
            "apiserver_request_duration_seconds",
            "histogram",
            "Duration of requests in seconds, without watches.",
        );
        all.iter().filter(|(_, series)| series.count > 0).for_each(|(labels, series)| series.write(labels, text));
        let name = "apiserver_current_inflight_requests";
        text.begin(name, "gauge", "Number of requests in progress.");
        for (kind, gauge) in [("mutating", &self.writing), ("readOnly", &self.reading)] {
            text.add(name, &[("request_kind", kind)], gauge.value());
        }
        let name = "apiserver_longrunning_requests";
        text.begin(name, "gauge", "Number of open watches.");
        text.add(name, &[("verb", "WATCH")], self.watches.value());
        let help = "Number of requests that wait for a thread.";
        text.add_single("kloop_requests_waiting", "gauge", help, self.waiting.value());
    }
}

impl RequestSeries {
    fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        if let Some(bucket) = BUCKETS.iter().position(|most| seconds <= *most) {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.seconds += seconds;
    }

    fn write(&self, labels: &RequestLabels, text: &mut MetricsText) {
        let (name, labels) = ("apiserver_request_duration_seconds", labels.pairs());
        let mut below = 0;
        for (most, count) in BUCKETS.iter().zip(self.buckets) {
            below += count;
            let most = most.to_string();
            text.add(&format!("{name}_bucket"), &[&labels[..], &[("le", &most)]].concat(), below);
        }
        text.add(&format!("{name}_bucket"), &[&labels[..], &[("le", "+Inf")]].concat(), self.count);
        text.add(&format!("{name}_sum"), &labels, self.seconds);
        text.add(&format!("{name}_count"), &labels, self.count);
    }
}

impl RequestLabels {
    /// Classifies a request of an admitted client.
    pub fn classify(request: &ApiRequest, requested: &RequestedPath) -> RequestLabels {
        let plain = |verb, subresource| RequestLabels { verb, subresource, ..RequestLabels::default() };
        let named = match &requested.path {
            Some(ApiPath::Object(named)) => named,
            Some(ApiPath::Document(document)) => return plain(verb_of(&request.method), path_of(document)),
            None => return plain(verb_of(&request.method), ""),
        };
        let Some(kind) = requested.kind else { return plain(verb_of(&request.method), "") };
        let is_watch = named.watch || request.flag("watch");
        let verb = match (request.method.as_str(), named.name.is_some()) {
            ("GET", _) if is_watch => "WATCH",
            ("GET", false) => "LIST",
            ("DELETE", false) => "DELETECOLLECTION",
            ("PATCH", _) if request.content_type.starts_with("application/apply-patch") => "APPLY",
            (method, _) => verb_of(method),
        };
        let below = named.subresource.as_deref();
        let below = subresource::subresources(kind).find(|known| Some(known.name) == below);
        let scope = match (named.name.is_some() || verb == "POST", named.namespace.is_some()) {
            (true, _) => "resource",
            (false, true) => "namespace",
            (false, false) => "cluster",
        };
        RequestLabels {
            verb,
            group: kind.resource.group(),
            version: version_of(kind, &named.group, &named.version),
            resource: kind.resource.plural(),
            subresource: below.map_or("", |known| known.name),
            scope,
        }
    }

    fn pairs(&self) -> [(&str, &str); 6] {
        [
            ("verb", self.verb),
            ("group", self.group),
            ("version", self.version),
            ("resource", self.resource),
            ("subresource", self.subresource),
            ("scope", self.scope),
        ]
    }
}

fn verb_of(method: &str) -> &'static str {
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        .into_iter()
        .find(|verb| *verb == method)
        .unwrap_or("other")
}

fn version_of(kind: &'static Kind, group: &str, version: &str) -> &'static str {
    if kind.version == version {
        return kind.version;
    }
    let asked = api_version(group, version);
    let also = kind.also.iter().find(|also| **also == asked);
    also.map_or(kind.version, |also| also.rsplit('/').next().unwrap_or_default())
}

fn path_of(document: &ApiDocument) -> &'static str {
    match document {
        ApiDocument::Root => "/",
        ApiDocument::Version => "/version",
        ApiDocument::Health(endpoint, _) => match *endpoint {
            "livez" => "/livez",
            "readyz" => "/readyz",
            _ => "/healthz",
        },
        ApiDocument::Metrics => "/metrics",
        ApiDocument::HealthMetrics => "/metrics/slis",
        ApiDocument::OpenIdConfiguration => discovery::OPENID_CONFIGURATION,
        ApiDocument::JsonWebKeys => "/openid/v1/jwks",
        ApiDocument::Core => "/api",
        ApiDocument::Groups => "/apis",
        ApiDocument::Group(_) | ApiDocument::Resources(..) => "/apis/*",
        ApiDocument::OpenApi2 => "/openapi/v2",
        ApiDocument::OpenApi3 => "/openapi/v3",
        ApiDocument::OpenApi3Of(_) => "/openapi/v3/*",
        ApiDocument::Ui(_) => "/ui",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KindRegistry;

    fn classify(method: &str, target: &str) -> String {
        let request = ApiRequest::new(method, target);
        let requested = RequestedPath::parse(&request.path, &KindRegistry::default());
        let labels = RequestLabels::classify(&request, &requested);
        labels.pairs().map(|(_, value)| value).join(" ")
    }

    #[test]
    fn requests_are_classified_by_known_labels_only() {
        for (method, target, expected) in [
            ("GET", "/api/v1/namespaces/a/pods", "LIST  v1 pods  namespace"),
            ("GET", "/api/v1/pods?watch=1", "WATCH  v1 pods  cluster"),
            ("PUT", "/api/v1/namespaces/a/pods/b/status", "PUT  v1 pods status resource"),
            ("GET", "/api/v1/namespaces/a/pods/b/hostile", "GET  v1 pods  resource"),
            (
                "GET",
                "/apis/autoscaling/v1/horizontalpodautoscalers",
                "LIST autoscaling v1 horizontalpodautoscalers  cluster",
            ),
            ("GET", "/apis/hostile/v1/words", "GET     "),
            ("HOSTILE", "/readyz/hostile", "other    /readyz "),
        ] {
            assert_eq!(classify(method, target), expected, "{target}");
        }
    }

    #[test]
    fn histogram_counts_requests_at_or_below_each_bound() {
        let metrics = RequestMetrics::default();
        let labels = RequestLabels { verb: "GET", ..RequestLabels::default() };
        for milliseconds in [1, 30, 70_000] {
            let mut series = metrics.series.lock().unwrap();
            series.entry(labels).or_default().observe(Duration::from_millis(milliseconds));
        }
        let mut text = MetricsText::default();
        metrics.write(&mut text);
        let crate::serve::AnswerBody::Whole(bytes) = text.into_answer().body else { panic!("no text") };
        let text = String::from_utf8(bytes).unwrap();
        for (bound, count) in [("0.005", 1), ("0.025", 1), ("0.05", 2), ("60", 2), ("+Inf", 3)] {
            assert!(text.contains(&format!("le=\"{bound}\"}} {count}\n")), "{bound}: {text}");
        }
    }

    #[test]
    fn number_of_series_has_a_bound() {
        let metrics = RequestMetrics::default();
        let started = metrics.begin("GET");
        for number in 0..MAX_SERIES + 10 {
            let resource: &'static str = Box::leak(number.to_string().into_boxed_str());
            metrics.record(&started, RequestLabels { verb: "GET", resource, ..RequestLabels::default() }, 200);
        }
        assert_eq!(metrics.series.lock().unwrap().len(), MAX_SERIES + 1);
    }
}
