//! Measurements of the control loop, for those that serve them in the same process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Counters and levels, read at any time by other threads.
#[derive(Debug, Default)]
pub struct LoopMetrics {
    ticks: AtomicU64,
    microseconds: AtomicU64,
    rows: AtomicU64,
    depths: Mutex<Vec<(&'static str, usize)>>,
    revision: AtomicU64,
}

/// The measurements at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopSample {
    /// Number of ticks.
    pub ticks: u64,
    /// Their duration together, in seconds.
    pub seconds: f64,
    /// Number of rows that they wrote.
    pub rows: u64,
    /// Number of keys that wait for each loop, by its name.
    pub depths: Vec<(&'static str, usize)>,
    /// Revision that the control loop has seen.
    pub revision: u64,
}

impl LoopMetrics {
    /// Records a tick: its duration, the rows that it wrote, and the revision and the waiting keys of each loop after it.
    pub fn record_tick(
        &self,
        took: Duration,
        rows: usize,
        revision: u64,
        depths: impl Iterator<Item = (&'static str, usize)>,
    ) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let mut kept = self.depths.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clear();
        kept.extend(depths);
        self.revision.store(revision, Ordering::Relaxed);
    }

    /// Reads them; none as long as nothing has run.
    pub fn sample(&self) -> Option<LoopSample> {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let sample = LoopSample {
            ticks: read(&self.ticks),
            seconds: read(&self.microseconds) as f64 / 1e6,
            rows: read(&self.rows),
            depths: self.depths.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            revision: read(&self.revision),
        };
        Some(sample).filter(|sample| sample.ticks > 0)
    }
}
