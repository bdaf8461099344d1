//! Metrics in Prometheus' text format: `/metrics`.
//!
//! Knows: the format, and the metrics of the store. The HTTP server adds its own.

use super::{HttpAnswer, ServeResult};
use crate::apiserver::Api;
use std::fmt::{Display, Write};

/// The media type of the text.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// A text of metrics being built.
#[derive(Default)]
pub struct MetricsText(String);

impl MetricsText {
    /// Begins a metric. `kind`: `counter`, `gauge` or `histogram`.
    pub fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a value of the current metric.
    pub fn add(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape_label(value))).collect();
        let _ = match &labels[..] {
            [] => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{}}} {value}", labels.join(",")),
        };
    }

    /// Adds a metric with one value.
    pub fn add_single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.begin(name, kind, help);
        self.add(name, &[], value);
    }

    /// Returns an answer with the text.
    pub fn into_answer(self) -> HttpAnswer {
        HttpAnswer { content_type: CONTENT_TYPE.into(), ..HttpAnswer::text(self.0) }
    }
}

fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Measures the store.
pub fn measure_store(api: &Api, text: &mut MetricsText) -> ServeResult<()> {
    let kinds: Vec<_> = api.kinds().all().collect();
    let (revision, floor, counts) = api.read(|snapshot| {
        let count = |kind: &&'static crate::kinds::Kind| Ok((kind.resource, snapshot.count(kind.resource, None)?));
        let counts: Result<Vec<_>, crate::store::StoreError> = kinds.iter().map(count).collect();
        Ok((snapshot.revision()?, snapshot.floor()?, counts?))
    })?;
    text.add_single("kloop_store_revision", "gauge", "Latest revision of the store.", revision);
    text.add_single("kloop_store_compacted_revision", "gauge", "Oldest revision that a watch can begin at.", floor);
    let name = "apiserver_resource_objects";
    text.begin(name, "gauge", "Number of stored objects by resource.");
    let mut counts: Vec<_> =
        counts.into_iter().map(|(resource, count)| (resource.group(), resource.plural(), count)).collect();
    counts.sort_unstable();
    counts.dedup();
    for (group, plural, count) in counts {
        text.add(name, &[("group", group), ("resource", plural)], count);
    }
    let size = |suffix: &str| {
        let mut path = api.store().path().as_os_str().to_owned();
        path.push(suffix);
        std::fs::metadata(path).map_or(0, |file| file.len())
    };
    text.begin("kloop_store_size_bytes", "gauge", "Size of the store's files.");
    for (file, bytes) in [("database", size("")), ("wal", size("-wal")), ("reserve", api.store().reserve_size())] {
        text.add("kloop_store_size_bytes", &[("file", file)], bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{AnswerBody, ApiRequest};

    #[test]
    fn labels_are_escaped() {
        let mut text = MetricsText::default();
        text.begin("a_total", "counter", "All.");
        text.add("a_total", &[("x", "a\"b\\c\nd"), ("y", "")], 1.5);
        assert_eq!(text.0, "# HELP a_total All.\n# TYPE a_total counter\na_total{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 1.5\n");
    }

    #[test]
    fn store_is_measured_without_a_server() {
        let mut api = Api::in_memory("test").unwrap();
        let answer = crate::serve::answer(&mut api, &ApiRequest::new("GET", "/metrics"));
        let AnswerBody::Whole(bytes) = answer.body else { panic!("no text") };
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("apiserver_resource_objects{group=\"\",resource=\"namespaces\"} 4\n"), "{text}");
        assert!(text.contains("\nkloop_store_revision "), "{text}");
    }
}
