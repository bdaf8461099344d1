//! `KLOOP_LOG`: the control plane prints the durations of its ticks, and an invalid filter is an error.

use crate::cluster::Cluster;

#[test]
fn ticks_are_printed_with_their_times_when_asked_for() {
    let cluster = Cluster::new();
    cluster.ok("create configmap settings");
    let reconcile = |filter: &str| {
        let said = cluster.run_program(cluster.command().env("KLOOP_LOG", filter).arg("reconcile"), "");
        assert_eq!(said.code, 0, "{}", said.err);
        said.err
    };
    let lines = reconcile("kloop=debug");
    let tick = lines.lines().find(|line| line.contains(" rows=")).expect("a tick");
    for part in [" DEBUG tick{revision=", " keys=", "}: kloop::reconcile::tick: close time.busy="] {
        assert!(tick.contains(part), "{tick}");
    }
    assert!(lines.contains("sqlite_commit") && lines.contains("wait_for_write_lock"), "{lines}");
    assert!(!lines.contains(" plan{"), "plans are more detailed than debug: {lines}");
    assert_eq!(reconcile(""), "", "nothing is printed unless it is asked for");
    cluster.ok("create namespace team");
    let plans = reconcile("kloop::reconcile=trace");
    assert!(plans.contains("plan{by=\"namespace-controller\" key="), "{plans}");
    assert!(!plans.contains("kloop::store"), "{plans}");
}

#[test]
fn wrong_filter_is_an_error() {
    let cluster = Cluster::new();
    let said = cluster.run_program(cluster.command().env("KLOOP_LOG", "debgu").args(["get", "pods"]), "");
    assert_eq!((said.code, &*said.out), (1, ""));
    let expected = "error: invalid filter \"debgu\" in KLOOP_LOG: \"debgu\" is not a level; write a level";
    assert!(said.err.starts_with(expected), "{}", said.err);
}
