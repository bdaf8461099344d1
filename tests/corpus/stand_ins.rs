//! Manifests of public pages whose programs a machine may not have: they run with Image objects that name stand-ins, as anybody would
//! write them who tries such a manifest here.

use super::folder;
use crate::cluster::Cluster;
use std::fs;

/// A web server that answers on the port that its first argument says: it stands in for every server here.
const WEB: &str = "import http.server,sys;http.server.ThreadingHTTPServer((\"\",int(sys.argv[1])),http.server.SimpleHTTPRequestHandler).serve_forever()";

/// An Image object that makes these images a web server on a port.
fn web(name: &str, pattern: &str, port: u16) -> String {
    let program = serde_json::Value::from(WEB);
    format!(
        "apiVersion: kloop.dev/v1alpha1\nkind: Image\nmetadata: {{name: {name}}}\n\
         spec: {{patterns: ['{pattern}'], entrypoint: [python3, -c, {program}, '{port}'], command: [], filesystem: private}}\n---\n"
    )
}

/// A manifest of `corpus/run`, what stands in for its images, and the workloads that have to become available.
struct Row {
    path: &'static str,
    images: String,
    workloads: &'static [(&'static str, usize)],
}

const SITE: &str = "k8s-website-1.29/content/en/examples";

#[test]
fn manifests_run_with_stand_ins() {
    let Some(run) = folder("run") else { return };
    let rows = [
        Row {
            path: "application/web/web.yaml",
            images: web("nginx", "*/nginx-slim", 80),
            workloads: &[("statefulset/web", 2)],
        },
        Row {
            path: "application/ssa/nginx-deployment.yaml",
            images: web("nginx", "nginx:1.*", 80),
            workloads: &[("deploy/nginx-deployment", 3)],
        },
        Row {
            path: "service/networking/run-my-nginx.yaml",
            images: web("nginx", "nginx", 80),
            workloads: &[("deploy/my-nginx", 2)],
        },
        Row {
            path: "guestbook-all-in-one.yaml",
            images: web("redis", "*redis*", 6379) + &web("frontend", "*/gb-frontend", 80),
            workloads: &[("deploy/redis-master", 1), ("deploy/redis-replica", 2), ("deploy/frontend", 3)],
        },
    ];
    let count = rows.len();
    for row in rows {
        let path = match row.path.contains('/') {
            true => run.join(SITE).join(row.path),
            false => run.join("k8s-examples/web/guestbook/all-in-one").join(row.path),
        };
        let text = fs::read_to_string(&path).expect(row.path);
        let cluster = Cluster::new();
        let _plane = cluster.watch();
        cluster.apply(&row.images);
        cluster.apply(&text);
        for (workload, replicas) in row.workloads {
            cluster.until_reads(workload, "{.status.readyReplicas}", &replicas.to_string());
        }
        let restarts = cluster.read("pods", "{.items[*].status.containerStatuses[*].restartCount}");
        assert!(restarts.split(' ').all(|count| count == "0"), "{}: {restarts}", row.path);
        // Every Service with an address of its own leads to a server that answers.
        let services = cluster.read("services", "{range .items[*]}{.spec.clusterIP}:{.spec.ports[0].port} {end}");
        let addresses = services.split_whitespace().filter(|at| at.starts_with("127."));
        for address in addresses.filter(|at| !at.ends_with(":443")) {
            let answers = || ureq::get(&format!("http://{address}/")).call().is_ok();
            cluster.until(&format!("{}: {address} answers", row.path), answers);
        }
    }
    eprintln!(
        "{count} of 8 level S manifests run with stand-ins; the others are not tried: etcd (needs grpc), podinfo, metallb, longhorn"
    );
}
