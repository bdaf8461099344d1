//! Changes of Deployments: scaling, rollouts, history and undo.

use super::{deployment, servers, service};
use crate::cluster::{Cluster, is_alive};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Watches a Deployment until the new template is complete: checks the minimum of available pods and the maximum of all pods. Each look is
/// one revision of the store.
fn watch_rollout(cluster: &Cluster, name: &str, least: usize, most: usize) {
    cluster.until("the rollout is complete", || {
        let list: serde_json::Value =
            serde_json::from_str(&cluster.ok(&format!("get deploy,pods -l app={name} -o json"))).expect("json");
        let items = list["items"].as_array().expect("items");
        let pods: Vec<_> = items.iter().filter(|item| item["kind"] == "Pod").collect();
        let live: Vec<_> = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
        let conditions = |pod: &serde_json::Value| pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = |pod: &serde_json::Value| {
            conditions(pod).iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let ready = live.iter().filter(|pod| is_ready(pod)).count();
        assert!(ready >= least, "{ready} pods are ready, at least {least} are required");
        assert!(live.len() <= most, "{} pods, {most} are allowed", live.len());
        let deployment = items.iter().find(|item| item["kind"] == "Deployment").expect("the Deployment");
        let wanted = &deployment["spec"]["replicas"];
        let status = &deployment["status"];
        status["observedGeneration"] == deployment["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| status[field] == *wanted)
    });
}

/// Returns the Deployment with labels, so that one selector finds it and its pods.
fn labelled(name: &str, replicas: u32, seconds: u32) -> String {
    deployment(name, replicas, seconds).replacen(
        &format!("{{name: {name}}}"),
        &format!("{{name: {name}, labels: {{app: {name}}}}}"),
        1,
    )
}

fn seconds(cluster: &Cluster, pods: &[String]) -> Vec<String> {
    pods.iter().map(|pod| cluster.read(&format!("pod/{pod}"), "{.spec.containers[0].command[1]}")).collect()
}

#[test]
fn deployment_scales_up_and_down() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&labelled("web", 2, 1000));
    let two = cluster.ready_pods("app=web", 2);
    assert_eq!(cluster.ok("scale deploy/web --replicas=5"), "deployment.apps/web scaled\n");
    let five = cluster.ready_pods("app=web", 5);
    assert!(two.iter().all(|pod| five.contains(pod)));
    let pids: Vec<u32> = five.iter().map(|pod| cluster.pid(pod)).collect();
    cluster.ok("scale deploy/web --replicas=1 --current-replicas=5");
    cluster.ready_pods("app=web", 1);
    cluster.until("four processes have ended", || pids.iter().filter(|pid| is_alive(**pid)).count() == 1);
    cluster.ok("scale deploy/web --replicas=0");
    cluster.nothing_is_left();
    let said = cluster.kloop("scale deploy/web --replicas=3 --current-replicas=7");
    assert_eq!(said.code, 1, "{}", said.out);
    assert!(said.err.contains("Expected replicas to be 7, was 0"), "{}", said.err);
}

#[test]
fn changed_manifest_rolls_out_within_its_bounds() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&labelled("web", 4, 1000));
    let before = cluster.ready_pods("app=web", 4);
    assert_eq!(cluster.apply(&labelled("web", 4, 2000)), "deployment.apps/web configured\n");
    // 25 % of four in both directions.
    watch_rollout(&cluster, "web", 3, 5);
    let after = cluster.ready_pods("app=web", 4);
    assert!(!after.iter().any(|pod| before.contains(pod)), "{before:?} {after:?}");
    assert_eq!(seconds(&cluster, &after), ["2000"; 4]);
    let mut sizes: Vec<String> =
        cluster.read("rs -l app=web", "{.items[*].spec.replicas}").split(' ').map(str::to_owned).collect();
    sizes.sort();
    assert_eq!(sizes, ["0", "4"], "the old ReplicaSet stays with 0 pods for a rollback");
}

#[test]
fn recreate_never_runs_old_and_new_together() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let recreate = |seconds| labelled("one", 2, seconds).replacen("spec:", "spec:\n  strategy: {type: Recreate}", 1);
    cluster.apply(&recreate(1000));
    let before = cluster.ready_pods("app=one", 2);
    let pids: Vec<u32> = before.iter().map(|pod| cluster.pid(pod)).collect();
    cluster.apply(&recreate(2000));
    cluster.until("a new pod runs", || {
        let new: Vec<String> = cluster.pods("app=one").into_iter().filter(|pod| !before.contains(pod)).collect();
        let runs = new.iter().any(|pod| !cluster.pids(pod).is_empty());
        assert!(!runs || !pids.iter().any(|pid| is_alive(*pid)), "old and new run together");
        runs
    });
    assert_eq!(cluster.ready_pods("app=one", 2).len(), 2);
}

#[test]
fn rollout_commands_work() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&labelled("web", 2, 1000));
    let status = cluster.ok("rollout status deploy/web");
    assert!(status.ends_with("deployment \"web\" successfully rolled out\n"), "{status}");
    cluster.apply(&labelled("web", 2, 2000));
    cluster.ok("rollout status deploy/web");
    let history = cluster.ok("rollout history deploy/web");
    assert_eq!(history, "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n\n");

    assert_eq!(cluster.ok("rollout undo deploy/web"), "deployment.apps/web rolled back\n");
    cluster.ok("rollout status deploy/web");
    assert_eq!(seconds(&cluster, &cluster.ready_pods("app=web", 2)), ["1000"; 2]);
    assert!(cluster.ok("rollout history deploy/web").contains("\n2         <none>\n3         <none>\n"));

    assert_eq!(cluster.ok("rollout pause deploy/web"), "deployment.apps/web paused\n");
    let before = cluster.ready_pods("app=web", 2);
    assert_eq!(cluster.ok("set image deploy/web main=alpine"), "deployment.apps/web image updated\n");
    cluster.until("the paused change is observed", || {
        cluster.read("deploy/web", "{.status.observedGeneration}")
            == cluster.read("deploy/web", "{.metadata.generation}")
    });
    assert_eq!(cluster.ready_pods("app=web", 2), before, "a paused rollout changes no pod");
    assert_eq!(cluster.ok("rollout resume deploy/web"), "deployment.apps/web resumed\n");
    cluster.ok("rollout status deploy/web");
    let images = cluster.read("pods -l app=web", "{.items[*].spec.containers[0].image}");
    assert!(images.split(' ').filter(|image| *image == "alpine").count() == 2, "{images}");

    let before = cluster.ready_pods("app=web", 2);
    assert_eq!(cluster.ok("rollout restart deploy/web"), "deployment.apps/web restarted\n");
    cluster.ok("rollout status deploy/web");
    assert!(!cluster.ready_pods("app=web", 2).iter().any(|pod| before.contains(pod)));
}

#[test]
fn stuck_rollout_keeps_the_old_pods_and_can_be_undone() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&labelled("web", 4, 1000));
    let before = cluster.ready_pods("app=web", 4);
    cluster.apply(
        &labelled("web", 4, 1000)
            .replace("image: busybox, command: [sleep, \"1000\"]", "image: no-such-program-anywhere"),
    );
    let stuck =
        |name: &String| cluster.read(&format!("pod/{name}"), "{.status.containerStatuses[0].state.waiting.reason}");
    cluster.until("the new pods are stuck", || {
        cluster.pods("app=web").iter().any(|pod| ["ErrImagePull", "ImagePullBackOff"].contains(&stuck(pod).as_str()))
    });
    cluster.until_reads("deploy/web", "{.status.readyReplicas}", "3");
    let said = cluster.kloop("rollout status deploy/web --timeout=1s");
    assert_eq!(said.code, 1, "{}", said.out);
    assert!(before.iter().filter(|pod| cluster.pods("app=web").contains(pod)).count() >= 3);
    cluster.ok("rollout undo deploy/web");
    cluster.ok("rollout status deploy/web");
    let after = cluster.ready_pods("app=web", 4);
    assert!(after.iter().filter(|pod| before.contains(pod)).count() >= 3, "the old pods were kept");
}

#[test]
fn wait_returns_when_the_condition_is_met() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&labelled("web", 2, 1000));
    assert_eq!(
        cluster.ok("wait deploy/web --for=condition=Available --timeout=60s"),
        "deployment.apps/web condition met\n"
    );
    let said = cluster.ok("wait pods -l app=web --for=condition=Ready --timeout=60s");
    assert_eq!(said.lines().filter(|line| line.ends_with(" condition met")).count(), 2, "{said}");
    assert_eq!(cluster.kloop("wait deploy/web --for=jsonpath={.status.replicas}=9 --timeout=1s").code, 1);
    cluster.ok("delete deploy web --wait=false");
    cluster.ok("wait deploy/web --for=delete --timeout=60s");
}

#[test]
fn rollout_without_progress_exceeds_its_deadline() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    let stuck = labelled("web", 1, 1000)
        .replacen("spec:", "spec:\n  progressDeadlineSeconds: 2", 1)
        .replace("image: busybox, command: [sleep, \"1000\"]", "image: no-such-program-anywhere");
    cluster.apply(&stuck);
    let said = cluster.kloop("rollout status deploy/web --timeout=60s");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert_eq!(said.err, "error: deployment \"web\" exceeded its progress deadline\n");
    let progress = "{.status.conditions[?(@.type==\"Progressing\")].status}/{.status.conditions[?(@.type==\"Progressing\")].reason}";
    assert_eq!(cluster.read("deploy/web", progress), "False/ProgressDeadlineExceeded");
    plane.until_says("the rollout is stuck: ReplicaSet \"web-");
    cluster.apply(&labelled("web", 1, 1000));
    cluster.ok("rollout status deploy/web --timeout=60s");
    assert_eq!(cluster.read("deploy/web", progress), "True/NewReplicaSetAvailable");
}

/// Servers that answer with their version, reachable in all ways. A hook keeps each until the routes have changed, which takes seconds on
/// a loaded machine, because the server ends at once when it is asked to. The grace period includes the hook.
fn versions(replicas: usize) -> String {
    let more = "env: [{name: VERSION, value: one}], lifecycle: {preStop: {sleep: {seconds: 5}}}, ";
    let ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {defaultBackend: {service: {name: web, port: {number: 8080}}}}}";
    let servers =
        servers("web", replicas, more).replace("terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 30");
    servers + &service("web", "type: NodePort, ports: [{port: 8080}]") + ingress
}

/// Returns the version that answered, or the error.
fn visit(place: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(place).map_err(|error| format!("connect: {error}"))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").map_err(|error| format!("write: {error}"))?;
    let mut said = String::new();
    stream.read_to_string(&mut said).map_err(|error| format!("read: {error}"))?;
    let (head, body) = said.split_once("\r\n\r\n").ok_or("no answer")?;
    let version = body.lines().next().filter(|_| head.contains(" 200 ")).ok_or(head)?;
    Ok(version.to_owned())
}

#[test]
fn rollout_of_ten_replicas_loses_no_request() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(&versions(10));
    cluster.ready_pods("app=web", 10);
    let read = |object: &str, path: &str| cluster.read(object, path);
    let places = [
        read("service/web", "{.spec.clusterIP}:8080"),
        read("service/web", "127.0.0.1:{.spec.ports[0].nodePort}"),
        cluster.wait_for("the Ingress has its address", || {
            let door = "{.status.loadBalancer.ingress[0].ip}:{.status.loadBalancer.ingress[0].ports[0].port}";
            Some(read("ingress/web", door)).filter(|door| door.len() > 1)
        }),
    ];
    places.iter().for_each(|place| cluster.until(&format!("{place} answers"), || visit(place).is_ok()));
    let is_over = AtomicBool::new(false);
    let client = |place: &String| {
        let mut results = Vec::new();
        // Constant load, with an upper bound.
        while !is_over.load(Ordering::Relaxed) && results.len() < 400 {
            results.push((place.clone(), visit(place)));
            std::thread::sleep(Duration::from_millis(100));
        }
        results
    };
    let results: Vec<(String, Result<String, String>)> = std::thread::scope(|scope| {
        let (client, places) = (&client, &places);
        let clients: Vec<_> = (0..51).map(|number| scope.spawn(move || client(&places[number % 3]))).collect();
        cluster.ok("set env deploy/web VERSION=two");
        watch_rollout(&cluster, "web", 8, 13);
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    let failed: Vec<_> = results.iter().filter(|(_, result)| result.is_err()).collect();
    assert!(failed.is_empty(), "{} of {}: {failed:?}", failed.len(), results.len());
    for place in &places {
        let seen = results.iter().filter(|(at, _)| at == place).flat_map(|(_, result)| result);
        let seen: BTreeSet<&str> = seen.map(String::as_str).collect();
        assert_eq!(seen, BTreeSet::from(["one", "two"]), "at {place}, of {} requests", results.len());
        assert_eq!(visit(place).as_deref(), Ok("two"));
    }
}
