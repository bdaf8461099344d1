//! Diagnosis: reports how far a cluster is from its specs, where it is stuck, which loop is responsible, and what a change would do.
//!
//! Knows: when an object counts as converged ([`convergence`]), how one object leads to the next and what its loops would do now
//! ([`why`]), how far workloads are ([`progress`]), the tree from owners to pods ([`overview`]), and how the real loops continue on a simulated machine ([`preview`]).
//! Never: changes a cluster or a machine; it reads a `World`, or works on a copy of the state. Start reading at [`why::explain`].

pub mod convergence;
pub mod overview;
pub mod preview;
pub mod progress;
pub mod why;
