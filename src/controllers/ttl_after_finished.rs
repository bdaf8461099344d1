//! Deletes finished Jobs after `ttlSecondsAfterFinished` (KEP-592).

use crate::object::time::Shift;
use crate::object::{Key, time};
use crate::world::{Loop, Plan, Propagation, Row, World};
use jiff::SignedDuration;

const ROOT: &str = "jobs.batch";

/// The loop that removes finished Jobs.
pub const LOOP: Loop = Loop { name: "ttl-after-finished-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == ROOT { vec![row.key.clone()] } else { Vec::new() }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let object = row.body();
    let Some(seconds) = object.int(&["spec", "ttlSecondsAfterFinished"]) else { return plan };
    let end = ["Complete", "Failed"].into_iter().filter_map(|kind| object.true_condition(kind));
    let Some(end) = end.filter_map(|end| time::from_json(&end["lastTransitionTime"])).max() else {
        return plan;
    };
    let until = end.later(SignedDuration::from_secs(seconds));
    if world.now < until {
        plan.wait(format!("the finished Job is deleted in {} s", until.as_second() - world.now.as_second()));
        plan.wake_at(until);
    } else {
        plan.delete_with(row, None, Propagation::Foreground, format!("it finished more than {seconds} s ago"));
    }
    plan
}
