//! C18: each event about an object is sent once, and events are rate-limited, under all faults.

use super::scene::Scene;
use std::collections::HashMap;

/// Maximum burst of events that one source may send about one object, and the seconds until it may send another (client-go: the spam
/// filter).
const BURST: i64 = 25;
const REFILL: i64 = 300;

/// Checks all existing events. A new control plane does not know which events were sent; setting the clock forward refills the budget.
pub fn check_events(scene: &Scene) {
    let lives = scene.sim.epoch() as i64;
    let most = (lives + scene.jumps) * BURST + scene.passed / REFILL + 1;
    let (mut same, mut told) = (HashMap::<String, i64>::new(), HashMap::<String, i64>::new());
    for row in scene.invariants.world.list("events") {
        let event = row.object();
        let word = |path: &[&str]| event.text(path).unwrap_or_default().to_owned();
        let source = format!("{} {}", word(&["involvedObject", "uid"]), word(&["reportingComponent"]));
        let what =
            format!("{source} {} {} {}", word(&["involvedObject", "fieldPath"]), word(&["reason"]), word(&["message"]));
        *told.entry(source).or_default() += 1;
        *same.entry(what).or_default() += 1;
    }
    for (what, count) in same {
        assert!(count <= lives, "C18: {count} events are the same, of {lives} lives of the control plane: {what}");
    }
    for (source, count) in told {
        assert!(count <= most, "C18: {count} events, {most} at most: {source}");
    }
}
