//! Reviews, ComponentStatuses and `metrics.k8s.io`: answered without a stored object.

use super::endpoints::{ask, bearer};
use super::{JSON, Server};
use crate::cluster::Cluster;
use serde_json::{Value, json};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[test]
fn component_statuses_tell_whether_a_control_plane_runs() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let token = bearer(&server);
    let get = |path: &str, accept: &str| ask(&server, path, &[("Authorization", &*token), ("Accept", accept)]);
    let table = get("/api/v1/componentstatuses", TABLE);
    assert_eq!(table.header("warning"), "299 - \"v1 ComponentStatus is deprecated in v1.19+\"");
    let rows: Value = serde_json::from_slice(&table.body).expect("JSON");
    let cells = |row: usize| rows["rows"][row]["cells"].as_array().expect("cells")[..2].to_vec();
    assert_eq!(
        (cells(0), cells(1)),
        (vec![json!("controller-manager"), json!("Unhealthy")], vec![json!("etcd-0"), json!("Healthy")],)
    );
    let one = server.get("/api/v1/componentstatuses/etcd-0");
    assert_eq!((&one["kind"], &one["conditions"][0]["status"]), (&json!("ComponentStatus"), &json!("True")));
    assert_eq!(get("/api/v1/componentstatuses/nope", "").code, 404);
    assert_eq!(server.ask("DELETE", "/api/v1/componentstatuses/etcd-0", JSON, "").0, 405);
    let _plane = cluster.watch();
    cluster.until_reads("serviceaccount/default", "{.metadata.name}", "default");
    let runs = server.get("/api/v1/componentstatuses/scheduler");
    assert_eq!(runs["conditions"][0]["status"], "True");
}

#[test]
fn metrics_are_what_pods_and_nodes_use() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = Server::start(&cluster, &[]);
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: busy, labels: {app: busy}},
        spec: {containers: [{name: main, image: busybox, command: [sh, -c, 'while :; do :; done']}]}}",
    );
    cluster.until_reads("pod/busy", "{.status.phase}", "Running");
    let metrics = server.get(&format!("{METRICS}/namespaces/default/pods/busy"));
    assert_eq!((&metrics["kind"], &metrics["metadata"]["labels"]["app"]), (&json!("PodMetrics"), &json!("busy")));
    let usage = &metrics["containers"][0]["usage"];
    let cpu: i64 = usage["cpu"].as_str().and_then(|cpu| cpu.strip_suffix('m')?.parse().ok()).expect("milli-CPU");
    assert!(cpu > 0 && usage["memory"] != "0Ki", "{usage}");
    let listed = |path: &str| server.get(path)["items"].as_array().expect("items").len();
    assert_eq!(listed(&format!("{METRICS}/pods?labelSelector=app%3Dbusy")), 1);
    assert_eq!(listed(&format!("{METRICS}/pods?labelSelector=app%3Dother")), 0);
    let nodes = server.get(&format!("{METRICS}/nodes"));
    assert!(nodes["items"][0]["usage"]["cpu"].is_string(), "{nodes}");
    let (code, missing) = server.ask("GET", &format!("{METRICS}/namespaces/default/pods/nope"), JSON, "");
    assert_eq!((code, &missing["message"]), (404, &json!("podmetrics.metrics.k8s.io \"default/nope\" not found")));
    let (code, _) = server.ask("GET", &format!("{METRICS}/nodes?watch=true"), JSON, "");
    assert_eq!(code, 405);
}

#[test]
fn review_knows_the_token_that_it_came_with() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let review = |token: &str| {
        let body = json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": token}});
        let (code, review) = server.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", JSON, &body.to_string());
        assert_eq!(code, 201, "{review}");
        review["status"]["authenticated"].clone()
    };
    assert_eq!((review(&server.token), review("other")), (json!(true), Value::Null));
}
