//! The fixture that the README runs: two tiers, a Job, configuration.

use crate::cluster::Cluster;
use std::path::PathBuf;

fn fixture() -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/guestbook").display().to_string()
}

fn page(url: &str) -> Option<String> {
    ureq::get(url).call().ok()?.body_mut().read_to_string().ok()
}

#[test]
fn guestbook_serves_a_page_until_it_is_deleted() {
    let cluster = Cluster::new();
    let fixture = fixture();
    let applied = cluster.ok(&format!("apply -f {fixture}"));
    assert_eq!(applied.lines().count(), 7, "{applied}");
    assert!(applied.lines().all(|line| line.ends_with(" created")), "{applied}");
    let plane = cluster.watch();

    cluster.until_reads("job/seed", "{.status.succeeded}", "1");
    let seed = cluster.pods("tier=seed").remove(0);
    assert_eq!(cluster.log(&seed, "seed"), "first entry, signed with a token of 6 letters\n");

    // Each frontend connects to the backend by name; the test connects to each frontend by address.
    for pod in cluster.ready_pods("tier=frontend", 3) {
        let address = cluster.read(&format!("pod/{pod}"), "{.status.podIP}");
        let page = page(&format!("http://{address}:8080/")).expect("an answer");
        assert_eq!(page, format!("Welcome to the guestbook\n- first entry\nserved by {pod}\n"));
    }
    let backend = cluster.read("service/backend", "{.spec.clusterIP}");
    ureq::post(&format!("http://{backend}:6380/entries"))
        .header("X-Token", "s3cret")
        .send("hello")
        .expect("the token is known");
    let frontend = cluster.read("service/frontend", "{.spec.clusterIP}");
    let page = page(&format!("http://{frontend}:8080/")).expect("an answer");
    assert!(page.starts_with("Welcome to the guestbook\n- first entry\n- hello\nserved by "), "{page}");

    cluster.until("the Service has its endpoints", || {
        let ready = cluster
            .read("endpointslices -l kubernetes.io/service-name=frontend", "{.items[*].endpoints[*].conditions.ready}");
        ready == "true true true"
    });
    let again = cluster.ok(&format!("apply -f {fixture}"));
    // `stringData` is never stored, so that kubectl also prints "configured" for such a Secret each time.
    let changed: Vec<&str> = again.lines().filter(|line| !line.ends_with(" unchanged")).collect();
    assert_eq!(changed, ["secret/guestbook configured"]);

    cluster.ok(&format!("delete -f {fixture}"));
    cluster.nothing_is_left();
    cluster.until("the state is empty too", || cluster.ok("get pods,rs,deploy,jobs,endpointslices -o name").is_empty());
    assert_eq!(plane.end("INT"), 0);
}

#[test]
fn one_shot_runs_leave_pods_running_and_remove_deleted_ones() {
    let cluster = Cluster::new();
    let fixture = fixture();
    cluster.ok(&format!("apply -f {fixture}"));
    assert!(cluster.ok("reconcile").ends_with("converged\n"));
    let pods = cluster.ready_pods("tier=frontend", 3);
    let pids: Vec<u32> = pods.iter().map(|pod| cluster.pid(pod)).collect();
    cluster.ok("reconcile");
    assert_eq!(pids, pods.iter().map(|pod| cluster.pid(pod)).collect::<Vec<_>>(), "a second run disturbs nothing");

    let deleted = cluster.kloop(&format!("delete -f {fixture}"));
    assert_eq!(deleted.code, 0, "{}", deleted.err);
    assert!(!cluster.processes().is_empty(), "no control plane ends them");
    assert!(cluster.ok("reconcile").ends_with("converged\n"));
    cluster.nothing_is_left();
}
