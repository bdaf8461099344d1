//! Views of running objects: rows as they change, descriptions, and probes that make pods ready and unready.

use super::{deployment, on_host_files, pod};
use crate::cluster::Cluster;

#[test]
fn watch_shows_each_change_as_a_row() {
    let cluster = Cluster::new();
    let rows = cluster.background(&["get", "pods", "-w"]);
    let names = cluster.background(&["get", "pods", "-w", "-o", "name"]);
    let objects = cluster.background(&["get", "pods", "-w", "-o", "json"]);
    let paths = cluster.background(&["get", "pod", "-w", "-o", "jsonpath={.status.phase}{\"\\n\"}"]);
    let script = r#"while ! test -e "$HOME/go"; do sleep 0.02; done"#;
    cluster.apply(&on_host_files(&pod("short", "Never", 1, script)));
    names.until_says("pod/short\n");
    objects.until_says("\"phase\": \"Pending\"");
    paths.until_says("Pending\n");
    let says = |status: &str| {
        let row = |line: &str| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            cells.first() == Some(&"short") && cells.get(2) == Some(&status)
        };
        cluster.until(&format!("a row says {status}"), || rows.said().lines().any(row));
    };
    says("Pending");
    // All watches know the pod before it runs.
    let _plane = cluster.watch();
    says("Running");
    std::fs::write(cluster.home().join("go"), "").unwrap();
    says("Completed");
    cluster.ok("delete pod short");
    assert!(rows.said().starts_with("NAME    READY   STATUS"), "{}", rows.said());
    assert_eq!(rows.said().lines().filter(|line| line.starts_with("NAME")).count(), 1);
    names.until_says("pod/short\npod/short\n");
    assert!(names.said().lines().all(|line| line == "pod/short"), "{}", names.said());
    objects.until_says("\"phase\": \"Succeeded\"");
    paths.until_says("Pending\n");
    paths.until_says("Running\n");
    paths.until_says("Succeeded\n");
    let text = objects.said();
    let stream = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
    let kinds: Vec<String> = stream.map_while(|one| Some(one.ok()?["kind"].as_str()?.to_owned())).collect();
    assert!(kinds.len() >= 3 && kinds.iter().all(|kind| kind == "Pod"), "{kinds:?}");
    for watch in [rows, names, objects, paths] {
        watch.end("TERM");
    }
}

#[test]
fn running_objects_are_described() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--node-name", "here"]);
    cluster.apply(&deployment("web", 2, 1000));
    cluster.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}",
    );
    let pods = cluster.ready_pods("app=web", 2);
    cluster.ok("rollout status deploy/web");
    let address = cluster.read(&format!("pod/{}", pods[0]), "{.status.podIP}");
    cluster.until("the Service has its pods", || cluster.ok("describe svc web").contains(&format!("{address}:8080")));
    cluster.until("events are there", || cluster.ok("get events").contains("Started"));
    let service_ip = cluster.read("svc/web", "{.spec.clusterIP}");
    let pages = [
        (
            "deploy web".to_owned(),
            vec![
                "2 desired | 2 updated | 2 total | 2 available | 0 unavailable".to_owned(),
                "Available      True    MinimumReplicasAvailable".into(),
                "Progressing    True    NewReplicaSetAvailable".into(),
                "NewReplicaSet:   web-".into(),
                "Scaled up replica set web-".into(),
            ],
        ),
        (
            format!("pod {}", pods[0]),
            vec![
                format!("IP:               {address}"),
                "Node:             here/".into(),
                "Controlled By:  ReplicaSet/web-".into(),
                "      Started:      ".into(),
                "    Restart Count:  0".into(),
                "Successfully assigned default/".into(),
                "Container started".into(),
            ],
        ),
        (
            "node here".to_owned(),
            vec![
                "Name:               here".to_owned(),
                "KubeletReady".into(),
                "Non-terminated Pods:".into(),
                pods[0].clone(),
                "Allocated resources:".into(),
            ],
        ),
        (
            "svc web".to_owned(),
            vec![
                format!("IP:                       {service_ip}"),
                "Selector:                 app=web".into(),
                "80/TCP".into(),
            ],
        ),
    ];
    for (what, expected) in pages {
        let page = cluster.ok(&format!("describe {what}"));
        for text in expected {
            assert!(page.contains(&text), "{text:?} is missing in\n{page}");
        }
    }
}

#[test]
fn tcp_probe_makes_a_pod_ready() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let serve = r#"exec python3 -c "
import os, socket, time
home = os.environ['HOME']
while not os.path.exists(home + '/open'): time.sleep(0.02)
listener = socket.create_server((os.environ['POD_IP'], 7000))
while os.path.exists(home + '/open'): time.sleep(0.02)
listener.close()
time.sleep(1000)""#;
    let extra = "env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}], \
        ports: [{name: main, containerPort: 7000}], \
        readinessProbe: {tcpSocket: {port: main}, periodSeconds: 1, failureThreshold: 1}";
    let manifest = on_host_files(&pod("door", "Always", 1, serve));
    let container = manifest.trim_end().strip_suffix('}').expect("a container in braces");
    cluster.apply(&format!("{container}, {extra}}}"));
    cluster.apply("{apiVersion: v1, kind: Service, metadata: {name: door}, spec: {selector: {app: door}, ports: [{port: 80, targetPort: main}]}}");
    let ready = "{.status.containerStatuses[0].ready}";
    let endpoints = "{.items[0].endpoints[*].conditions.ready}";
    let slices = "endpointslices -l kubernetes.io/service-name=door";
    cluster.until("an event reports it", || cluster.ok("get events").contains("Readiness probe failed: dial tcp "));
    assert_eq!(cluster.read("pod/door", ready), "false");
    std::fs::write(cluster.home().join("open"), "").unwrap();
    cluster.until_reads("pod/door", ready, "true");
    cluster.until_reads(slices, endpoints, "true");
    std::fs::remove_file(cluster.home().join("open")).unwrap();
    cluster.until_reads("pod/door", ready, "false");
    cluster.until_reads(slices, endpoints, "false");
    assert_eq!(cluster.read("pod/door", "{.status.containerStatuses[0].restartCount}"), "0");
}

#[test]
fn apply_watch_follows_its_manifests() {
    let cluster = Cluster::new();
    let folder = cluster.home().join("deploy");
    std::fs::create_dir_all(folder.join("below")).unwrap();
    let config = |name: &str, value: &str| {
        let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{k: {value}}}}}");
        std::fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
    };
    config("a", "one");
    config("b", "one");
    let at = folder.display().to_string();
    let words = ["apply", "-R", "-f", &at, "--prune", "--all", "--watch", "--interval", "500ms"];
    let follower = cluster.background(&words);
    follower.until_says("configmap/b created");
    config("a", "two");
    cluster.until_reads("configmap/a", "{.data.k}", "two");
    // A manual change is undone.
    cluster.ok("patch configmap b -p {\"data\":{\"k\":\"mine\"}}");
    cluster.until_reads("configmap/b", "{.data.k}", "one");
    // A broken manifest is reported, and nothing is pruned while it is broken.
    std::fs::write(folder.join("below/c.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: 7}")
        .unwrap();
    std::fs::remove_file(folder.join("b.yaml")).unwrap();
    follower.until_says("below/c.yaml");
    assert_eq!(cluster.read("configmap/b", "{.data.k}"), "one");
    std::fs::write(folder.join("below/c.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}").unwrap();
    follower.until_says("configmap/b pruned");
    follower.until_says("configmap/c created");
    assert!(!follower.said().contains("unchanged"), "{}", follower.said());
    // An object that was removed from the files is deleted, of any kind and in any namespace.
    let team = "{apiVersion: v1, kind: Namespace, metadata: {name: team}}";
    let account = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: team}}";
    std::fs::write(folder.join("team.yaml"), format!("{team}\n---\n{account}")).unwrap();
    follower.until_says("serviceaccount/robot created");
    std::fs::write(folder.join("team.yaml"), team).unwrap();
    follower.until_says("serviceaccount/robot pruned");
    // It ends when the state file is removed.
    std::fs::rename(cluster.home().join("state.db"), cluster.home().join("away.db")).unwrap();
    assert_eq!(follower.ended(), 66, "{}", follower.said());
    let said = cluster.run(&["apply", "-f", &at, "--watch", "--prune"], "");
    assert!(said.err.contains("without explicitly passing --all"), "{}", said.err);
    let said = cluster.run(&["apply", "-f", "-", "--watch"], "");
    assert!(said.err.contains("standard input and addresses cannot be watched"), "{}", said.err);
}

#[test]
fn apply_watch_follows_a_link_that_is_replaced() {
    let (cluster, folder) = (Cluster::new(), tempfile::tempdir().expect("folder"));
    for (name, value) in [("first", "one"), ("second", "two")] {
        let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {{k: {value}}}}}");
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
        std::fs::write(folder.path().join(name).join("a.yaml"), text).expect("written");
    }
    let (current, next) = (folder.path().join("current"), folder.path().join("next"));
    std::os::unix::fs::symlink("first", &current).expect("a link");
    let at = current.display().to_string();
    let follower = cluster.background(&["apply", "-f", &at, "--watch", "--interval", "0s"]);
    follower.until_says("configmap/a created");
    std::os::unix::fs::symlink("second", &next).expect("a link");
    std::fs::rename(next, current).expect("renamed");
    cluster.until_reads("configmap/a", "{.data.k}", "two");
}
