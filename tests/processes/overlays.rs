//! Kustomizations: different pages from a base and its overlays, and rollouts after a change of configuration.

use crate::cluster::Cluster;
use std::path::PathBuf;

/// Copies the fixture, so that a test can change it.
fn copy(cluster: &Cluster) -> PathBuf {
    let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/kustomize");
    let copied = cluster.program("cp").arg("-R").arg(fixture).arg(cluster.home()).status();
    assert!(copied.expect("cp").success());
    cluster.home().join("kustomize")
}

fn page(cluster: &Cluster, service: &str) -> String {
    let address = cluster.read(&format!("service {service}"), "{.spec.clusterIP}");
    let answer = ureq::get(format!("http://{address}:8080/")).call();
    answer.ok().and_then(|mut answer| answer.body_mut().read_to_string().ok()).unwrap_or_default()
}

#[test]
fn base_and_its_overlays_run_side_by_side() {
    let cluster = Cluster::new();
    let folder = copy(&cluster);
    let (dev, prod) = (folder.join("dev"), folder.join("prod"));
    let plane = cluster.watch();
    let applied = cluster.ok(&format!("apply -k {}", dev.display()));
    assert_eq!(applied.lines().filter(|line| line.ends_with(" created")).count(), 3, "{applied}");
    let applied = cluster.ok(&format!("apply -k {}", prod.display()));
    assert!(applied.starts_with("namespace/prod created\nconfigmap/page-"), "{applied}");
    cluster.ready_pods("stage=dev", 1);
    cluster.ready_pods("stage=prod -n prod", 2);
    cluster.until("dev greets", || page(&cluster, "dev-page") == "hello from dev\n");
    cluster.until("prod greets", || page(&cluster, "page -n prod") == "good day from prod\n");

    // Another greeting makes another ConfigMap, so that the pods are replaced.
    let base = folder.join("base/kustomization.yaml");
    let text = std::fs::read_to_string(&base).expect("the base").replace("GREETING=hello", "GREETING=welcome");
    std::fs::write(base, text).expect("changed");
    let applied = cluster.ok(&format!("apply -k {}", dev.display()));
    let (config, rest) = applied.split_once('\n').expect("lines");
    assert!(config.starts_with("configmap/dev-page-") && config.ends_with(" created"), "{applied}");
    assert_eq!(rest, "service/dev-page unchanged\ndeployment.apps/dev-page configured\n");
    cluster.until("dev greets otherwise", || page(&cluster, "dev-page") == "welcome from dev\n");

    cluster.ok(&format!("delete -k {}", dev.display()));
    // The namespace is deleted first: the control plane may delete its objects before the command does.
    cluster.ok(&format!("delete --ignore-not-found -k {}", prod.display()));
    cluster.nothing_is_left();
    assert_eq!(plane.end("INT"), 0);
}

#[test]
fn overlay_is_watched_with_its_bases() {
    let cluster = Cluster::new();
    let folder = copy(&cluster);
    let dev = folder.join("dev").display().to_string();
    let follower = cluster.background(&["apply", "-k", &dev, "--watch", "--interval", "0s"]);
    follower.until_says("deployment.apps/dev-page created");
    let before = cluster.read("deploy/dev-page", "{.spec.template.spec.containers[0].envFrom[0].configMapRef.name}");
    // Changes a file of the base in another folder, first to an invalid one.
    let base = folder.join("base/kustomization.yaml");
    let text = std::fs::read_to_string(&base).expect("the base");
    std::fs::write(&base, format!("{text}greeting: hi\n")).expect("changed");
    follower.until_says("unknown field \"greeting\"");
    std::fs::write(&base, text.replace("GREETING=hello", "GREETING=welcome")).expect("changed");
    follower.until_says("deployment.apps/dev-page configured");
    let after = cluster.read("deploy/dev-page", "{.spec.template.spec.containers[0].envFrom[0].configMapRef.name}");
    assert!(
        before != after && cluster.read(&format!("cm/{after}"), "{.data.GREETING}") == "welcome",
        "{before} {after}"
    );
    let said = cluster.kloop("apply -k nowhere --watch");
    assert!(said.code == 1 && said.err.contains("must build at directory"), "{said:?}");
}
