//! The controllers of workloads, Services, owners, namespaces and nodes: each a pure function from the World to a Plan.
//!
//! Knows: what Kubernetes' controller manager does, one file per controller. Never: writes, reads a clock, or talks to
//! another controller; they meet only in the objects. Start reading at [`replicaset`], the simplest; a new controller is
//! one new file and one line in [`ALL`].

use crate::world::Loop;

mod backends;
mod claim;
mod percent;
mod pods;
mod revisions;
mod status;
#[cfg(test)]
mod testing;

pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod endpoints;
pub mod endpointslice;
pub mod garbage;
pub mod job;
pub mod namespace;
pub mod node_lifecycle;
pub mod pod_gc;
pub mod poddisruptionbudget;
pub mod pv_binder;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resourcequota;
pub mod serviceaccount;
pub mod statefulset;
pub mod ttl;

/// Every controller.
pub static ALL: &[&Loop] = &[
    &deployment::LOOP,
    &replicaset::LOOP,
    &replicationcontroller::LOOP,
    &statefulset::LOOP,
    &daemonset::LOOP,
    &job::LOOP,
    &ttl::LOOP,
    &cronjob::LOOP,
    &poddisruptionbudget::LOOP,
    &endpointslice::LOOP,
    &endpoints::LOOP,
    &garbage::LOOP,
    &namespace::LOOP,
    &serviceaccount::LOOP,
    &node_lifecycle::LOOP,
    &pod_gc::LOOP,
    &resourcequota::LOOP,
    &pv_binder::LOOP,
];
