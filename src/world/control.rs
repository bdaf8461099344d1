//! The shape that controllers, the scheduler and the kubelet share: a [`Loop`].

use super::plan::SchedulingWait;
use super::{Plan, Row, World};
use crate::object::Key;

/// One control loop. The engine in `reconcile` finds the keys that a change concerns, removes duplicates, delays them,
/// and asks for plans.
///
/// Rules that every loop keeps, each with a test: it gets a key, never an event; it uses no clock, file or
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
    /// The keys of its root that a report of the machine makes due. Called after the report was applied to the facts. `None` for a loop
    /// that depends only on objects, which can be asked for its plan without a running control plane.
    pub reports: Option<fn(&World, &AppliedReport) -> Vec<Key>>,
    /// Decides which changes make waiting keys due again; `None` for a loop whose keys never wait ([`Plan`]).
    pub wait_filter: Option<&'static WaitFilter>,
    /// Computes and caches data for the plan of a changed object that takes too long to compute under the write lock
    /// ([`World::with_cached`]). Called without the lock; a plan computes missing data itself.
    pub prepare: Option<fn(&World, &Key)>,
}

/// A report of the machine, as loops see it once it was applied to the facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppliedReport {
    /// Something of a pod's containers, volumes or ports is different.
    Pod(Key),
    /// An image was built, or its watched files have changed.
    Image(Key),
    /// The resource usage of a pod was measured.
    Usage(Key),
    /// The listeners of a Service or of a pod that could not be opened have changed.
    Blocked(Key),
    /// The listeners of the Ingress proxy have changed.
    IngressListeners,
    /// A link to another machine broke, or works again.
    Links,
    /// The resource levels of this machine cross a threshold of eviction, or have crossed it until now.
    Pressure,
}

/// A changed row: before and after the change.
#[derive(Clone, Copy)]
pub struct RowChange<'a> {
    /// `None` when the change creates the row.
    pub before: Option<&'a Row>,
    /// `None` when the change removes the row.
    pub after: Option<&'a Row>,
}

/// The rules of a loop whose keys wait for changes that could help them, instead of being planned at each change. client-go has no such
/// queue; kube-scheduler does (KEP-4247: queueing hints).
pub struct WaitFilter {
    /// Whether a change of a row of the root makes its own key due.
    pub is_due: fn(RowChange<'_>) -> bool,
    /// Whether a row of the root needs no further plan.
    pub is_done: fn(RowChange<'_>) -> bool,
    /// Whether a change could help keys that wait for the same. The row is that of one of them.
    pub helps: fn(&World, &SchedulingWait, &Row, RowChange<'_>) -> bool,
}

impl Loop {
    /// Defaults of a loop: no name, no plan, no reports, and keys that never wait. Most loops override only the first two.
    pub const BASE: Loop = Loop {
        name: "",
        root: "",
        concerns: |_, _| Vec::new(),
        plan: |_, _| Plan::default(),
        reports: None,
        wait_filter: None,
        prepare: None,
    };

    /// Default keys to plan after a change: the row itself, and the roots that own it as controller.
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
