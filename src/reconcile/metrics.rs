//! Measurements of the control loop, for those that serve them in the same process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters and levels, read at any time by other threads.
#[derive(Debug, Default)]
pub struct LoopMetrics {
    ticks: AtomicU64,
    microseconds: AtomicU64,
    rows: AtomicU64,
    depth: AtomicU64,
    revision: AtomicU64,
}

/// The measurements at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoopSample {
    /// Number of ticks.
    pub ticks: u64,
    /// Their duration together, in seconds.
    pub seconds: f64,
    /// Number of rows that they wrote.
    pub rows: u64,
    /// Number of keys that wait in the queue.
    pub depth: u64,
    /// Revision that the control loop has seen.
    pub revision: u64,
}

impl LoopMetrics {
    /// Records a tick: its duration, the rows that it wrote, and the queue and the revision after it.
    pub fn record_tick(&self, took: Duration, rows: usize, depth: usize, revision: u64) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.depth.store(depth as u64, Ordering::Relaxed);
        self.revision.store(revision, Ordering::Relaxed);
    }

    /// Reads them; none as long as nothing has run.
    pub fn sample(&self) -> Option<LoopSample> {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let sample = LoopSample {
            ticks: read(&self.ticks),
            seconds: read(&self.microseconds) as f64 / 1e6,
            rows: read(&self.rows),
            depth: read(&self.depth),
            revision: read(&self.revision),
        };
        Some(sample).filter(|sample| sample.ticks > 0)
    }
}
