//! `kloop dash` in a terminal.

use crate::cluster::{Cluster, signal};
use crate::screen::Screen;

const LEAVES: &str = "\u{1b}[?1049l";

#[test]
fn dash_shows_changes_runs_commands_and_gives_the_terminal_back() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1, selector: {matchLabels: {app: web}}, \
         template: {metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 1, containers: \
         [{name: main, image: busybox, command: [sh, -c, 'trap exit TERM; echo begun; while :; do sleep 0.1; done']}]}}}}",
    );
    cluster.ready_pods("app=web", 1);
    let screen = Screen::run(&cluster, &["dash"]);
    screen.until_shows("deployment/web");
    // A verb's output, and back.
    screen.types("d");
    screen.until_shows("StrategyType:");
    screen.types("q");
    // Only cells that differ are written: the e is one of `Name:`.
    screen.until_shows("ployment/web");
    screen.types("l");
    screen.until_shows("begun");
    screen.types("q");
    // A change is made by the verb.
    screen.types("s\u{7f}2\r");
    screen.until_shows("scaled");
    cluster.until_reads("deploy/web", "{.spec.replicas}", "2");
    // A shell has the terminal for itself.
    screen.types("x");
    screen.until_shows(LEAVES);
    screen.types("echo from-$((40+2))\r");
    screen.until_shows("from-42");
    screen.types("exit\r");
    screen.until_shows("deployment/web");
    // Loops come from the control plane.
    screen.types("L");
    screen.until_shows("cronjob-controller");
    screen.types("q");
    let (said, code) = screen.ended();
    assert!(said.contains(LEAVES) && code == 0, "{code} {said}");
}

#[test]
fn dash_gives_the_terminal_back_on_a_signal() {
    let cluster = Cluster::new();
    cluster.ok("create configmap a");
    let screen = Screen::run(&cluster, &["dash"]);
    screen.until_shows("control plane runs");
    signal(screen.pid(), "TERM");
    let (said, code) = screen.ended();
    assert!(said.contains(LEAVES) && code == 143, "{code} {said}");
}
