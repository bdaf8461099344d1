//! Counts open connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts one connection while it lives.
pub struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    /// Counts a connection from now on.
    pub fn new(open: &Arc<AtomicUsize>) -> ConnectionSlot {
        open.fetch_add(1, Ordering::Relaxed);
        ConnectionSlot(open.clone())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
