//! The shape that controllers, the scheduler and the kubelet share: a [`Loop`].

use super::{Plan, Row, World};
use crate::object::Key;

/// One control loop. The engine in `reconcile` finds the keys that a change concerns, removes duplicates, delays them,
/// and asks for plans.
///
/// Laws that hold for every loop, each with a test: it gets a key, never an event; it uses no clock, file or
/// randomness; on a settled World its plan is empty, and equal Worlds give equal plans; it writes the status of its own
/// kind and the children that it owns; it computes from everything visible; a plan is bounded; it cannot fail (a bad
/// spec becomes a condition or an event); every write carries a reason.
#[derive(Clone, Copy)]
pub struct Loop {
    /// Its name in events, messages and `why`: `deployment-controller`.
    pub name: &'static str,
    /// The resource whose objects it plans for.
    pub root: &'static str,
    /// The keys of its root that a changed row concerns. Called with the row as it was and as it is.
    pub concerns: fn(&World, &Row) -> Vec<Key>,
    /// Returns the plan for one root object, which may no longer exist.
    pub plan: fn(&World, &Key) -> Plan,
}

impl Loop {
    /// The keys to look at by default: the row itself, and the roots that own it as controller.
    pub fn owner_or_self(root: &'static str, kind: &str, row: &Row) -> Vec<Key> {
        if row.key.resource == root {
            return vec![row.key.clone()];
        }
        let owner = row.controller().filter(|owner| owner.kind == kind);
        owner
            .map(|owner| Key::new(crate::object::Resource(root), &row.key.namespace, &owner.name))
            .into_iter()
            .collect()
    }
}
