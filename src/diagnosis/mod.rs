//! Diagnosis: reports how far a cluster is from its specs, where it is stuck, which loop is responsible, and what a change would do.
//!
//! Knows: when an object counts as converged ([`convergence`]), the chain of objects that a stuck one depends on and the plans of its loops
//! ([`why`]), the progress of workloads ([`progress`]), the tree from owners to pods ([`overview`]), and the changes that the loops would
//! make on a simulated machine ([`preview`]). Never: changes a cluster or a machine; it reads a `World`, or works on a copy of the state.
//! Start reading at [`why::explain`].

pub mod convergence;
pub mod overview;
pub mod preview;
pub mod progress;
pub mod why;
