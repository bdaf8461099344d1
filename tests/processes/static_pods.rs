//! Static pods: the kubelet runs the manifests of a folder, and the API only shows them.

use super::pod;
use crate::cluster::{Cluster, is_alive};
use std::fs;

fn manifest(name: &str, seconds: u32) -> String {
    pod(name, "Always", 5, &format!("exec sleep {seconds}"))
}

#[test]
fn manifest_runs_while_its_file_exists() {
    let cluster = Cluster::new();
    let folder = cluster.home().join("manifests");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("web.yaml"), manifest("web", 1000) + "---" + &manifest("more", 1001)).unwrap();
    fs::write(folder.join("wrong.yaml"), "kind: [").unwrap();
    let path = folder.display().to_string();
    let flags = ["--node-name", "here", "--manifests", &path];
    let plane = cluster.watch_with(&flags);
    cluster.ready_pods("app=web", 1);
    cluster.ready_pods("app=more", 1);
    assert!(plane.said().contains("wrong.yaml: "), "{}", plane.said());
    let pid = cluster.pid("web-here");
    let read = |what: &str| cluster.read("pod/web-here", what);
    assert_eq!(read("{.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}"), "Node/here");
    assert_eq!(read("{.metadata.annotations.kubernetes\\.io/config\\.source}"), "file");
    let (hash, uid) = (read("{.metadata.annotations.kubernetes\\.io/config\\.hash}"), read("{.metadata.uid}"));
    assert_eq!(read("{.metadata.annotations.kubernetes\\.io/config\\.mirror}"), hash);
    assert!(uid != hash && hash.len() == 32);
    assert_eq!(cluster.ok("exec web-here -- echo hello"), "hello\n");
    assert!(cluster.ok("describe pod web-here").contains("Container started"));
    let measured = cluster.ok("top pod web-here --containers --no-headers");
    assert!(measured.starts_with("web-here   main   "), "its usage is found by the folder's uid: {measured}");

    // Deleting the mirror pod does not affect the process.
    for how in ["", " --force --grace-period=0"] {
        let before = read("{.metadata.uid}");
        cluster.ok(&format!("delete pod web-here{how}"));
        cluster.until("the mirror pod exists again", || {
            let now = read("{.metadata.uid}");
            !now.is_empty() && now != before && read("{.status.phase}") == "Running"
        });
        assert_eq!(cluster.pid("web-here"), pid, "the process still runs");
    }

    // A new control plane does not affect it either.
    plane.end("TERM");
    assert!(is_alive(pid));
    let plane = cluster.watch_with(&flags);
    cluster.ready_pods("app=web", 1);
    assert_eq!(cluster.pid("web-here"), pid);

    // A changed file replaces its pod; a broken one changes nothing; a removed one deletes its pods.
    fs::write(folder.join("web.yaml"), manifest("web", 2000)).unwrap();
    cluster.until("the pods of the removed file are deleted", || cluster.pods("app=more").is_empty());
    cluster.until("web is replaced", || {
        !is_alive(pid) && cluster.pids("web-here").values().any(|now| *now != pid && is_alive(*now))
    });
    assert_ne!(read("{.metadata.annotations.kubernetes\\.io/config\\.hash}"), hash);
    let pid = cluster.pid("web-here");
    fs::write(folder.join("web.yaml"), "kind: Pod\n  broken").unwrap();
    cluster.until("the error is reported", || plane.said().contains("web.yaml: "));
    assert!(is_alive(pid) && cluster.pid("web-here") == pid);
    fs::write(folder.join("web.yaml"), manifest("web", 2000)).unwrap();
    fs::rename(folder.join("web.yaml"), folder.join(".web.yaml")).unwrap();
    cluster.until("the pod is deleted", || cluster.pods("app=web").is_empty() && !is_alive(pid));
    // The same file again has the same hash, but is a new pod.
    fs::rename(folder.join(".web.yaml"), folder.join("web.yaml")).unwrap();
    cluster.ready_pods("app=web", 1);
    let pid = cluster.pid("web-here");
    fs::remove_file(folder.join("web.yaml")).unwrap();
    cluster.until("the pod is deleted", || cluster.pods("app=web").is_empty() && !is_alive(pid));
}
