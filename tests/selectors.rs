//! `-l` together with `-f`: which objects of files a verb takes.

use crate::cluster::Cluster;
use std::fs;

const FILE: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: c1, labels: {set: x}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c2, labels: {set: z}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d1, labels: {set: x}}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: a}]}}}
";

/// Makes a cluster with the objects of a file, whose labels have changed since.
fn cluster_and_file() -> (Cluster, String) {
    let cluster = Cluster::new();
    let file = cluster.home().join("objects.yaml");
    fs::write(&file, FILE).expect("written");
    let file = file.display().to_string();
    cluster.ok(&format!("apply -f {file}"));
    cluster.ok(&format!("label -f {file} live=yes"));
    cluster.ok("label cm c1 set=y --overwrite");
    (cluster, file)
}

#[test]
fn selector_takes_the_objects_of_files_whose_labels_in_the_cluster_match() {
    let (cluster, file) = cluster_and_file();
    for (verb, flags, expected) in [
        ("get", "-l set=x -o name", "deployment.apps/d1\n"),
        ("get", "-l set=q -o name", ""),
        ("label", "-l set=x n=1", "deployment.apps/d1 labeled\n"),
        ("label", "-l set=q n=1", ""),
        ("annotate", "-l set=y n=1", "configmap/c1 annotated\n"),
        ("set image", "-l set=x c=foo", "deployment.apps/d1 image updated\n"),
        ("set env", "-l set=q a=b", ""),
        ("rollout restart", "-l set=x", "deployment.apps/d1 restarted\n"),
        ("rollout pause", "-l set=q", ""),
        ("wait", "-l set=y --for=jsonpath={.metadata.name}=c1", "configmap/c1 condition met\n"),
        ("get", "--field-selector=metadata.name=c1 -o name", "configmap/c1\nconfigmap/c2\ndeployment.apps/d1\n"),
    ] {
        assert_eq!(cluster.ok(&format!("{verb} -f {file} {flags}")), expected, "{verb} {flags}");
    }
    let said = cluster.kloop(&format!("get -f {file} -l set=q"));
    assert_eq!((said.code, said.err.as_str()), (0, "No resources found in default namespace.\n"));
    let said = cluster.kloop(&format!("scale -f {file} -l set=q --replicas=2"));
    assert_eq!((said.code, said.err.as_str()), (1, "error: no objects passed to scale\n"));
}

#[test]
fn selector_of_some_verbs_takes_the_objects_whose_labels_in_the_file_match() {
    let (cluster, file) = cluster_and_file();
    let described = cluster.ok(&format!("describe -f {file} -l set=x"));
    let names: Vec<&str> = described.lines().filter_map(|line| line.strip_prefix("Name:")).map(str::trim).collect();
    assert_eq!(names, ["c1", "d1"]);
    assert_eq!(cluster.ok(&format!("delete -f {file} -l live=yes")), "No resources found\n");
    let deleted =
        "configmap \"c1\" deleted from default namespace\ndeployment.apps \"d1\" deleted from default namespace\n";
    // The labels of the file count for scale, too: the first object is one without replicas.
    let said = cluster.kloop(&format!("scale -f {file} -l set=x --replicas=2"));
    assert!(said.code == 1 && said.err.starts_with("Error from server (NotFound)"), "{}", said.err);
    for expected in [deleted, ""] {
        assert_eq!(cluster.ok(&format!("delete -f {file} -l set=x --wait=false")), expected);
    }
    assert_eq!(cluster.ok("get cm -o name"), "configmap/c2\n");
}

#[test]
fn selector_has_no_effect_on_local_changes() {
    let (cluster, file) = cluster_and_file();
    let all = "configmap/c1\nconfigmap/c2\ndeployment.apps/d1\n";
    assert_eq!(cluster.ok(&format!("label -f {file} -l set=q n=1 --local -o name")), all);
}
