//! What a loop is: the one shape that controllers, the scheduler and kubelet share.

use super::{Plan, Row, World};
use crate::object::Key;

/// One loop. The shell in `reconcile` finds the keys that a change concerns, de-duplicates and delays them, and asks for plans.
///
/// Laws that hold for every loop (each has a test): it is told which object, never what happened; it has no hands, clock or chance;
/// on a settled world its plan is empty, and equal worlds give equal plans; it writes its own kind's status and the children it
/// owns; it computes from all it sees; a plan is bounded; it cannot fail (a bad spec becomes a condition or an event); every
/// write says why.
#[derive(Clone, Copy)]
pub struct Loop {
    /// Its name in events, messages and `why`: `deployment-controller`.
    pub name: &'static str,
    /// The resource whose objects it plans for.
    pub root: &'static str,
    /// The keys of its root that a changed row concerns. Called with the row as it was and as it is.
    pub concerns: fn(&World, &Row) -> Vec<Key>,
    /// What should be done about one root now. The root may be gone.
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
