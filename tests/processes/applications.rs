//! Small applications of `fixtures/`, from `apply` to the response that their comments describe.

use crate::cluster::Cluster;

/// Applies an application; returns its folder's name.
fn apply(cluster: &Cluster, name: &str) -> String {
    let folder = format!("{}/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    cluster.ok(&format!("apply -f {folder}"));
    folder
}

fn page(url: &str) -> String {
    let answer = || ureq::get(url).call().ok()?.body_mut().read_to_string().ok();
    answer().unwrap_or_default()
}

/// Returns the page of a Service with one port.
fn page_of(cluster: &Cluster, service: &str, path: &str) -> String {
    let address = cluster.read(&format!("service/{service}"), "{.spec.clusterIP}");
    page(&format!("http://{address}:8080{path}"))
}

#[test]
fn configuration_and_secrets_are_rotated_without_a_restart() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let folder = apply(&cluster, "rotation");
    cluster.ready_pods("app=greeter", 1);
    let says = |text: &str| cluster.until(text, || page_of(&cluster, "greeter", "/") == text);
    says("hello from the config, with a key of 3 letters, since start 1\n");
    cluster.ok(r#"patch configmap greeting -p {"data":{"text":"good_morning"}}"#);
    says("good_morning from the config, with a key of 3 letters, since start 1\n");
    cluster.ok(r#"patch secret keys -p {"stringData":{"key":"longer"}}"#);
    says("good_morning from the config, with a key of 6 letters, since start 1\n");
    cluster.ok(&format!("delete -f {folder}"));
    cluster.nothing_is_left();
}

#[test]
fn jobs_pass_files_over_a_claim() {
    let cluster = Cluster::new();
    let folder = apply(&cluster, "pipeline");
    assert!(cluster.ok("reconcile").ends_with("converged\n"));
    assert_eq!(cluster.ok("logs job/sum"), "4 parts, 20 words\n");
    assert_eq!(cluster.read("job/count", "{.status.completedIndexes}"), "0-3");
    let _plane = cluster.watch();
    cluster.ok(&format!("delete -f {folder}"));
    cluster.nothing_is_left();
    cluster.until("the claim's volume is deleted too", || cluster.ok("get pv -o name").is_empty());
}

#[test]
fn failing_probes_stop_traffic_or_restart_the_server() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let folder = apply(&cluster, "moody");
    cluster.ready_pods("app=moody", 1);
    cluster.until("the server is healthy", || page_of(&cluster, "moody", "/") == "moody is well (start 1)\n");
    let ready = "{.status.containerStatuses[0].ready}";
    assert_eq!(page_of(&cluster, "moody", "/mood/busy"), "moody is busy (start 1)\n");
    cluster.until_reads("pod/moody", ready, "false");
    cluster.until("the Service has no endpoint", || page_of(&cluster, "moody", "/").is_empty());
    assert_eq!(cluster.read("pod/moody", "{.status.containerStatuses[0].restartCount}"), "0");
    cluster.ok("exec moody -- touch /state/well");
    cluster.until_reads("pod/moody", ready, "true");
    cluster
        .until("the Service has an endpoint again", || page_of(&cluster, "moody", "/") == "moody is well (start 1)\n");
    assert_eq!(page_of(&cluster, "moody", "/mood/sick"), "moody is sick (start 1)\n");
    cluster.until("the server was restarted", || page_of(&cluster, "moody", "/") == "moody is well (start 2)\n");
    assert_eq!(cluster.read("pod/moody", "{.status.containerStatuses[0].restartCount}"), "1");
    assert!(cluster.ok("describe pod moody").contains("Liveness probe failed: HTTP probe failed with statuscode: 503"));
    cluster.ok(&format!("delete -f {folder}"));
    cluster.nothing_is_left();
}

#[test]
fn sidecar_ships_all_lines_before_it_ends() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let folder = apply(&cluster, "shipping");
    cluster.until_reads("job/work", "{.status.succeeded}", "1");
    let shipped = cluster.ok("logs deploy/collector");
    let expected = ["line 1", "line 2", "line 3", "line 4", "line 5", "done", "that was all"];
    assert_eq!(shipped.lines().collect::<Vec<_>>(), expected.map(|line| format!("[work] {line}")));
    cluster.ok(&format!("delete -f {folder}"));
    cluster.nothing_is_left();
}

#[test]
fn members_find_each_other_and_follow_a_leader() {
    elect(&Cluster::new());
}

fn elect(cluster: &Cluster) {
    let _plane = cluster.watch();
    let folder = apply(cluster, "election");
    cluster.ready_pods("app=member", 3);
    let says = |name: &str, path: &str| {
        let address = cluster.read(&format!("pod/{name}"), "{.status.podIP}");
        page(&format!("http://{address}:8080{path}"))
    };
    let follow = |leader: &str, names: &[&str]| {
        cluster.until(&format!("{names:?} follow {leader}"), || {
            names.iter().all(|name| says(name, "/") == format!("{name} follows {leader}\n"))
        });
    };
    follow("member-0", &["member-0", "member-1", "member-2"]);
    assert_eq!(says("member-0", "/resign"), "member-0 follows nobody\n");
    follow("member-1", &["member-1", "member-2"]);
    cluster.ok("delete pod member-0");
    follow("member-0", &["member-0", "member-1", "member-2"]);
    cluster.ok(&format!("delete -f {folder}"));
    cluster.nothing_is_left();
}

#[test]
fn canary_gets_its_share_and_selector_switches_traffic() {
    switch(&Cluster::new());
}

fn switch(cluster: &Cluster) {
    let _plane = cluster.watch();
    let folder = apply(cluster, "canary");
    cluster.ready_pods("app=page", 4);
    let seen =
        |service: &str| (0..40).map(|_| page_of(cluster, service, "/")).collect::<std::collections::BTreeSet<_>>();
    let only = |colour: &str| std::collections::BTreeSet::from([format!("{colour}\n")]);
    cluster.until("both are seen, and nothing else", || {
        seen("page") == only("blue").union(&only("green")).cloned().collect()
    });
    cluster.until("the Service selects blue", || seen("live") == only("blue"));
    cluster.ok(r#"patch service live -p {"spec":{"selector":{"version":"green"}}}"#);
    cluster.until("the Service selects green", || page_of(cluster, "live", "/") == "green\n");
    assert_eq!(seen("live"), only("green"), "blue gets no requests");
    cluster.ok(&format!("delete -f {folder}"));
    cluster.nothing_is_left();
}

#[test]
fn elections_and_canaries_work_for_an_ordinary_user() {
    // An ordinary user has already run this in the tests above.
    if rustix::process::geteuid().is_root() {
        elect(&Cluster::of_user(65_534));
        switch(&Cluster::of_user(65_534));
    }
}
