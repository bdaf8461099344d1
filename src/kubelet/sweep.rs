//! What pods that the store no longer has left on the machine: it is ended and forgotten.
//!
//! A pod is its uid: the name may belong to a new pod already, which lives.

use super::termination::remove;
use crate::object::Key;
use crate::world::{Plan, World};

/// Ends what runs under this name for uids that the store does not have.
pub fn plan(world: &World, key: &Key, plan: &mut Plan) {
    let strangers = world.facts.pods.named(key).filter(|(uid, _)| world.by_uid(uid).is_none());
    for (uid, pod) in strangers {
        plan.wait(format!("pod {} ({uid}) is no longer in the store: what is left of it is being ended", key.path()));
        remove(world, uid, pod, plan);
    }
}
