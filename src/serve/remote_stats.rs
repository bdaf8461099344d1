//! Usage of the nodes on other machines and of their pods, as their kubelets measure it: `stats/summary`.
//!
//! Knows: the fields of the summary (Kubernetes: `pkg/apis/stats/v1alpha1` of `k8s.io/kubelet`). Only ready nodes are
//! queried, a few at the same time, and no more after [`ALL_KUBELETS_TIMEOUT`]. Never: keeps a sample, and never uses a node's values for
//! pods of another node: callers look up a pod at its own node. Start reading at [`RemoteKubelets`].

use super::ServeResult;
use super::remote_kubelet::{client_tls, remote_place};
use crate::apiserver::Api;
use crate::client::{ApiClient, ClientRequest, Credentials, ServerConfig};
use crate::kinds;
use crate::object::{Object, Time};
use crate::store::meta_keys::JOINED_NODE;
use crate::world::usage::UsageSample;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of kubelets that are asked at the same time.
const MAX_AT_ONCE: usize = 16;
/// Time limit for the answer of one kubelet.
const KUBELET_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which no further kubelet is asked.
const ALL_KUBELETS_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes of a summary: several thousand pods.
const MAX_BYTES: usize = 16 << 20;

/// The nodes on other machines, and the kubelets that measure them.
#[derive(Default)]
pub struct RemoteKubelets {
    nodes: HashSet<String>,
    kubelets: Vec<(String, ServerConfig)>,
}

/// Cumulative usage on one node.
pub struct NodeSample {
    /// The time of the measurement.
    pub at: Time,
    /// Usage of the whole node.
    pub node: UsageSample,
    /// Usage of containers by name, for pods by uid.
    pub pods: HashMap<String, BTreeMap<String, UsageSample>>,
}

impl RemoteKubelets {
    /// Finds the kubelets of those nodes that are on other machines and ready. The state of a joined node has no key for them.
    pub fn find<'a>(api: &mut Api, nodes: impl IntoIterator<Item = &'a Object>) -> ServeResult<RemoteKubelets> {
        let mut remote = RemoteKubelets::default();
        let mut places = Vec::new();
        for node in nodes {
            // The address is an error where it is missing.
            let place = remote_place(api, node).transpose();
            let Some(place) = place else { continue };
            remote.nodes.insert(node.name().to_owned());
            places.extend(
                place.ok().filter(|_| node.has_condition("Ready")).map(|place| (node.name().to_owned(), place)),
            );
        }
        if places.is_empty() || api.read(|snapshot| snapshot.meta(JOINED_NODE))?.is_some() {
            return Ok(remote);
        }
        let tls = client_tls(api)?;
        let kubelets = places.into_iter().filter_map(|(node, place)| {
            let server = ServerConfig::new(&format!("https://{place}")).ok()?;
            let credentials = Credentials { key: tls.own.clone(), ..Credentials::default() };
            Some((node, ServerConfig { authorities: Some(tls.authorities.clone()), credentials, ..server }))
        });
        Ok(RemoteKubelets { kubelets: kubelets.collect(), ..remote })
    }

    /// Finds the nodes of these pods.
    pub fn find_for_pods(api: &mut Api, pods: &[Object]) -> ServeResult<RemoteKubelets> {
        let names: HashSet<&str> = pods.iter().filter_map(|pod| pod.text(&["spec", "nodeName"])).collect();
        let nodes = api.read_view(|txn| txn.list(kinds::node::KIND.resource, None))?;
        RemoteKubelets::find(api, nodes.iter().filter(|node| names.contains(node.name())))
    }

    /// Whether a node is on another machine.
    pub fn is_remote(&self, node: &str) -> bool {
        self.nodes.contains(node)
    }

    /// Measures the nodes, by name. Those that do not answer are left out.
    pub fn sample(&self) -> HashMap<String, NodeSample> {
        let (next, deadline) = (AtomicUsize::new(0), Instant::now() + ALL_KUBELETS_TIMEOUT);
        let ask = || {
            let mut samples = Vec::new();
            while let Some((node, server)) = self.kubelets.get(next.fetch_add(1, Ordering::Relaxed)) {
                if Instant::now() >= deadline {
                    break;
                }
                samples.extend(sample_node(server).map(|sample| (node.clone(), sample)));
            }
            samples
        };
        thread::scope(|scope| {
            let threads = 0..MAX_AT_ONCE.min(self.kubelets.len());
            let spawn = |_| thread::Builder::new().name("stats".to_owned()).spawn_scoped(scope, ask).ok();
            let threads: Vec<_> = threads.filter_map(spawn).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
        })
    }
}

fn sample_node(server: &ServerConfig) -> Option<NodeSample> {
    let request =
        ClientRequest { timeout: KUBELET_TIMEOUT, most_bytes: MAX_BYTES, ..ClientRequest::get("/stats/summary") };
    let reply = ApiClient::new(server.clone()).ok()?.send(request).ok()?;
    Some(read_summary(&serde_json::from_slice(&reply.body).ok()?, Time::now()))
}

fn read_summary(summary: &Value, at: Time) -> NodeSample {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let container = |stats: &Value| Some((stats["name"].as_str()?.to_owned(), read_usage(stats)));
    let pod = |stats: &Value| {
        let containers = list(&stats["containers"]).iter().filter_map(container).collect();
        Some((stats["podRef"]["uid"].as_str()?.to_owned(), containers))
    };
    NodeSample { at, node: read_usage(&summary["node"]), pods: list(&summary["pods"]).iter().filter_map(pod).collect() }
}

fn read_usage(stats: &Value) -> UsageSample {
    let bytes = |part: &str, field: &str| stats[part][field].as_u64().unwrap_or_default();
    UsageSample {
        cpu_nanos: stats["cpu"]["usageCoreNanoSeconds"].as_u64().unwrap_or_default(),
        memory: bytes("memory", "workingSetBytes"),
        swap: bytes("swap", "swapUsageBytes"),
        ..UsageSample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn summary_of_a_kubelet_is_read() {
        let cpu = |nanos: u64| json!({"usageCoreNanoSeconds": nanos});
        let summary = json!({
            "node": {"nodeName": "n", "cpu": cpu(9), "memory": {"usageBytes": 8, "workingSetBytes": 7}},
            "pods": [
                {"podRef": {"name": "a", "uid": "1"}, "containers": [
                    {"name": "c", "cpu": cpu(5), "memory": {"workingSetBytes": 4}, "swap": {"swapUsageBytes": 3}},
                    {"name": "new"},
                    {"cpu": cpu(1)},
                ]},
                {"podRef": {"name": "b"}, "containers": []},
            ],
        });
        let sample = read_summary(&summary, Time::UNIX_EPOCH);
        let usage = |cpu_nanos, memory, swap| UsageSample { cpu_nanos, memory, swap, ..UsageSample::default() };
        assert_eq!(sample.node, usage(9, 7, 0));
        let containers = [("c".to_owned(), usage(5, 4, 3)), ("new".to_owned(), UsageSample::default())];
        assert_eq!(sample.pods, HashMap::from([("1".to_owned(), BTreeMap::from(containers))]));
        assert!(read_summary(&json!("no summary"), Time::UNIX_EPOCH).pods.is_empty());
    }
}
