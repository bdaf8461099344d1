//! Removes old requests: a day after they were made and not decided, an hour after they were decided
//! (`pkg/controller/certificates/cleaner`).
//!
//! Never: removes a request that is approved and not signed yet. Start reading at [`plan`].

use super::{ROOT, is_issued};
use crate::object::time::Shift;
use crate::object::{Key, Object, Time, time};
use crate::world::{Loop, Plan, Row, World};
use jiff::SignedDuration;

/// The loop, by the name of Kubernetes' controller.
pub const LOOP: Loop =
    Loop { name: "certificatesigningrequest-cleaner-controller", root: ROOT, concerns, plan, ..Loop::BASE };

/// Time for which a request waits for a decision.
const PENDING: SignedDuration = SignedDuration::from_hours(24);
/// Time for which a request stays after it was issued, denied or failed.
const ENDED: SignedDuration = SignedDuration::from_hours(1);

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == ROOT { vec![row.key.clone()] } else { Vec::new() }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let Some(until) = removal_time(&row.body()) else { return plan };
    if world.now < until {
        plan.wake_at(until);
        return plan;
    }
    plan.delete(row, "the request is old");
    plan
}

/// Returns the time at which a request is removed; `None` for one that is approved and not signed yet.
fn removal_time(request: &Object) -> Option<Time> {
    if request.items(&["status", "conditions"]).is_empty() {
        return Some(request.created()?.later(PENDING));
    }
    let time_of = |condition_type: &str| -> Option<Time> {
        time::from_json(&request.true_condition(condition_type)?["lastUpdateTime"])
    };
    let issued = time_of("Approved").filter(|_| is_issued(request));
    let ended = [issued, time_of("Denied"), time_of("Failed")].into_iter().flatten().min();
    Some(ended?.later(ENDED))
}
