//! A part of the kubelet's HTTP API: `nodes/NAME/proxy/PATH` without a port.
//!
//! Knows: health, the pods of the node, and the usage of its containers: `stats/summary`, and `metrics/resource` for Prometheus. Values are
//! measured at the request, without waiting. Never: forwards a request. Start reading at [`answer`].

use super::answer::HttpAnswer;
use super::form::AnswerForm;
use super::metrics::MetricsText;
use super::request::ApiRequest;
use super::{ServeResult, not_allowed};
use crate::apiserver::Api;
use crate::apiserver::read::{self, ListSelection};
use crate::kinds;
use crate::object::{FieldSelector, Object, Reason, Status, Time, time};
use crate::reconcile::node::{LOCAL, RUNTIME};
use crate::runtime::usage;
use crate::world::usage::UsageSample;
use serde_json::{Value, json};

/// The paths that are served.
const PATHS: &str = "healthz, metrics, metrics/resource, pods, runningpods and stats/summary";

/// Answers a request for a path of the node's server.
pub fn answer(api: &Api, request: &ApiRequest, node: &Object, path: &str) -> ServeResult {
    let path = path.trim_end_matches('/');
    if !request.is_get_or_head() {
        return Err(not_allowed());
    }
    match path {
        "healthz" => Ok(HttpAnswer::text("ok")),
        "pods" => list_pods(request, read_pods(api, node)?),
        "runningpods" => {
            let is_running = |pod: &Object| pod.text(&["status", "phase"]) == Some("Running");
            list_pods(request, read_pods(api, node)?.into_iter().filter(is_running).collect())
        }
        "metrics" => Ok(count(&read_pods(api, node)?, node).into_answer()),
        "metrics/resource" => Ok(NodeUsage::measure(api, node)?.metrics().into_answer()),
        "stats/summary" => {
            let summary = NodeUsage::measure(api, node)?.summary(node);
            Ok(HttpAnswer::document(200, &summary, &AnswerForm { is_pretty: true, ..AnswerForm::default() }))
        }
        _ => {
            let text = format!("the server of node {:?} has no path {path:?}: it has {PATHS}", node.name());
            Err(Status::new(Reason::NotFound, text))
        }
    }
}

fn read_pods(api: &Api, node: &Object) -> ServeResult<Vec<Object>> {
    let fields = FieldSelector::parse(&format!("spec.nodeName={}", node.name()));
    let fields = fields.map_err(|error| Status::new(Reason::BadRequest, error.to_string()))?;
    let selection = ListSelection { labels: None, fields: Some(fields) };
    api.read_view(|txn| read::list(txn, &kinds::pod::KIND, None, &selection))
}

fn list_pods(request: &ApiRequest, pods: Vec<Object>) -> ServeResult {
    let items: Vec<Value> = pods.into_iter().map(|pod| pod.0).collect();
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
    Ok(HttpAnswer::document(200, &list, &AnswerForm::negotiate_whole(request)?))
}

/// Returns the metrics of the numbers of running pods and containers.
fn count(pods: &[Object], node: &Object) -> MetricsText {
    let statuses = || pods.iter().flat_map(|pod| pod.items(&["status", "containerStatuses"]));
    let is_running = |pod: &&Object| pod.text(&["status", "phase"]) == Some("Running");
    let mut text = MetricsText::default();
    text.begin("kubelet_node_name", "gauge", "The node's name. The count is always 1.");
    text.add("kubelet_node_name", &[("node", node.name())], 1);
    let help = "Number of pods that have a running pod sandbox";
    text.add_single("kubelet_running_pods", "gauge", help, pods.iter().filter(is_running).count());
    let name = "kubelet_running_containers";
    text.begin(name, "gauge", "Number of containers currently running");
    for (state, field) in [("created", "waiting"), ("exited", "terminated"), ("running", "running")] {
        let count = statuses().filter(|status| status["state"][field].is_object()).count();
        text.add(name, &[("container_state", state)], count);
    }
    text
}

/// Cumulative usage of a node, and of the containers of its pods.
struct NodeUsage {
    now: Time,
    /// `None` for a simulated node.
    node: Option<UsageSample>,
    pods: Vec<(Object, Vec<(String, UsageSample)>)>,
}

impl NodeUsage {
    fn measure(api: &Api, node: &Object) -> ServeResult<NodeUsage> {
        let home = api.store().home();
        let pods = read_pods(api, node)?.into_iter().filter_map(|pod| {
            let containers = Vec::from_iter(usage::sample_pod(home, pod.local_uid()));
            (!containers.is_empty()).then_some((pod, containers))
        });
        let pods: Vec<_> = pods.collect();
        let all = || sum(pods.iter().flat_map(|(_, containers)| containers));
        let measured = match node.annotation(RUNTIME) {
            None => usage::sample_machine(),
            Some(LOCAL) => Some(all()),
            Some(_) => None,
        };
        Ok(NodeUsage { now: Time::now(), node: measured, pods })
    }

    /// Returns the document that metrics servers and `kubectl` plugins read.
    fn summary(&self, node: &Object) -> Value {
        let created = node.value_at(&["metadata", "creationTimestamp"]);
        let mut own = json!({"nodeName": node.name(), "startTime": created});
        self.add_usage(&mut own, self.node.as_ref());
        let pods: Vec<Value> = self.pods.iter().map(|(pod, containers)| self.summarize_pod(pod, containers)).collect();
        json!({"node": own, "pods": pods})
    }

    fn summarize_pod(&self, pod: &Object, containers: &[(String, UsageSample)]) -> Value {
        let container = |(name, sample): &(String, UsageSample)| {
            let mut stats = json!({"name": name, "startTime": started(pod, name)});
            self.add_usage(&mut stats, Some(sample));
            stats
        };
        let reference = json!({"name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid()});
        let all: Vec<Value> = containers.iter().map(container).collect();
        let mut stats = json!({
            "podRef": reference, "startTime": pod.value_at(&["status", "startTime"]), "containers": all,
        });
        self.add_usage(&mut stats, Some(&sum(containers)));
        stats
    }

    fn add_usage(&self, stats: &mut Value, sample: Option<&UsageSample>) {
        let Some(sample) = sample else { return };
        let now = time::rfc3339(self.now);
        stats["cpu"] = json!({"time": now, "usageCoreNanoSeconds": sample.cpu_nanos});
        stats["memory"] = json!({"time": now, "usageBytes": sample.memory, "workingSetBytes": sample.memory});
        stats["swap"] = json!({"time": now, "swapUsageBytes": sample.swap});
    }

    /// Returns the kubelet's `/metrics/resource`.
    fn metrics(&self) -> MetricsText {
        let mut text = MetricsText::default();
        let at = self.now.as_millisecond();
        let cpu = |sample: &UsageSample| format!("{} {at}", sample.cpu_nanos as f64 / 1e9);
        let memory = |sample: &UsageSample| format!("{} {at}", sample.memory);
        type Shown<'a> = &'a dyn Fn(&UsageSample) -> String;
        let quantities: [(&str, &str, &str, Shown<'_>); 2] = [
            ("cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the", &cpu),
            ("memory_working_set_bytes", "gauge", "Current working set in bytes of the", &memory),
        ];
        for (quantity, kind, help, show) in quantities {
            let name = format!("container_{quantity}");
            text.begin(&name, kind, &format!("[STABLE] {help} container"));
            for (pod, containers) in &self.pods {
                let place = [("namespace", pod.namespace()), ("pod", pod.name())];
                for (container, sample) in containers {
                    text.add(&name, &[&[("container", container.as_str())][..], &place].concat(), show(sample));
                }
            }
            let name = format!("node_{quantity}");
            text.begin(&name, kind, &format!("[STABLE] {help} node"));
            self.node.iter().for_each(|sample| text.add(&name, &[], show(sample)));
            let name = format!("pod_{quantity}");
            text.begin(&name, kind, &format!("[STABLE] {help} pod"));
            for (pod, containers) in &self.pods {
                let place = [("namespace", pod.namespace()), ("pod", pod.name())];
                text.add(&name, &place, show(&sum(containers)));
            }
        }
        self.add_start_times(&mut text);
        let help = "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise";
        text.add_single("resource_scrape_error", "gauge", help, 0);
        text
    }

    /// Adds the start time of each container. Metrics servers use it to detect that a counter was reset.
    fn add_start_times(&self, text: &mut MetricsText) {
        let name = "container_start_time_seconds";
        text.begin(name, "gauge", "[STABLE] Start time of the container since unix epoch in seconds");
        for (pod, containers) in &self.pods {
            for (container, _) in containers {
                let Some(at) = started(pod, container).as_str().and_then(|at| at.parse::<Time>().ok()) else {
                    continue;
                };
                let labels = [("container", container.as_str()), ("namespace", pod.namespace()), ("pod", pod.name())];
                text.add(name, &labels, at.as_second());
            }
        }
    }
}

fn sum<'a>(samples: impl IntoIterator<Item = &'a (String, UsageSample)>) -> UsageSample {
    samples.into_iter().fold(UsageSample::default(), |mut all, (_, sample)| {
        all.cpu_nanos += sample.cpu_nanos;
        all.memory += sample.memory;
        all.swap += sample.swap;
        all
    })
}

/// Returns when a container of a pod started.
fn started(pod: &Object, container: &str) -> Value {
    pod.container_status(container).map_or(Value::Null, |status| status["state"]["running"]["startedAt"].clone())
}
